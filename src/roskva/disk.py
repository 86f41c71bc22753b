"""The file layer: what the feed may ask of a disk, and the real one.

Two rules shape the interface. Nothing is ever truncated, because a reader may have the file mapped:
there is no call for it. And nothing is durable by itself: bytes need `File.sync`, names (created,
renamed, removed) need `sync_directory`.

Calls raise `OSError`, as the system does; `storage_errors` turns those that may pass into
`StorageUnavailable` where the feed meets its callers.

`roskva.simulation.disk` has one that breaks on request.
"""

import errno
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from roskva.errors import StorageUnavailable

Mapped = bytes | mmap.mmap

MINE_ALONE: Final = 0o600
"""The mode of every file that is made here: what is published may be secret, and so are keys."""

_MAY_PASS = {
    errno.EIO,
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EROFS,
}


@contextmanager
def storage_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in _MAY_PASS:
            raise
        raise StorageUnavailable(f"{doing}: {error.strerror or error}") from error


class File(Protocol):
    """A file open for writing."""

    def write_at(self, data: bytes, position: int) -> None:
        """All of it, or an error and any part of it."""

    def sync(self) -> None:
        """Make what was written durable. After an error nobody knows what was."""

    def lock(self) -> None:
        """Until it is closed or its process ends; BlockingIOError if another holds it."""

    def close(self) -> None: ...


class Disk(Protocol):
    def create(self, path: str) -> File:
        """A new empty file; FileExistsError if there is one."""

    def open(self, path: str) -> File: ...

    def read(self, path: str, position: int, size: int) -> bytes:
        """As many of these bytes as there are."""

    def map(self, path: str) -> Mapped:
        """The whole file as it is now, without copying it where the system can."""

    def size(self, path: str) -> int: ...

    def exists(self, path: str) -> bool: ...

    def list(self, directory: str) -> list[str]: ...

    def make_directory(self, path: str) -> None:
        """And its parents, as far as they do not exist; durable when it returns."""

    def rename(self, source: str, target: str) -> None:
        """Within one directory; replaces the target in one step."""

    def remove(self, path: str) -> None: ...

    def sync_directory(self, path: str) -> None: ...


def write_whole(disk: Disk, path: str, content: bytes) -> None:
    """Put a file in place in one step: a crash leaves this content, or what was there before."""
    temporary = path + ".tmp"
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    with closing(disk.create(temporary)) as file:
        file.write_at(content, 0)
        file.sync()
    disk.rename(temporary, path)
    disk.sync_directory(path.rpartition("/")[0])


def overwrite(disk: Disk, path: str, content: bytes, position: int) -> None:
    """Bytes of a file that is there, durably."""
    with closing(disk.open(path)) as file:
        file.write_at(content, position)
        file.sync()


def lock_file(path: Path, patience_s: float = 0.0) -> int:
    """An open file that nobody else has locked; the number of this process is in it, for people to
    read. `BlockingIOError` has the number of who holds it, once the patience is over."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, MINE_ALONE)
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError as error:
            if time.monotonic() >= give_up_at:
                owner = os.pread(fd, 20, 0).decode(errors="replace").strip() or "unknown"
                os.close(fd)
                raise BlockingIOError(error.errno, owner) from None
        time.sleep(0.05)
    os.ftruncate(fd, 0)
    os.pwrite(fd, b"%d\n" % os.getpid(), 0)
    return fd


class RealFile:
    __slots__ = ("_fd", "_synced")

    def __init__(self, fd: int, synced: Callable[[float], None]) -> None:
        self._fd = fd
        self._synced = synced

    def write_at(self, data: bytes, position: int) -> None:
        written = os.pwrite(self._fd, data, position)
        while written < len(data):  # a disk that is nearly full writes short before it refuses
            written += os.pwrite(self._fd, data[written:], position + written)

    def sync(self) -> None:
        began = time.perf_counter()
        _sync_data(self._fd)
        self._synced(time.perf_counter() - began)

    def lock(self) -> None:
        fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RealDisk:
    def __init__(self, synced: Callable[[float], None] = lambda seconds: None) -> None:
        """`synced` is told how long each sync of a file took."""
        self._synced = synced

    def create(self, path: str) -> RealFile:
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        return RealFile(os.open(path, flags, MINE_ALONE), self._synced)

    def open(self, path: str) -> RealFile:
        return RealFile(os.open(path, os.O_RDWR | os.O_CLOEXEC), self._synced)

    def read(self, path: str, position: int, size: int) -> bytes:
        with open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, position)

    def map(self, path: str) -> Mapped:
        with open(path, "rb", buffering=0) as file:
            fd = file.fileno()
            return mmap.mmap(fd, 0, prot=mmap.PROT_READ) if os.fstat(fd).st_size else b""

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)  # os.path.exists would call an I/O error "no"
        except FileNotFoundError:
            return False
        return True

    def list(self, directory: str) -> list[str]:
        return sorted(os.listdir(directory))

    def make_directory(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path)
        if parent:
            self.make_directory(parent)
        with suppress(FileExistsError):
            os.mkdir(path)
        self.sync_directory(parent)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _sync_data(fd: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync alone stops at the drive's own cache
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)
