"""A state of the cluster under exploration, as one flat value.

The machines are in it by number (`machines.py` holds what the numbers stand for), and so are the
messages and storage operations under way. What is left are the things that are no machine: what
applications know, what is in flight, what is on disk, and how many faults may still happen. Encoded
it is a few hundred bytes, and equal states are equal bytes.
"""

from typing import Final

import msgspec

from roskva.model import (
    NOTHING_LOST,
    WHOLE_SHARD,
    Loss,
    Update,
    app_key,
    epoch_record,
    is_app,
    loss_of,
)
from verification.exploration.bounds import FAULTS, KINDS

CLOSE: Final = 0
"""In a queue: the other side has closed. Nothing comes after it."""
START: Final = 0
"""The marker before the first offset."""
APP: Final = "app"
_SLOTS: Final = 16
"""Of one client or registrar: connections or links that are not over at both ends."""


WHOLE_APP: Final = -1
"""In the feed, in place of an object."""
EPOCH: Final = -2
"""Likewise: the record of an epoch, for a loss up to 0; −3 is one for a loss up to 1, and so on."""
_ERA: Final = 10
"""More than there are changes of an object."""


def key_of(index: int) -> str:
    return app_key(APP) if index == WHOLE_APP else f"{APP}/{index}"


def index_of(key: str) -> int:
    return WHOLE_APP if is_app(key) else int(key[len(APP) + 1 :])


def row_of(update: Update) -> tuple[int, int]:
    """As the feed has it."""
    if update.object == WHOLE_SHARD:
        return EPOCH - loss_of(update).last, update.version
    return index_of(update.object), update.version


def update_of(row: tuple[int, int], lineage: int) -> Update:
    index, version = row
    if index <= EPOCH:
        return epoch_record(version, Loss(lineage, EPOCH - index, "damage"), 0)
    return Update(key_of(index), version, reset=index == WHOLE_APP)


def change_of(version: int) -> int:
    """Which change of its object a version stands for; −1: unknown."""
    return version if version < 0 else version % _ERA


class Wanted(msgspec.Struct, array_like=True):
    """What an application knows of one object; 0: nothing."""

    wanted: bool = True
    knows: int = 0
    """The version it holds."""
    acked: int = 0
    """The newest version acked in this life."""
    claimed: int = 0
    """The newest version ever acked or declared by this client."""
    vouched: int = 0
    """The newest epoch acked."""
    declared: bool = False

    def take(self, version: int) -> None:
        self.knows = max(self.knows, version)
        self.acked = max(self.acked, version)
        self.claimed = max(self.claimed, version)


class ClientState(msgspec.Struct, array_like=True):
    core: int
    objects: list[Wanted]
    inbox: list[tuple[int, int, int]] = []
    """Told and not yet acted upon: object, version (−1: unknown), epoch."""
    identity: bytes | None = None
    declares: bool = False
    """After a restart it says which versions its cache holds."""
    generation: int = 0
    """Of client ids that it asked for."""

    def wanted(self) -> set[int]:
        return {index for index, at in enumerate(self.objects) if at.wanted}


class Wire(msgspec.Struct, array_like=True):
    """A connection, from a client *up* to a registrar, or a link, from a registrar up to the shard.

    Either end is named by who dials and a number of its own.
    """

    dialer: int
    slot: int
    registrar: int
    up: list[int] = []
    down: list[int] = []
    lower_open: bool = True
    upper_open: bool = True
    silent: bool = False
    """It loses everything from now on, and nobody is told."""
    learned: list[int] = []
    """Objects whose version the registrar was told over it: a link."""

    def handle(self) -> int:
        return self.dialer * _SLOTS + self.slot

    def whole(self) -> bool:
        return self.lower_open and self.upper_open

    def send_up(self, frame: int) -> None:
        if self.upper_open and not self.silent:
            self.up.append(frame)

    def send_down(self, frame: int) -> None:
        if self.lower_open and not self.silent:
            self.down.append(frame)

    def close_lower(self) -> None:
        self.lower_open = False
        self.down, self.learned = [], []
        self.send_up(CLOSE)

    def close_upper(self) -> None:
        self.upper_open = False
        self.up = []
        self.send_down(CLOSE)

    def cut(self) -> None:
        """By neither side; both will learn of it."""
        self.up = [CLOSE] if self.upper_open else []
        self.down = [CLOSE] if self.lower_open else []


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
    epoch: int = 1
    lineage: int = 1
    applied: int = START
    excused: int = NOTHING_LOST
    lost: int = NOTHING_LOST
    """The loss that no epoch has begun for."""
    rows: list[RowState] = []
    feed_lineage: int = 1
    feed_first: int = 1
    """Offsets below can no longer be read."""
    feed: list[tuple[int, int]] = []
    """Object and version, or `WHOLE_APP` and generation, or `EPOCH` and the epoch, from offset 1
    on; what can no longer be read is kept for the judge."""
    lost_in: int = 0
    """The newest epoch when a part of the feed was lost."""
    generation: int = 0
    boot: int = 1
    epochs: int = 1
    """Proposed so far."""
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

    def generation_of_feed(self) -> int:
        return max((number for index, number in self.feed if index == WHOLE_APP), default=0)


class ExploredState(msgspec.Struct, array_like=True):
    clients: list[ClientState]
    registrars: list[int]
    disk: ExploredDisk
    published: list[int]
    budget: list[int]
    shard: int = 0
    conns: list[Wire] = []
    links: list[Wire] = []

    def conn_of(self, client: int) -> Wire | None:
        """The connection the client holds, whoever is still at its other end."""
        return next((c for c in self.conns if c.dialer == client and c.lower_open), None)

    def link_of(self, registrar: int) -> Wire | None:
        return next((x for x in self.links if x.dialer == registrar and x.lower_open), None)

    def may(self, kind: str) -> bool:
        return self.budget[_PLACE[kind]] > 0 and (kind not in FAULTS or self.budget[-1] > 0)

    def version_of(self, change: int) -> int:
        """With every reset they fall."""
        return change + _ERA * self.budget[_PLACE["app_resets"]]

    def spend(self, kind: str) -> None:
        self.budget[_PLACE[kind]] -= 1
        if kind in FAULTS:
            self.budget[-1] -= 1

    def dial(self, wires: list[Wire], dialer: int, registrar: int) -> Wire:
        taken = {
            wire.slot for wire in wires if (wire.dialer, wire.registrar) == (dialer, registrar)
        }
        slot = next(slot for slot in range(_SLOTS) if slot not in taken)
        wires.append(Wire(dialer, slot, registrar))
        return wires[-1]

    def used(self, kind: str, of: int) -> bool:
        return self.budget[_PLACE[kind]] < of

    def tidy(self) -> None:
        """One order for what has none, and nothing of what is over."""
        for wires in (self.conns, self.links):
            wires[:] = [wire for wire in wires if wire.lower_open or wire.upper_open]
            wires.sort(key=lambda wire: (wire.dialer, wire.registrar, wire.slot))
        # A spent total makes what is left of the single kinds meaningless.
        if self.budget[-1] == 0:
            for kind in FAULTS:
                self.budget[_PLACE[kind]] = 0


_PLACE: Final = {kind: place for place, kind in enumerate(KINDS)}

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(ExploredState).decode
