"""How much of a shard's client rows each principal has, without remembering who is away.

A principal is counted by its *account*, 8 bytes that its rows carry. The collector reads all rows
of the shard, round after round, and each round is a new count. Until it is complete, the count of
the round before holds, and what is created and dropped meanwhile is added. After a start there is
none before: what counts is what was made since then, or what was read so far, if that is more.

Memory is bounded after Misra and Gries: so many accounts have a counter. If another comes when all
are taken, each gives up what the newcomer would have had. So a counter never says too much, and at
most a `MAX_COUNTERS`th of everything too little: nobody is refused who has room, and whoever takes
more than that is found.
"""

import zlib
from typing import Final

import msgspec

from roskva.core.effects import Page

MAX_COUNTERS: Final = 1000
_EVERYTHING: Final = (1 << 32, b"")
_NOTHING: Final = (-1, b"")


class MaxShare(msgspec.Struct, frozen=True):
    """Of one principal, per shard. Rows of nobody in particular may carry no account: they are not
    counted."""

    clients: int = 1000
    registrations: int = 100_000


SHARE_BY_DEFAULT: Final = MaxShare()


class ShareCounters:
    def __init__(self, most: int = MAX_COUNTERS) -> None:
        self.most = most
        self.counts: dict[bytes, int] = {}

    def of(self, account: bytes) -> int:
        return self.counts.get(account, 0)

    def add(self, account: bytes, number: int) -> None:
        counts = self.counts
        if account not in counts and len(counts) >= self.most and number > 0:
            given_up = min(number, *counts.values())
            number -= given_up
            counts = self.counts = {a: n - given_up for a, n in counts.items() if n > given_up}
        left = counts.get(account, 0) + number
        if left > 0:
            counts[account] = left
        else:
            counts.pop(account, None)


class Count:
    def __init__(self) -> None:
        self.clients, self.registrations = ShareCounters(), ShareCounters()

    def add(self, account: bytes, clients: int, registrations: int) -> None:
        self.clients.add(account, clients)
        self.registrations.add(account, registrations)


class Shares:
    def __init__(self, most: MaxShare) -> None:
        self.most = most
        self.holds = Count()
        """The last whole round, and what has changed since."""
        self.round = Count()
        """What lies before `read_to`."""
        self.read_to = _NOTHING
        self.meanwhile: list[tuple[bytes, bytes, int, int]] | None = None
        """Changes beyond that, while a page is being read that may have missed them."""

    def has_room(self, account: bytes, clients: int, registrations: int) -> bool:
        """For so many more."""
        if not account:
            return True
        both = self.holds, self.round
        has_clients = max(count.clients.of(account) for count in both)
        has_registrations = max(count.registrations.of(account) for count in both)
        return (not clients or has_clients + clients <= self.most.clients) and (
            registrations <= 0 or has_registrations + registrations <= self.most.registrations
        )

    def changed(self, client: bytes, account: bytes, clients: int, registrations: int) -> None:
        if not account:
            return
        self.holds.add(account, clients, registrations)
        if _place(client) <= self.read_to:
            self.round.add(account, clients, registrations)
        elif self.meanwhile is not None:
            self.meanwhile.append((client, account, clients, registrations))

    def read(self, page: Page) -> None:
        """The next page of a round, as far as it has clients."""
        for row in page.clients:
            if row.account:
                self.round.add(row.account, 1, row.registrations)
        if page.after is None or page.objects:
            self.read_to = _EVERYTHING
        elif page.clients:
            self.read_to = _place(page.clients[-1].client)
        there = {row.client for row in page.clients}
        meanwhile, self.meanwhile = self.meanwhile or (), None
        for client, account, clients, registrations in meanwhile:
            if client not in there and _place(client) <= self.read_to:
                self.round.add(account, clients, registrations)
        if page.after is None:
            self.holds, self.round, self.read_to = self.round, Count(), _NOTHING


def _place(client: bytes) -> tuple[int, bytes]:
    """Where its row lies in the store."""
    return zlib.crc32(client), client
