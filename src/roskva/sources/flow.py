"""Carries out the direct flow (`direct.py`) on the event loop: links, the changes log, a timer.

The log is read on a thread, as far as it is durable; from far behind only the last word on each row
of a great many changes. The marker is written once a second: what is
published again after a crash has the same versions, so nobody is told twice.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from roskva.core.effects import SendLink, Tick
from roskva.errors import RoskvaError
from roskva.feed.base import Marker, Missing
from roskva.feed.latest import Latest, read_latest
from roskva.feed.reader import LogReader
from roskva.links.shard_link import LinkEnd
from roskva.sources.direct import (
    DirectFlow,
    Event,
    MoveMarker,
    RaiseDoubt,
    ReadLog,
    Records,
    SawGeneration,
)
from roskva.sources.position import Doubt

_log = logging.getLogger(__name__)
NAME: Final = "direct"
"""Of its marker."""
_MARKER_EVERY_S: Final = 1.0


class FlowExecutor:
    def __init__(
        self,
        machine: DirectFlow,
        reader: LogReader,
        *,
        set_marker: Callable[[int], None],
        doubt: Callable[[Doubt], None],
        saw_generation: Callable[[int], None],
    ) -> None:
        """`doubt` and `saw_generation`: for whoever writes the log (`direct.py`)."""
        self.machine = machine
        self.links: Mapping[int, LinkEnd] = {}
        self._reader = reader
        self._set_marker, self._doubt, self._saw_generation = set_marker, doubt, saw_generation
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "flow")
        self._events: deque[Event] = deque()
        self._stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._durable = 0
        self._asked: int | None = None
        """After which offset it wants more."""
        self._marked = machine.marker
        self._ended = False

    def grown(self, last: int) -> None:
        """The log is durable up to here."""
        self._durable = last
        self._read()

    def step(self, event: Event) -> None:
        self._events.append(event)
        if self._stepping:
            return
        self._stepping = True
        try:
            while self._events:
                for effect in self.machine.step(self._events.popleft(), time.monotonic()):
                    match effect:
                        case SendLink(link=int() as shard, message=message):
                            self.links[shard].send(message)
                        case ReadLog(after=after):
                            self._asked = after
                            self._read()
                        case MoveMarker():
                            pass  # `run` looks where it is
                        case RaiseDoubt(doubt=doubt):
                            self._doubt(doubt)
                        case SawGeneration(generation=generation):
                            self._saw_generation(generation)
        finally:
            self._stepping = False
        self._set_timer()

    async def run(self) -> None:
        """Until cancelled."""
        try:
            self.step(Tick())
            while True:
                await asyncio.sleep(_MARKER_EVERY_S)
                self._mark()
        finally:
            self._mark()
            self._ended = True
            self._thread.shutdown()

    def _mark(self) -> None:
        if self.machine.marker != self._marked:
            self._marked = self.machine.marker
            self._set_marker(self._marked)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline = self.machine.next_deadline()
        if deadline < float("inf"):
            delay = max(0.0, deadline - time.monotonic())
            self._timer = self._loop.call_later(delay, self.step, Tick())

    def _read(self) -> None:
        if self._ended or self._asked is None or self._durable <= self._asked:
            return
        after, self._asked = self._asked, None
        done = self._loop.run_in_executor(self._thread, self._look, after, self._durable)
        done.add_done_callback(lambda found: self._have_read(after, found))

    def _look(self, after: int, end: int) -> Records | Missing | None:
        only = not self.machine.publishes
        marker = Marker(self._reader.lineage, after)
        read = read_latest(self._reader, marker, end, resets_only=only)
        if isinstance(read, Latest):
            return Records(read.entries, read.last, read.superseded)
        return read if isinstance(read, Missing) else None

    def _have_read(self, after: int, found: "asyncio.Future[Records | Missing | None]") -> None:
        error = found.exception()
        if isinstance(error, RoskvaError):
            _log.warning("reading the log of changes: %s", error)
        elif error is not None:
            raise error
        records = None if error is not None else found.result()
        if records is None:
            self._asked = after
            self._loop.call_later(_MARKER_EVERY_S, self._read)
        else:
            self.step(records)
