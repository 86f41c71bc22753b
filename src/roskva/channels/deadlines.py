"""Connections that have to get on with something, all within the same time.

Who began first is late first, so they wait in a line, and one timer watches the head of it. To
begin and to be done in time costs two steps in a dictionary.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

C = TypeVar("C", bound=Hashable)

_COARSE: Final = 0.1
"""How much later than late it may be noticed, as a part of the time."""


class Deadlines(Generic[C]):
    def __init__(self, seconds: float, late: Callable[[C], None]) -> None:
        self._seconds = seconds
        self._late = late
        self._waiting: OrderedDict[C, float] = OrderedDict()
        self._timer: asyncio.TimerHandle | None = None

    def __contains__(self, conn: C) -> bool:
        return conn in self._waiting

    def begin(self, conn: C) -> None:
        loop = asyncio.get_running_loop()
        self._waiting[conn] = loop.time() + self._seconds
        self._waiting.move_to_end(conn)
        if self._timer is None:
            self._timer = loop.call_later(self._seconds, self._look)

    def done(self, conn: C) -> None:
        self._waiting.pop(conn, None)

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = None
        while self._waiting:
            conn, when = self._waiting.popitem(last=False)
            wait_s = when - loop.time()
            if wait_s > 0:
                self._waiting[conn] = when
                self._waiting.move_to_end(conn, last=False)
                self._timer = loop.call_later(max(wait_s, self._seconds * _COARSE), self._look)
                return
            self._late(conn)
