"""Group commit: many publishers on an event loop, one thread, one sync for all who wait.

The thread takes whoever is waiting, appends, commits and answers. While it syncs, the next group
gathers by itself. When it is idle, a publish is committed at once. Under load (the last group had
more than one publisher) it gives the others up to `max_wait_s` to join, but goes as soon as there
are as many as last time: a publisher that waits for its answer before it publishes again would
otherwise be split from the rest for ever.

Between groups the thread tidies, a slice at a time.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TypeVar

from roskva.errors import Overloaded, Unavailable
from roskva.feed.base import Committed, Marker
from roskva.feed.log import MAX_GROUP_ROWS, Log
from roskva.metrics import Times
from roskva.model import Update

T = TypeVar("T")
_log = logging.getLogger(__name__)


def wall_clock_us() -> int:
    return time.time_ns() // 1000


class _Publish:
    __slots__ = ("answer", "first", "updates")

    def __init__(self, updates: Sequence[Update], answer: "asyncio.Future[int]") -> None:
        self.updates = updates
        self.answer = answer
        self.first = 0


_Work = _Publish | Callable[[], None]


class GroupCommit:
    """The asynchronous side of a Log, which it owns from now on.

    `on_commit` is called on the event loop, once per group and in the order of the offsets, before
    the publishers of the group are answered.
    """

    def __init__(
        self,
        log: Log,
        *,
        on_commit: Callable[[Committed], None] = lambda committed: None,
        max_wait_s: float = 0.002,
        tidy_every_s: float = 1.0,
        clock_us: Callable[[], int] = wall_clock_us,
    ) -> None:
        self._log = log
        self._on_commit = on_commit
        self._max_wait_s = max_wait_s
        self._tidy_every_s = tidy_every_s
        self._clock_us = clock_us
        self._loop = asyncio.get_running_loop()
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._closing = False
        self._waiting_rows = 0
        self._last_group = 0
        self._tidy_at = time.monotonic() + tidy_every_s
        self.times = Times()
        """Of appending a group, until it is durable."""
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="roskva-feed", daemon=True)
        self._thread.start()

    async def publish(self, updates: Sequence[Update]) -> int:
        """The offset of the first of them, once they are durable."""
        if self._closing:
            raise Unavailable("the feed is closed")
        if self._waiting_rows + len(updates) > MAX_GROUP_ROWS:
            raise Overloaded("too many updates wait for the disk")
        self._waiting_rows += len(updates)
        answer: asyncio.Future[int] = self._loop.create_future()
        self._work.put(_Publish(updates, answer))
        return await answer

    async def set_marker(self, name: str, marker: Marker) -> None:
        if self._closing:
            raise Unavailable("the feed is closed")
        answer: asyncio.Future[None] = self._loop.create_future()
        self._work.put(lambda: self._set_marker(name, marker, answer))
        await answer

    async def close(self) -> None:
        """Commits what was published before, then closes the log."""
        if not self._closing:
            self._closing = True
            self._work.put(None)
        await asyncio.shield(self._closed)
        self._thread.join()

    # On the event loop, called by the thread.

    def _answer(self, group: list[_Publish], outcome: Committed | Exception | None) -> None:
        self._waiting_rows -= sum(len(publish.updates) for publish in group)
        try:
            if isinstance(outcome, Committed):
                self._on_commit(outcome)
        finally:
            error = outcome if isinstance(outcome, Exception) else None
            for publish in group:
                _settle(publish.answer, publish.first, error)

    # On the thread.

    def _run(self) -> None:
        open_for_work = True
        while open_for_work:
            group, open_for_work = self._next_group()
            if group:
                self._commit(group)
            if time.monotonic() >= self._tidy_at:
                self._tidy()
        try:
            self._log.close()
        finally:
            self._call(_settle, self._closed, None, None)

    def _next_group(self) -> tuple[list[_Publish], bool]:
        """Whoever is waiting; and whether there can be more."""
        group: list[_Publish] = []
        timeout = max(0.0, self._tidy_at - time.monotonic())
        while True:
            try:
                work = self._work.get(timeout=timeout) if timeout else self._work.get_nowait()
            except Empty:
                self._last_group = len(group)
                return group, True
            if work is None:
                return group, False
            if not isinstance(work, _Publish):
                work()
                continue
            if not group:
                deadline = time.monotonic() + self._max_wait_s
            group.append(work)
            timeout = 0.0
            if self._last_group > max(1, len(group)):
                timeout = max(0.0, deadline - time.monotonic())

    def _commit(self, group: list[_Publish]) -> None:
        outcome: Committed | Exception | None
        began = time.perf_counter()
        try:
            for publish in group:
                publish.first = self._log.append(publish.updates)
            outcome = self._log.commit(self._clock_us())
        except Exception as error:  # whatever it is, publishers must not wait for ever
            outcome = error
        self.times.observe(time.perf_counter() - began)
        self._call(self._answer, group, outcome)

    def _set_marker(self, name: str, marker: Marker, answer: "asyncio.Future[None]") -> None:
        try:
            self._log.set_marker(name, marker)
        except Exception as error:
            self._call(_settle, answer, None, error)
        else:
            self._call(_settle, answer, None, None)

    def _tidy(self) -> None:
        more = False
        try:
            more = self._log.tidy(self._clock_us())
        except Exception as error:  # whatever it is, publishing goes on
            _log.warning("tidying the feed: %s", error)
        self._tidy_at = time.monotonic() + (0 if more else self._tidy_every_s)

    def _call(self, function: Callable[..., None], *arguments: object) -> None:
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waits
            self._loop.call_soon_threadsafe(function, *arguments)


def _settle(answer: "asyncio.Future[T]", result: T, error: Exception | None) -> None:
    if answer.done():  # whoever waited for it has given up
        return
    if error is None:
        answer.set_result(result)
    else:
        answer.set_exception(error)
