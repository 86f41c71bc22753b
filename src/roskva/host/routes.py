"""Where a client should go: the registrars that it is to try, in order.

**Consistent hashing.** Registrars have points on a ring, as many as their weight asks for, and a
client goes around the ring from its own point. So whoever comes or goes takes clients from others
or leaves them to others, and nobody else has to move.

**Bounded loads.** A ring alone is uneven. So a registrar that has 1.25 times its share of all
clients is full: whoever comes to it goes on to the next that is not, and tries the full ones last.
What is known of loads is as old as the last report of each; whom we have sent somewhere since
counts as being there, or a whole herd would run to the one that was emptiest a second ago.

**Draining.** One that is being emptied is left out, and its clients are counted for those that
remain. Clients that are connected need none of this: they stay.
"""

from bisect import bisect
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from math import ceil
from typing import Final

import msgspec

OVER_MEAN: Final = 1.25
POINTS: Final = 100
"""On the ring, for a weight of 1."""


class RouteTarget(msgspec.Struct, frozen=True):
    """A registrar, as it was last heard of."""

    name: str
    clients: int = 0
    weight: int = 1
    draining: bool = False


class Routes:
    def __init__(self, targets: Iterable[RouteTarget], over_mean: float = OVER_MEAN) -> None:
        """`over_mean`: how many times its share each may have; infinity is a ring alone."""
        targets = list(targets)
        open_ = [target for target in targets if not target.draining]
        self.clients = {target.name: target.clients for target in open_}
        """Of each that is not draining, with those that were sent there since."""
        self._all = sum(target.clients for target in targets)
        weights = sum(target.weight for target in open_)
        self._most = {target.name: over_mean * target.weight / weights for target in open_}
        """How many clients each may have, of one."""
        ring = sorted(
            (_point(f"{target.name} {number}".encode()), target.name)
            for target in open_
            for number in range(POINTS * target.weight)
        )
        self._points = [point for point, _ in ring]
        self._names = [name for _, name in ring]

    def route(self, client: bytes, length: int = 3) -> list[str]:
        """At most so many; none if nobody is there."""
        with_room: list[str] = []
        full: list[str] = []
        for name in self._around(client):
            if not self.is_full(name):
                with_room.append(name)
                if len(with_room) == length:
                    break
            elif len(full) < length:
                full.append(name)
        return [*with_room, *full][:length]

    def sent(self, name: str) -> None:
        """A client was told to go there first."""
        self.clients[name] += 1
        self._all += 1

    def is_full(self, name: str) -> bool:
        """For one client more, whose coming gives everybody a little more room."""
        return self.clients[name] >= self._most[name] * (self._all + 1)

    def most(self, name: str) -> int:
        """Clients that it may have of as many as there are."""
        return ceil(self._most[name] * self._all)

    def _around(self, client: bytes) -> Iterator[str]:
        names, count = self._names, len(self._names)
        start, seen = bisect(self._points, _point(client)), set[str]()
        for at in range(start, start + count):
            name = names[at if at < count else at - count]
            if name not in seen:
                yield name
                seen.add(name)
                if len(seen) == len(self.clients):
                    return


def _point(of: bytes) -> int:
    return int.from_bytes(blake2b(of, digest_size=8).digest())
