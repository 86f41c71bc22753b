"""A database in the simulation, whose log a source reads: as far as PostgreSQL is one.

Transactions commit, and are in the log from then on; others see them then, or later, while a
standby is away. Those that are rolled back are nowhere. There is a slot, which keeps the log from
where it was confirmed, and may be missing, given up, or made anew. A standby that is promoted goes
on in a history of its own, from a place that may be before what was read; and the former primary
may come back.

Each row of the table is an object, and each change of it has a stamp (`oracle.py`). Stamps are
counted in the order of the log; a row that another history has otherwise counts as changed by that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from roskva.errors import Unavailable
from roskva.model import Key
from roskva.simulation.oracle import Violation
from roskva.sources.change import NULL, Change
from roskva.sources.changes import Slice
from roskva.sources.position import Doubt, PostgresPosition, PostgresServer, Slot, judge
from roskva.sources.reader import Doubtful, LogIdle, LogOpened, Received

if TYPE_CHECKING:
    from roskva.simulation.world import World

TABLE: Final = "rows"
_SYSTEM: Final = "7"
_STEP: Final = 10
"""Of the log, that a transaction takes."""

ReadFromLog = Received | Doubtful | LogIdle


class SimulatedCommit(msgspec.Struct, frozen=True):
    xid: int
    end: int
    """What follows it in the log."""
    changed: list[dict[Key, int]]
    """Rows and their stamps, in the order in which it did that."""
    empties: bool = False
    """It begins with a TRUNCATE, which leaves no row: the first of `changed` is all of them."""


class ServerHistory:
    """What one server holds: its timeline, and all that was committed on the way there."""

    def __init__(
        self, timeline: int, forks: Sequence[tuple[int, int]], log: list[SimulatedCommit]
    ) -> None:
        self.timeline = timeline
        self.forks = list(forks)
        self.log = log
        self.end = log[-1].end if log else 0
        self.slot: Slot | None = None

    def rows(self) -> dict[Key, int]:
        found: dict[Key, int] = {}
        for commit in self.log:
            for changed in commit.changed:
                found |= changed
        return found


class Database:
    def __init__(self, world: World, objects: Sequence[Key]) -> None:
        self.world = world
        self.objects = objects
        self.history = ServerHistory(1, (), [])
        self.former: ServerHistory | None = None
        self.timelines = 1
        self.switches = 0
        self.xids = 0
        self.invisible: dict[int, SimulatedCommit] = {}
        """Committed, and seen by nobody."""
        self.seen: dict[Key, int] = {}
        """The stamp of each row, as others see it."""
        self.away_until = self.standby_away_until = 0.0
        self.breaks = 0
        """How often its connections were cut."""
        self.sent = self.next = 0
        """Up to where its log was given out over the connection, and which commit follows."""
        self.whole: set[int] = set()
        """Stamps of transactions of which a log of changes has the end."""
        self.known: set[int] = set()
        """Transactions that a changes log has as a whole, or that a doubt stands for."""

    # What applications do.

    def change(self, keys: Sequence[Key], *, empties: bool = False) -> None:
        """One transaction. Whoever holds the lock of a row holds it until the row can be seen."""
        world, dice = self.world, self.world.dice
        locked = {key for commit in self.invisible.values() for c in commit.changed for key in c}
        if world.clock.now < self.away_until or locked.intersection(keys):
            return
        if dice.random() < 0.1:
            world.seen("transaction rolled back")
            return
        self.xids += 1
        changed = [self._changed(keys)]
        while not empties and dice.random() < 0.2:  # the same rows, again
            changed.append(self._changed(dice.sample(list(keys), dice.randrange(1, 1 + len(keys)))))
        self.history.end += _STEP
        commit = SimulatedCommit(self.xids, self.history.end, changed, empties)
        self.history.log.append(commit)
        self.invisible[commit.xid] = commit
        late = max(self.standby_away_until - world.clock.now, 0.0)
        if late:
            world.seen("transaction seen late")
        world.clock.after(late + world.swarm.latency * dice.random(), lambda: self._show(commit))

    def _changed(self, keys: Sequence[Key]) -> dict[Key, int]:
        return {key: self.world.oracle.change(key, None) for key in keys}

    def _show(self, commit: SimulatedCommit) -> None:
        if self.invisible.pop(commit.xid, None) is not None:
            for changed in commit.changed:
                self.seen |= changed

    def idle(self) -> None:
        """Others write to the log."""
        self.history.end += _STEP

    # What befalls it.

    def switch(self, to: ServerHistory) -> None:
        """Whoever looks now, looks there. What others cannot see of it yet, they never will not."""
        for commit in list(self.invisible.values()):
            self._show(commit)
        before, now = self.history.rows(), to.rows()
        self.former, self.history = self.history, to
        self.switches += 1
        self.breaks += 1
        for key in self.objects:
            if before.get(key) != now.get(key):
                self.seen[key] = self.world.oracle.change(key, None)

    def promote(self, lost: int, keeps_slot: bool) -> None:
        """A standby, which has not heard of the last commits. From PostgreSQL 17 on it may have a
        copy of the slot, which is never ahead of it."""
        old = self.history
        log = old.log[: max(0, len(old.log) - lost)]
        left_at = log[-1].end if log else 0
        self.timelines += 1
        # It may have been so far behind that it never was on the last timeline.
        passed = [fork for fork in old.forks if fork[1] < left_at]
        later = [timeline for timeline, lsn in old.forks if lsn >= left_at]
        left = later[0] if later else old.timeline
        promoted = ServerHistory(self.timelines, [*passed, (left, left_at)], list(log))
        if keeps_slot and old.slot is not None:
            promoted.slot = Slot(min(old.slot.confirmed, left_at), old.slot.lost)
        self.switch(promoted)

    def go_back(self) -> None:
        """The former primary serves again, as it was left."""
        if self.former is not None:
            self.switch(self.former)

    # What a source asks of it: `sources/database.py`.

    def _check_there(self) -> None:
        if self.world.clock.now < self.away_until:
            raise Unavailable("the database is away")

    def connect(self, ours: PostgresPosition | None) -> LogOpened:
        self._check_there()
        history = self.history
        server = PostgresServer(
            _SYSTEM, history.timeline, history.forks, history.end, history.slot, ""
        )
        doubt = judge(ours, server)
        start = 0 if ours is None else ours.lsn
        if doubt is not None:
            history.slot, start = Slot(history.end), history.end
        if history.slot is None or history.slot.lost:
            raise Unavailable("there is no slot")
        # Asked for an older place, a slot begins where it was confirmed, without a word.
        self.sent = max(start, history.slot.confirmed)
        self.next = sum(commit.end <= self.sent for commit in history.log)
        position = PostgresPosition(_SYSTEM, history.timeline, start)
        return LogOpened(position, doubt, frozenset(self.invisible if doubt else ()))

    def read(self) -> Sequence[ReadFromLog]:
        self._check_there()
        history = self.history
        if history.slot is None or history.slot.lost:
            raise Unavailable("there is no slot")
        found: list[ReadFromLog] = []
        for commit in history.log[self.next :]:
            found += self._events(commit)
            self.sent = commit.end
            self.next += 1
        if self.sent < history.end:
            self.sent = history.end
            found.append(LogIdle(self._at(self.sent)))
        return found

    def _at(self, lsn: int) -> PostgresPosition:
        return PostgresPosition(_SYSTEM, self.history.timeline, lsn)

    def _events(self, commit: SimulatedCommit) -> list[ReadFromLog]:
        """Large transactions come in slices."""
        dice, found = self.world.dice, list[ReadFromLog]()
        changes = [
            _change(key, stamp) for changed in commit.changed for key, stamp in changed.items()
        ]
        if commit.empties:
            doubt = Doubt("truncated", "the table was emptied")
            found.append(Doubtful(doubt, self._at(self.sent), frozenset((commit.xid,))))
            changes = []
        while len(changes) > 1 and dice.random() < 0.3:
            count = dice.randrange(1, len(changes))
            found.append(self._slice(commit, changes[:count], None))
            changes = changes[count:]
        found.append(self._slice(commit, changes, self._at(commit.end)))
        return found

    def _slice(
        self, commit: SimulatedCommit, changes: list[Change], end: PostgresPosition | None
    ) -> Received:
        return Received(commit.xid, Slice(str(commit.xid), changes, end))

    def visible(self, xids: frozenset[int]) -> frozenset[int]:
        self._check_there()
        return xids - self.invisible.keys()

    def confirm(self, position: PostgresPosition) -> None:
        """What is before it is forgotten: it has to be durable elsewhere."""
        self._check_there()
        history, slot = self.history, self.history.slot
        if slot is None or position.timeline != history.timeline:
            return
        for commit in history.log:
            news = slot.confirmed < commit.end <= position.lsn and not commit.empties
            if news and commit.xid not in self.known:
                raise Violation(f"transaction {commit.xid} was confirmed, and is not durable")
        history.slot = Slot(max(slot.confirmed, position.lsn), slot.lost)

    def heal(self) -> None:
        self.away_until = self.standby_away_until = 0.0
        for commit in list(self.invisible.values()):
            self._show(commit)

    def logged(self, ends: set[int]) -> None:
        """These transactions are durable in a log of changes, to their end."""
        self.known |= ends
        for commit in self.history.log if ends else ():
            if commit.xid in ends:
                self.whole |= {stamp for changed in commit.changed for stamp in changed.values()}

    def begin_after(self, position: PostgresPosition) -> None:
        """A doubt is durable: it stands for all before it."""
        self.known |= {commit.xid for commit in self.history.log if commit.end <= position.lsn}


def _change(key: Key, stamp: int) -> Change:
    name = key.rpartition("/")[2]
    row = msgspec.Raw(b'{"stamp":%d}' % stamp)
    return Change(TABLE, "update", (name,), row, NULL, 0)


def stamp_of(row: msgspec.Raw) -> int:
    found: dict[str, int] = msgspec.json.decode(row)
    return found["stamp"]
