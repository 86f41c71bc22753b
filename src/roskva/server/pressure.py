"""Whether this process has too much to do, or too little memory, to take on more.

Two measurements, both cheap: by how much a timer comes late, which is how long everything waits
that clients ask for; and the memory of this process and of the machine. What is measured once may
be an accident (a process that was stopped, a collection): it has to be so several times in a row,
and then better for longer, before anything changes.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from roskva.config import LimitsConfig

_log = logging.getLogger(__name__)

LOOK_S: Final = 0.1
BAD_IN_A_ROW: Final = 5
GOOD_IN_A_ROW: Final = 20
_BETTER: Final = 0.5
"""The lag that counts as good again, as a part of the one that counts as bad."""
_MEMORY_EVERY: Final = 10
"""Measurements of the lag for one of the memory."""
LEAST_FREE: Final = 0.03
"""Of the machine's memory; below it the system may end any process."""
_NEARLY: Final = 0.9
"""Of the memory that a container may have."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")


class Memory(NamedTuple):
    """In bytes; 0: not known."""

    used: int
    """By this process."""
    free: int
    """Of the machine's."""
    total: int


class Pressure:
    def __init__(self, limits: LimitsConfig, changed: Callable[[bool], None]) -> None:
        self.shedding = False
        self.longest_lag_s = 0.0
        self._max_lag_s = limits.max_lag_ms / 1000
        self._max_memory = limits.max_memory_bytes or container_limit()
        self._changed = changed
        self._short = False
        self._bad = 0
        self._good = 0
        self._turn = 0

    def late_by(self, lag_s: float) -> None:
        """The loop, as measured every so often."""
        self._turn += 1
        self.measured(lag_s, measured_memory() if self._turn % _MEMORY_EVERY == 0 else None)

    def measured(self, lag_s: float, memory: Memory | None = None) -> None:
        self.longest_lag_s = max(self.longest_lag_s, lag_s)
        if memory is not None:
            self._short = self._is_short(memory)
        if self._short or lag_s > self._max_lag_s:
            self._bad, self._good = self._bad + 1, 0
        elif lag_s <= self._max_lag_s * _BETTER:
            self._bad, self._good = 0, self._good + 1
        else:
            self._bad = self._good = 0
        if not self.shedding and self._bad >= BAD_IN_A_ROW:
            self._set(True, lag_s)
        elif self.shedding and self._good >= GOOD_IN_A_ROW:
            self._set(False, lag_s)

    def _is_short(self, memory: Memory) -> bool:
        over = self._max_memory is not None and memory.used > self._max_memory
        return over or memory.free < memory.total * LEAST_FREE

    def _set(self, shedding: bool, lag_s: float) -> None:
        self.shedding = shedding
        if shedding:
            why = "memory is short" if self._short else f"the loop is {1000 * lag_s:.0f} ms late"
            _log.warning("nobody else is let in, and nothing published: %s", why)
        else:
            _log.warning("clients are let in again")
        self._changed(shedding)


def measured_memory() -> Memory:
    try:
        used = int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:  # not on Linux
        return Memory(0, 0, 0)
    parted = (line.partition(":") for line in lines)
    found = {name: int(rest.split()[0]) << 10 for name, _, rest in parted}
    return Memory(used, found.get("MemAvailable", 0), found.get("MemTotal", 0))


def container_limit() -> int | None:
    """Of the group of processes that this one is in, a little less than it may have."""
    try:
        text = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    except OSError:
        return None
    return int(int(text) * _NEARLY) if text.isdigit() else None


async def measure_lag(tell: Callable[[float], None]) -> None:
    """Until cancelled: by how many seconds the loop is late."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LOOK_S
        await asyncio.sleep(LOOK_S)
        tell(max(0.0, loop.time() - due))
