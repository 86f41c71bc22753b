"""A state of the cluster under exploration, as one flat value.

The machines are in it by number (`machines.py` holds what the numbers stand for), and so are the
messages and storage operations under way. What is left are the things that are no machine: what
applications know, what is in flight, what is on disk, and how many faults may still happen. Encoded
it is a few hundred bytes, and equal states are equal bytes.
"""

from typing import Final

import msgspec

from verification.exploration.bounds import FAULTS, KINDS

CLOSE: Final = 0
"""In a queue: the other side has closed. Nothing comes after it."""
START: Final = 0
"""The marker before the first offset."""
APP: Final = "app"
_SLOTS: Final = 16
"""Of one client or registrar: connections or links that are not over at both ends."""


def key_of(index: int) -> str:
    return f"{APP}/{index}"


def index_of(key: str) -> int:
    return int(key[len(APP) + 1 :])


class ClientState(msgspec.Struct, array_like=True):
    core: int
    knows: list[int]
    """Per object the version the application holds; 0: none."""
    acked: list[int]
    """The newest version acked in this life."""
    claimed: list[int]
    """The newest version ever acked or declared by this client."""
    vouched: list[int]
    """The newest epoch acked."""
    declared: list[bool]
    wanted: list[bool]
    inbox: list[tuple[int, int, int]]
    """Told and not yet acted upon: object, version (−1: unknown), epoch."""
    identity: bytes | None = None
    declares: bool = False
    """After a restart it says which versions its cache holds."""
    generation: int = 0
    """Of client ids that it asked for."""


class Conn(msgspec.Struct, array_like=True):
    client: int
    registrar: int
    slot: int
    to_server: list[int] = []
    to_client: list[int] = []
    client_open: bool = True
    server_open: bool = True

    def handle(self) -> int:
        return self.client * _SLOTS + self.slot

    def close_upper_end(self) -> None:
        self.server_open = False
        self.to_server = []
        if self.client_open:
            self.to_client.append(CLOSE)


class ExploredLink(msgspec.Struct, array_like=True):
    registrar: int
    slot: int
    to_shard: list[int] = []
    to_registrar: list[int] = []
    registrar_open: bool = True
    shard_open: bool = True
    silent: bool = False
    learned: list[int] = []
    """Objects whose version the registrar was told over it."""

    def handle(self) -> int:
        return self.registrar * _SLOTS + self.slot

    def close_lower_end(self) -> None:
        self.shard_open = False
        self.to_shard = []
        if self.registrar_open and not self.silent:
            self.to_registrar.append(CLOSE)


class RowState(msgspec.Struct, array_like=True):
    """A client row: its newest session, and per registration (object, session, a, e)."""

    client: bytes
    session: int = 0
    created: bool = False
    cells: list[tuple[int, int, int, int]] = []

    def objects(self) -> set[int]:
        return {cell[0] for cell in self.cells}

    def put(self, new: tuple[int, int, int, int]) -> None:
        """A newer session's cell stays."""
        before = next((cell for cell in self.cells if cell[0] == new[0]), None)
        self.drop(new[0])
        kept = new if before is None or before[1] <= new[1] else before
        self.cells = sorted([*self.cells, kept])

    def drop(self, index: int) -> None:
        self.cells = [cell for cell in self.cells if cell[0] != index]


class ExploredDisk(msgspec.Struct, array_like=True):
    """What would survive a power cut, and the operations that would not."""

    objects: list[int]
    """Object rows, by number."""
    epoch: int
    """0: there is no shard row."""
    lineage: int
    applied: int
    rows: list[RowState]
    feed_lineage: int
    feed_first: int
    """Offsets below can no longer be read."""
    feed: list[tuple[int, int]]
    """Object and version, from offset 1 on; what can no longer be read is kept for the judge."""
    lost_in: int = 0
    """The newest epoch when a part of the feed was lost."""
    boot: int = 1
    epochs: int = 1
    """Drawn so far."""
    sessions: list[tuple[bytes, int]] = []
    """The newest number given to each client's sessions."""
    operations: list[int] = []
    answers: list[int] = []
    reads: list[tuple[int, int]] = []

    def row(self, client: bytes) -> RowState | None:
        return next((row for row in self.rows if row.client == client and row.created), None)

    def head(self, client: bytes) -> RowState:
        """For a write."""
        found = next((row for row in self.rows if row.client == client), None)
        if found is None:
            found = RowState(client)
            self.rows = sorted([*self.rows, found], key=lambda row: row.client)
        return found

    def newest_session(self, client: bytes) -> int:
        return next((number for other, number in self.sessions if other == client), 0)

    def last(self) -> int:
        return len(self.feed)


class ExploredState(msgspec.Struct, array_like=True):
    clients: list[ClientState]
    registrars: list[int]
    host: int
    """The shard's, without its two machines."""
    matcher: int
    rows: int
    disk: ExploredDisk
    conns: list[Conn]
    links: list[ExploredLink]
    published: list[int]
    budget: list[int]

    def conn_of(self, client: int) -> Conn | None:
        """The connection the client holds, whoever is still at its other end."""
        return next((c for c in self.conns if c.client == client and c.client_open), None)

    def link_of(self, registrar: int) -> ExploredLink | None:
        return next((x for x in self.links if x.registrar == registrar and x.registrar_open), None)

    def may(self, kind: str) -> bool:
        return self.budget[_PLACE[kind]] > 0 and (kind not in FAULTS or self.budget[-1] > 0)

    def spend(self, kind: str) -> None:
        self.budget[_PLACE[kind]] -= 1
        if kind in FAULTS:
            self.budget[-1] -= 1

    def used(self, kind: str, of: int) -> bool:
        return self.budget[_PLACE[kind]] < of

    def tidy(self) -> None:
        """One order for what has none, and nothing of what is over."""
        self.conns = sorted(
            (c for c in self.conns if c.client_open or c.server_open),
            key=lambda c: (c.client, c.registrar, c.slot),
        )
        self.links = sorted(
            (x for x in self.links if x.registrar_open or x.shard_open), key=ExploredLink.handle
        )
        # A spent total makes what is left of the single kinds meaningless.
        if self.budget[-1] == 0:
            for kind in FAULTS:
                self.budget[_PLACE[kind]] = 0


_PLACE: Final = {kind: place for place, kind in enumerate(KINDS)}

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(ExploredState).decode
