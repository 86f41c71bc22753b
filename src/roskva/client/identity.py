"""The file in which a client keeps who it is, between its runs.

It is replaced in one step and synced, so that a crash leaves the old identity or the new one. The
core recognises damage, and starts as a new client. One process at a time uses it: two with the same
identity would take each other's session away. The lock is a file beside it, because a lock on the
file itself would stay with the content that was replaced.
"""

import fcntl
import os
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from roskva.disk import RealDisk
from roskva.errors import Unavailable

_NEW = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
_MINE_ALONE = 0o600
"""The token in it is a secret."""


class IdentityFile:
    """Claimed when it is made, until `release`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = ThreadPoolExecutor(1, "roskva-identity")
        """Syncing a file takes its time; one thread keeps the order."""
        self._claim = os.open(_beside(path, ".lock"), _NEW, _MINE_ALONE)
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

    def save(self, identity: bytes | None) -> Future[None]:
        """None: forget it."""
        return self._thread.submit(self._save, identity)

    def release(self) -> None:
        """When what was saved is on the disk."""
        self._thread.shutdown()
        os.close(self._claim)

    def _save(self, identity: bytes | None) -> None:
        if identity is None:
            self._path.unlink(missing_ok=True)
        else:
            self._replace(identity)
        RealDisk().sync_directory(str(self._path.parent))

    def _replace(self, identity: bytes) -> None:
        temporary = _beside(self._path, ".tmp")
        with suppress(FileNotFoundError):
            temporary.unlink()
        with open(os.open(temporary, _NEW, _MINE_ALONE), "wb") as file:
            file.write(identity)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
