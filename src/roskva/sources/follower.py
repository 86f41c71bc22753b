"""Follows a database's log on a thread of its own: `reader.py` decides, and this carries it out.

Reading, asking what is visible, appending and confirming wait for each other anyway, so they are
done one after the other. What the event loop wants of the changes log it has done by `call`, in
between.

A database that cannot be reached is tried again, ever later. What will not pass by itself (another
database at the same address, a table without a key) is said, and tried again once in a while: it
may have been mended. A disk that fails ends the thread: what is durable is known after a start.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, Literal

from roskva.core.effects import Tick
from roskva.errors import BadConfig, RoskvaError, StorageUnavailable, Unavailable
from roskva.feed.commit import wall_clock_us
from roskva.sources.changes import ChangesLog
from roskva.sources.database import DatabaseLog
from roskva.sources.position import Doubt, Position
from roskva.sources.reader import (
    Alarm,
    AppendChanges,
    AppendDoubt,
    AskVisible,
    ChangesDurable,
    Confirm,
    DoubtRaised,
    Effect,
    Event,
    LogLost,
    LogOpened,
    SourceReader,
    Visible,
)

_log = logging.getLogger(__name__)
_READ_S: Final = 0.05
"""The longest that the event loop waits for what it has asked for."""
_LAG_EVERY_S: Final = 5.0
_TIDY_EVERY_S: Final = 1.0
_AGAIN_S: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_REFUSED_AGAIN_S: Final = 10.0

State = Literal["connecting", "reading", "refused"]


class Follower(threading.Thread):
    def __init__(
        self,
        database: DatabaseLog,
        changes: ChangesLog,
        *,
        next_ordinal: Callable[[], int],
        grown: Callable[[int], None],
        ended: Callable[[], None],
        adopt: bool = False,
    ) -> None:
        """`next_ordinal` is asked for at a doubt: above all that any shard knows. `grown` is told
        the last offset that is durable. All are called on this thread."""
        super().__init__(name="source", daemon=True)
        self._database, self._changes = database, changes
        self._next_ordinal, self._grown, self._ended = next_ordinal, grown, ended
        self._adopt = adopt
        self._reader = SourceReader()
        self._calls: deque[Callable[[], None]] = deque()
        self._stopping = threading.Event()
        self._reached: Position | None = None
        """To be confirmed, when it is durable."""
        self._got_on = False
        """Since it has connected."""
        self._look_at_lag = self._tidy_at = 0.0
        self.failed: Exception | None = None
        """Why the thread has ended by itself."""
        self.state: State = "connecting"
        self.why = ""
        self.changed = self.doubts = 0
        self.alarm = False
        """The database does not let others see a transaction; nothing is passed on."""
        self.lag_bytes: int | None = None
        self.current_at: float | None = None
        """When all was in our log that had been committed by then: wall-clock seconds."""
        self.complaints: Sequence[str] = ()
        """Tables that cannot be read for now, and why."""

    # For others.

    def call(self, function: Callable[[], None]) -> None:
        """On the thread, before long."""
        self._calls.append(function)

    def doubt(self, doubt: Doubt) -> None:
        """Changes were lost after they were read."""
        self.call(lambda: self._do(DoubtRaised(doubt)))

    def saw_generation(self, generation: int) -> None:
        """A shard has one of at least this."""
        self.call(lambda: self._compare(generation))

    def stop(self) -> None:
        self._stopping.set()

    # On the thread.

    def run(self) -> None:
        tries = 0
        try:
            while not self._stopping.is_set():
                try:
                    self._connect()
                    self._follow()
                except StorageUnavailable:
                    raise
                except (Unavailable, BadConfig) as error:
                    if self._got_on:
                        tries = 0
                    self._lost(error)
                    refused = isinstance(error, BadConfig)
                    pause_s = (
                        _REFUSED_AGAIN_S if refused else _AGAIN_S[min(tries, len(_AGAIN_S) - 1)]
                    )
                    self._wait(pause_s)
                    tries += 1
        except Exception as error:  # whatever it is, the process must not look as if it was told to
            self.failed = error
        finally:
            self._database.close()
            with suppress(RoskvaError):
                self._do_calls()
                self._changes.close(wall_clock_us())
            self._ended()

    def _connect(self) -> None:
        self._got_on = False
        opened = self._database.connect(self._changes.position, self._adopt)
        if (doubt := self._changes.own_doubt) is not None:
            opened = LogOpened(opened.position, doubt, opened.unseen)
        self._do(opened)
        self._adopt = False
        self._look_at_lag = 0.0
        if self.state != "reading":
            self.state, self.why = "reading", ""
            _log.info("reading after %s", self._changes.position)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._do_calls()
            now = time.monotonic()
            deadline = self._reader.next_deadline()
            patience_s = _READ_S if deadline is None else min(_READ_S, max(0.0, deadline - now))
            if self._reader.full:
                self._wait(patience_s)
            else:
                self._read(patience_s)
            if deadline is not None and time.monotonic() >= deadline:
                self._do(Tick())
            self._confirm()
            if now >= self._look_at_lag:
                self._look_at_lag = now + _LAG_EVERY_S
                self.lag_bytes = self._database.lag_bytes()
                self._hear_complaints()
            if now >= self._tidy_at:  # a slice, and the next one soon, while there is more
                more = self._changes.tidy(wall_clock_us())
                self._tidy_at = now if more else now + _TIDY_EVERY_S

    def _read(self, patience_s: float) -> None:
        found = self._database.read(patience_s)
        self._do(*found)
        if not (found or self._reader.waiting):
            self.current_at = time.time()

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while not self._stopping.is_set() and (left := until - time.monotonic()) > 0:
            self._do_calls()
            self._stopping.wait(min(left, _READ_S))

    def _lost(self, error: RoskvaError) -> None:
        self._database.close()
        self._reached = None
        self._do(LogLost())
        state: State = "refused" if isinstance(error, BadConfig) else "connecting"
        if (state, str(error)) != (self.state, self.why):
            _log.warning("%s", error)
        self.state, self.why = state, str(error)

    def _do_calls(self) -> None:
        for _ in range(len(self._calls)):
            self._calls.popleft()()

    def _do(self, *events: Event) -> None:
        """What has come together goes together: one question what is visible, and one sync."""
        while events:
            now = time.monotonic()
            effects = [effect for event in events for effect in self._reader.step(event, now)]
            answers = [self._carry_out(effect) for effect in effects]
            events = tuple(answer for answer in answers if answer is not None)

    def _carry_out(self, effect: Effect) -> Event | None:
        changes = self._changes
        match effect:
            case AskVisible(xids=xids):
                return Visible(self._database.visible(xids))
            case AppendChanges(parts=parts):
                changes.append(parts, wall_clock_us())
                self.changed += sum(len(part.changes) for part in parts)
                committed_at = parts[-1].changes[-1].at / 1e6 if parts[-1].changes else 0.0
                self.current_at = max(self.current_at or 0.0, committed_at) or None
            case AppendDoubt(doubt=doubt, position=position):
                self._append_doubt(doubt, position)
            case Confirm(position=position):
                self._reached, self._got_on = position, True
                return None
            case Alarm(on=on):
                self._sound(on)
                return None
        self._grown(changes.last)
        return ChangesDurable()

    def _append_doubt(self, doubt: Doubt, position: Position | None) -> None:
        """Without a position of ours, the next connection begins with a doubt."""
        position = position or self._changes.position
        if position is None:
            return
        ordinal = self._changes.next_ordinal(self._next_ordinal())
        self._changes.doubt(doubt, ordinal, position, wall_clock_us())
        self.doubts += 1
        _log.warning("%s: clients of the app are told to look at everything, once", doubt.sentence)

    def _compare(self, generation: int) -> None:
        if generation > self._changes.ordinal:
            sentence = "somebody else has reset the app: what was changed since was not told"
            self._do(DoubtRaised(Doubt("reset", sentence)))

    def _sound(self, on: bool) -> None:
        self.alarm = on
        if on:
            _log.error(
                "a transaction is committed, and nobody can see it: nothing is passed on until "
                "then. Is a synchronous standby away?"
            )
        else:
            _log.info("what was committed can be seen again")

    def _hear_complaints(self) -> None:
        complaints = tuple(self._database.complaints())
        if complaints != self.complaints:
            self.complaints = complaints
            for complaint in complaints:
                _log.error("changes are passed over until this is mended: %s", complaint)

    def _confirm(self) -> None:
        reached = self._reached
        if reached is not None and self._changes.reached(reached, wall_clock_us()):
            self._reached = None
            self._database.confirm(reached)
