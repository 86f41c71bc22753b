"""Where a reader is in a database's log, and whether what follows can still be read from there.

A **position** is ours: everything up to it is in our changes log. The server only retains what lies
behind it. So whenever we connect we compare the two ourselves: a slot that was made anew, asked to
start at an older place, begins later without a word. Whatever the server cannot vouch for is a
**doubt**: changes may be missing that nobody will tell of.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from roskva.errors import BadConfig

BROKEN: Final = "broken"
"""In place of a print: some of the tables cannot be read."""

Cause = Literal[
    "attached",
    "adopted",
    "slot missing",
    "slot lost",
    "slot ahead",
    "fork",
    "purged",
    "truncated",
    "tables changed",
    "log lost",
    "reset",
    "unlogged",
]


class Doubt(msgspec.Struct, frozen=True):
    cause: Cause
    sentence: str


class PostgresPosition(msgspec.Struct, frozen=True, tag="postgresql"):
    system: str
    """The system identifier of the cluster: the same for its standbys, another after `initdb`."""
    timeline: int
    lsn: int
    """The end of the last commit."""
    tables: str = ""
    """How they were published: a print (postgres/catalog.py)."""

    def __str__(self) -> str:
        return f"{self.timeline}/{lsn_text(self.lsn)}"


class GtidPosition(msgspec.Struct, frozen=True, tag="gtid"):
    gtids: str
    """Everything up to here, as the database writes it."""
    server: str
    """Where that was."""
    before: str = ""
    """The same without the last transaction."""
    last_at: int = 0
    """When that was committed: wall-clock microseconds. 0: we have not seen it."""
    tables: str = ""
    """How they were named: a print (mysql/catalog.py)."""

    def __str__(self) -> str:
        return self.gtids


Position = PostgresPosition | GtidPosition


def position_text(position: Position) -> str:
    return msgspec.json.encode(position).decode()


def read_position(text: str) -> Position:
    return msgspec.json.decode(text, type=Position)  # type: ignore[no-any-return]


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def read_lsn(text: str) -> int:
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


# PostgreSQL.


class Slot(msgspec.Struct, frozen=True):
    confirmed: int
    """Before this it gives nothing any more."""
    lost: str = ""
    """Why it cannot be read, if it cannot."""


class PostgresServer(msgspec.Struct, frozen=True):
    system: str
    timeline: int
    forks: Sequence[tuple[int, int]]
    """Its history: each timeline before its own, and where it was left."""
    end: int
    """Of its log."""
    slot: Slot | None
    tables: str


def judge(
    ours: PostgresPosition | None, server: PostgresServer, adopt: bool = False
) -> Doubt | None:
    """None: nothing is missing between our position and what the server will send."""
    if ours is None:
        return Doubt("attached", "the source begins")
    if server.system != ours.system:
        if not adopt:
            raise BadConfig(
                f"this is another database cluster ({server.system}, and not {ours.system}): if it "
                "is meant, start once with --adopt; clients of the app then look at everything"
            )
        return Doubt("adopted", f"another database cluster was adopted: {server.system}")
    if server.timeline != ours.timeline and (doubt := _fork(ours, server)):
        return doubt
    if server.end < ours.lsn:
        return Doubt("fork", f"the server's log ends at {lsn_text(server.end)}, before {ours}")
    if server.slot is None:
        return Doubt("slot missing", "the replication slot is gone, and with it what followed")
    if server.tables not in (ours.tables, BROKEN):
        return Doubt(
            "tables changed",
            "a table could not be read, or was published otherwise, made anew, emptied or "
            "rewritten: changes of it may be missing",
        )
    if server.slot.lost:
        return Doubt("slot lost", f"the server has given the slot up: {server.slot.lost}")
    if server.slot.confirmed > ours.lsn:
        behind, ahead = lsn_text(ours.lsn), lsn_text(server.slot.confirmed)
        return Doubt("slot ahead", f"the slot begins at {ahead}, and we have read up to {behind}")
    return None


def _fork(ours: PostgresPosition, server: PostgresServer) -> Doubt | None:
    """A promoted standby goes on where its timeline was left, which may be before our position."""
    left_at = dict(server.forks).get(ours.timeline)
    if left_at is None:
        return Doubt(
            "fork", f"the server is on timeline {server.timeline}, which does not follow {ours}"
        )
    if left_at < ours.lsn:
        return Doubt(
            "fork", f"timeline {ours.timeline} was left at {lsn_text(left_at)}, before {ours}"
        )
    return None
