"""Versions that the shard assigns: the time in microseconds, and always above the last one.

A clock may stand an hour back after a restart, or on the node that takes over. So a limit is put on
disk ahead of what is assigned, and the next start begins above it.
"""

import asyncio
import time
from collections import deque
from functools import partial
from typing import Final

from roskva.answer import Answered
from roskva.errors import RoskvaError, Unavailable
from roskva.store import rows as layout
from roskva.store.worker import StoreWorker

_AHEAD_US: Final = 60 * 10**6


class Assigning:
    def __init__(self, store: StoreWorker, limit: int) -> None:
        """`limit`: found on disk; everything assigned before was below it."""
        self._store = store
        self._last = limit
        self._limit = limit
        self._waiting: deque[tuple[int, Answered[range]]] = deque()
        """For a higher limit."""

    def take(self, count: int, answered: Answered[range]) -> None:
        """So many versions: at once, unless the limit has to be raised first."""
        if not self._waiting and self._first() + count <= self._limit:
            answered(self._next(count))
            return
        self._waiting.append((count, answered))
        if len(self._waiting) == 1:
            self._raise()

    def _first(self) -> int:
        return max(time.time_ns() // 1000, self._last + 1)

    def _next(self, count: int) -> range:
        first = self._first()
        self._last = first + count - 1
        return range(first, first + count)

    def _raise(self) -> None:
        limit = self._first() + self._waiting[0][0] + _AHEAD_US
        try:
            written = self._store.write([layout.put_assigned(limit)])
        except RoskvaError as error:
            self._refuse(error)
        else:
            written.add_done_callback(partial(self._raised, limit))

    def _raised(self, limit: int, written: "asyncio.Future[None]") -> None:
        error = Unavailable("stopping") if written.cancelled() else written.exception()
        if error is not None:
            self._refuse(error if isinstance(error, RoskvaError) else Unavailable(str(error)))
            return
        self._limit = limit
        while self._waiting and self._first() + self._waiting[0][0] <= self._limit:
            count, answered = self._waiting.popleft()
            answered(self._next(count))
        if self._waiting:
            self._raise()

    def _refuse(self, error: RoskvaError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for _, answered in waiting:
            answered(error)
