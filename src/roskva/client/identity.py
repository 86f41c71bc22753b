"""What a client keeps of itself between its runs: a few bytes, in a file or by the application.

They say who the client is, and nothing of what it was told or has acked: that stands in its row at
the server. So they may be written late: whoever crashes before is in its next run the client that
it was earlier, or a new one, and claims no ack that its application has not given. They must never
outlive the cache that they stand for.

The file is replaced in one step and synced, so that a crash leaves the old identity or the new one.
The core recognises damage, and starts as a new client. One process at a time uses it: two with the
same identity would take each other's session away. The lock is a file beside it, because a lock on
the file itself would stay with the content that was replaced.
"""

import asyncio
import fcntl
import os
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from roskva.client.callables import call
from roskva.core.backoff import Backoff, Dice
from roskva.disk import MINE_ALONE, RealDisk, write_whole
from roskva.errors import Unavailable

ReadState = Callable[[], Awaitable[bytes | None] | bytes | None]
"""What was written last, or None. Whatever it raises, entering the client raises."""
WriteState = Callable[[bytes | None], object]
"""Keep this in place of what was written before (None: forget it), and return when it would survive
a crash."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_LAST_WRITE_S: Final = 5.0
"""For what is being written when the client is left."""


class IdentityKeeper:
    """Writes what was saved last: one write at a time, again and again until one succeeds."""

    def __init__(
        self, write: WriteState, troubled: Callable[[Exception], None], retries: Backoff, dice: Dice
    ) -> None:
        self._write = write
        self._troubled = troubled
        self._retries = retries
        self._dice = dice
        self._newest: bytes | None = None
        self._saved = asyncio.Event()
        """There is something newer than what was written."""
        self._closed = False
        self._limit: asyncio.Timeout | None = None
        self.writing = False
        """Also at the end, if that was not to be waited for."""

    def save(self, state: bytes | None) -> None:
        self._newest = state
        self._saved.set()

    def close(self) -> None:
        """What was saved is written first, if that does not take too long or fails."""
        self._closed = True
        if self._limit is not None:
            seconds = _LAST_WRITE_S if self._saved.is_set() or self.writing else 0
            self._limit.reschedule(asyncio.get_running_loop().time() + seconds)

    async def run(self) -> None:
        """Until it is closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WRITE_S if self._closed else None) as self._limit:
                while not self._closed or self._saved.is_set():
                    await self._saved.wait()
                    self._saved.clear()
                    await self._write_newest()

    async def _write_newest(self) -> None:
        self.writing = True
        try:
            await call(self._write, self._newest)
        except Exception as error:  # of the application, or of the disk
            self.writing = False
            self._troubled(error)
            if not self._closed:
                with suppress(TimeoutError):  # something newer is written at once
                    async with asyncio.timeout(self._retries.next_delay(self._dice)):
                        await self._saved.wait()
                self._saved.set()
        else:
            self.writing = False
            self._retries.reset()


class IdentityFile:
    """Claimed when it is made, until `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = threading.Lock()
        self._released = False
        self._claim = os.open(f"{path}.lock", _NEW, MINE_ALONE)
        try:
            fcntl.flock(self._claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._claim)
            raise Unavailable(f"another client uses the identity in {path}") from None

    def read(self) -> bytes | None:
        try:
            return self._path.read_bytes()
        except FileNotFoundError:
            return None

    def write(self, identity: bytes | None) -> None:
        """None: forget it. A thread that comes to it after the release leaves it alone."""
        disk = RealDisk()
        with self._writing:
            if self._released:
                return
            if identity is None:
                self._path.unlink(missing_ok=True)
                disk.sync_directory(str(self._path.parent))
            else:
                write_whole(disk, str(self._path), identity)

    def release(self) -> None:
        """At once; or when a thread that is still writing it is done, however long a disk takes."""
        if self._writing.locked():
            threading.Thread(target=self._release, name="identity", daemon=True).start()
        else:
            self._release()

    def _release(self) -> None:
        with self._writing:
            self._released = True
            os.close(self._claim)
