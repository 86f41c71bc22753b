"""Versions that the shard assigns: the time in microseconds, and always above the last one.

A clock may stand an hour back after a restart, or on the node that takes over. So a limit is put on
disk ahead of what is assigned, and the next start begins above it.
"""

import asyncio
import time
from typing import Final

from roskva.store import rows as layout
from roskva.store.worker import StoreWorker

_AHEAD_US: Final = 60 * 10**6


class Assigning:
    def __init__(self, store: StoreWorker, limit: int) -> None:
        """`limit`: found on disk; everything assigned before was below it."""
        self._store = store
        self._last = limit
        self._limit = limit
        self._raising = asyncio.Lock()

    async def take(self, count: int) -> range:
        while max(time.time_ns() // 1000, self._last + 1) + count > self._limit:
            async with self._raising:
                await self._raise(count)
        first = max(time.time_ns() // 1000, self._last + 1)
        self._last = first + count - 1
        return range(first, first + count)

    async def _raise(self, count: int) -> None:
        needed = max(time.time_ns() // 1000, self._last + 1) + count
        if needed <= self._limit:
            return  # somebody else has raised it meanwhile
        limit = needed + _AHEAD_US
        await self._store.write([layout.put_assigned(limit)])
        self._limit = limit
