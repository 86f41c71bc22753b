"""The duties of whoever reads a database's log, in their order. A machine: no I/O, no clock.

    received → visible → durable in the changes log → confirmed to the database

**Visible before told.** An event may come before its commit can be seen: whoever was told would
look, and find the old row. So what was received waits until a reader of the database sees its
transaction. Waiting for ever is an alarm, and never a reason to go on. A doubt waits, too: for what
was committed before the place where reading begins, and is never told after it.

**Durable before confirmed.** What the database has been told that we have, it forgets. So only what
a sync has covered is confirmed. Killed in between, we are sent it again, and append it again: the
same rows under higher versions.

**Doubts.** Where the server cannot vouch for what lies between our position and what it sends, or a
table was emptied, a doubt is appended first, under a higher ordinal. Whoever reads the log resets
the app when it comes to that record (direct.py), so a crash in between costs nothing. A doubt that
a reader of our log has raised goes first, and stays until it is appended: the database does not
tell us of it again.

One thing is under way at a time: a question what is visible, or an append. What arrives meanwhile
waits, and goes together. Beyond `MAX_WAITING` changes nothing more is to be read.

**Its executor** answers every `AskVisible` with `Visible`, and every `AppendChanges` and
`AppendDoubt` with `ChangesDurable`, if it lives. After `LogLost` it answers nothing of before but
an append, and connects again only when that is answered: what is in the log says where to go on.
"""

from collections import deque
from collections.abc import Collection, Sequence
from itertools import islice
from typing import Final

import msgspec

from roskva.core.effects import Tick
from roskva.sources.changes import Slice
from roskva.sources.position import Doubt, Position

MAX_WAITING: Final = 50_000
"""Changes in memory."""
MAX_WAITING_BYTES: Final = 64 << 20
"""The same in bytes, for large rows."""
MAX_TOGETHER: Final = 10_000
"""Changes of one append."""
MAX_TOGETHER_BYTES: Final = 16 << 20
_MOST_ASKED_AGAIN: Final = 1_000
"""Transactions, while none can be seen: the first of them are waited for."""
_ASK_AGAIN_S: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
ALARM_S: Final = 10.0
"""A transaction that nobody can see for so long: a standby is away, or something is wrong."""


# What happens.


class LogOpened(msgspec.Struct, frozen=True):
    """Everything after `position` will come. `doubt`: what is before it may not all have come.
    `unseen`: transactions before it, perhaps, that nobody could see when reading began."""

    position: Position
    doubt: Doubt | None = None
    unseen: frozenset[int] = frozenset()


class Received(msgspec.Struct, frozen=True, gc=False):
    """`xid`: by which it can be asked whether its transaction is visible."""

    xid: int
    part: Slice
    size: int = 0
    """Bytes of it in the database's log, about."""


class Doubtful(msgspec.Struct, frozen=True):
    """Changes are missing here. `xids`: transactions that it stands for and that may not be visible
    yet, as the one that has emptied a table. What follows comes after `position`."""

    doubt: Doubt
    position: Position
    xids: frozenset[int] = frozenset()


class DoubtRaised(msgspec.Struct, frozen=True):
    """Changes were lost after they were appended."""

    doubt: Doubt


class LogIdle(msgspec.Struct, frozen=True):
    """The database's log goes on to here, with nothing of ours in between."""

    position: Position


class Visible(msgspec.Struct, frozen=True):
    """Which of those that were asked about can be seen."""

    xids: frozenset[int]


class ChangesDurable(msgspec.Struct, frozen=True):
    """What was asked for last is durable."""


class LogLost(msgspec.Struct, frozen=True):
    """What was not appended comes again, after the next `LogOpened`."""


Waiting = Received | Doubtful | LogIdle
Event = LogOpened | Waiting | DoubtRaised | Visible | ChangesDurable | LogLost | Tick


# What is to be done.


class AskVisible(msgspec.Struct, frozen=True):
    xids: frozenset[int]


class AppendChanges(msgspec.Struct, frozen=True):
    parts: Sequence[Slice]


class AppendDoubt(msgspec.Struct, frozen=True):
    """Under a higher ordinal. Without a position: where the log is."""

    doubt: Doubt
    position: Position | None


class Confirm(msgspec.Struct, frozen=True):
    """Keep it, then tell the database that it may forget what is before."""

    position: Position


class Alarm(msgspec.Struct, frozen=True):
    """A transaction has been waiting to be visible for too long; or is not any more."""

    on: bool


Effect = AskVisible | AppendChanges | AppendDoubt | Confirm | Alarm


class SourceReader:
    def __init__(self) -> None:
        self.waiting: deque[Waiting] = deque()
        self.changes = 0
        """That wait."""
        self.bytes = 0
        """Theirs."""
        self.raised: Doubt | None = None
        self.visible: set[int] = set()
        """Transactions that were seen, and of which something waits."""
        self.asking = False
        self.ask_at: float | None = None
        self.tries = 0
        self.waits_since = 0.0
        """For its first transaction to be visible."""
        self.alarm = False
        self.appending = False
        self.reaches: Position | None = None
        """Up to where the changes log has everything when what is being appended is durable."""

    @property
    def full(self) -> bool:
        """Nothing more is to be read for now."""
        return self.changes >= MAX_WAITING or self.bytes >= MAX_WAITING_BYTES

    def next_deadline(self) -> float | None:
        return self.ask_at

    def step(self, event: Event, now: float) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case LogOpened(position=position, doubt=doubt, unseen=unseen):
                if doubt is not None:
                    self.waiting.append(Doubtful(doubt, position, unseen))
            case Received() | Doubtful() | LogIdle():
                self._wait(event)
            case DoubtRaised(doubt=doubt):
                self.raised = self.raised or doubt
            case Visible(xids=xids):
                self.asking = False
                self._see(xids, now, effects)
            case ChangesDurable():
                self.appending = False
                if self.reaches is not None:
                    effects.append(Confirm(self.reaches))
                    self.reaches = None
            case LogLost():
                self._forget()
                self._set_alarm(False, effects)
        if not (self.appending or self.asking):
            self._go_on(now, effects)
        return effects

    def _wait(self, event: Waiting) -> None:
        if type(event) is Received:
            self.changes += len(event.part.changes)
            self.bytes += event.size
        elif type(event) is LogIdle and self.waiting and type(self.waiting[-1]) is LogIdle:
            self.waiting.pop()  # the later one says all
        self.waiting.append(event)

    def _see(self, xids: frozenset[int], now: float, effects: list[Effect]) -> None:
        self.visible |= xids
        if not self._unseen(self.waiting[0]):
            self.tries = 0
            self._set_alarm(False, effects)
            return
        if not self.tries:
            self.waits_since = now
        self.ask_at = now + _ASK_AGAIN_S[min(self.tries, len(_ASK_AGAIN_S) - 1)]
        self.tries += 1
        if now >= self.waits_since + ALARM_S:
            self._set_alarm(True, effects)

    def _set_alarm(self, on: bool, effects: list[Effect]) -> None:
        if on != self.alarm:
            self.alarm = on
            effects.append(Alarm(on))

    def _go_on(self, now: float, effects: list[Effect]) -> None:
        if self.raised is not None:
            self.appending = True
            effects.append(AppendDoubt(self.raised, None))
            self.raised = None
            return
        while self.waiting:
            head = self.waiting[0]
            if isinstance(head, LogIdle):
                self.waiting.popleft()
                effects.append(Confirm(head.position))
                continue
            if self._unseen(head):
                self._ask(now, effects)
            elif type(head) is Doubtful:
                self._append_doubt(head, effects)
            else:
                self._append(effects)
            return

    def _ask(self, now: float, effects: list[Effect]) -> None:
        if self.ask_at is not None and now < self.ask_at:
            return
        asked = islice(self.waiting, _MOST_ASKED_AGAIN if self.tries else None)
        self.asking, self.ask_at = True, None
        effects.append(AskVisible(frozenset().union(*map(self._unseen, asked))))

    def _unseen(self, item: Waiting) -> Collection[int]:
        """Its transactions of which nobody has said yet that they are visible."""
        if type(item) is Received:
            return () if item.xid in self.visible else (item.xid,)
        return item.xids - self.visible if type(item) is Doubtful else ()

    def _append_doubt(self, head: Doubtful, effects: list[Effect]) -> None:
        self.waiting.popleft()
        self.visible -= head.xids
        self.appending, self.reaches = True, head.position
        effects.append(AppendDoubt(head.doubt, head.position))

    def _append(self, effects: list[Effect]) -> None:
        parts: list[Slice] = []
        count = size = 0
        while self.waiting and count < MAX_TOGETHER and size < MAX_TOGETHER_BYTES:
            head = self.waiting[0]
            if type(head) is not Received or head.xid not in self.visible:
                break
            self.waiting.popleft()
            parts.append(head.part)
            count += len(head.part.changes)
            size += head.size
            if head.part.end is not None:
                self.visible.discard(head.xid)
                self.reaches = head.part.end
        self.changes -= count
        self.bytes -= size
        self.appending = True
        effects.append(AppendChanges(parts))

    def _forget(self) -> None:
        """What is being appended is not lost."""
        self.waiting.clear()
        self.visible.clear()
        self.changes = self.bytes = 0
        self.asking, self.ask_at, self.tries = False, None, 0
