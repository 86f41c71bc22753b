"""How much of the disk that a data directory is on is left, and what is refused when it is little.

A full disk stops publishers, registrations and acks alike, and the store has to be opened anew. So
publishers are stopped before: below a floor nothing is published, and what is left is for clients
that come, register and ack, and for the log of the store. They are let in again as soon as there is
somewhat more than the floor, so that a node does not waver.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from roskva.errors import StorageUnavailable

_log = logging.getLogger(__name__)
_LOOK_S: Final = 1.0
_MOST_FLOOR_BYTES: Final = 1 << 30
_FLOOR_PARTS: Final = 20
_MIB: Final = 1 << 20
_BETTER_BYTES: Final = 64 * _MIB
"""Above the floor it is well again, or at a tenth of it."""


class FreeSpace(NamedTuple):
    """In bytes."""

    free: int
    """For us."""
    total: int


def look_at(path: Path) -> FreeSpace:
    found = os.statvfs(path)
    return FreeSpace(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)


class DiskSpace:
    def __init__(
        self, path: Path, floor_bytes: int | None, look: Callable[[Path], FreeSpace] = look_at
    ) -> None:
        self._path = path
        self._floor = floor_bytes
        self._look = look
        self.refuses = False
        self.look()

    @property
    def floor(self) -> int:
        if self._floor is not None:
            return self._floor
        return min(_MOST_FLOOR_BYTES, self.disk.total // _FLOOR_PARTS)

    def look(self) -> None:
        self.disk = self._look(self._path)
        free, floor = self.disk.free, self.floor
        well_at = floor + min(floor // 10, _BETTER_BYTES) if self.refuses else floor
        refuses = free < well_at
        if refuses != self.refuses:
            self.refuses = refuses
            if refuses:
                text = "nothing is published: the disk of %s has %d MiB free, and %d are kept free"
                _log.warning(text, self._path, free // _MIB, floor // _MIB)
            else:
                _log.warning("the disk has %d MiB free: publishing goes on", free // _MIB)

    def check(self) -> None:
        """What is refused, is refused with this."""
        if self.refuses:
            raise StorageUnavailable("the node's disk is almost full: publish again later")

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            with suppress(OSError):  # what fails on such a disk says so itself
                self.look()
