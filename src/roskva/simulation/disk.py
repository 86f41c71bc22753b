"""A disk in memory that loses, tears, flips, fills up and fails, exactly when it is told to.

It keeps two pictures of everything, as running programs see it and as it would be found after a
power cut, and a list of the changes between the two. It is plain, single-threaded and draws no
random numbers: whoever tests with it decides what happens, so that every crash can be enumerated
and repeated, in virtual time.
"""

import errno
import os
from dataclasses import dataclass
from typing import Literal, TypeVar

Fate = Literal["lost", "torn", "zeroed", "kept", "reordered"]
"""What a power cut does to the changes since the last sync. lost: none of them survives. torn: all
but the second half of the last. zeroed: the same, and where the file had grown there are zeros.
kept: all. reordered: only the last. (Names are never halved: torn and zeroed lose the last one.)"""

Operation = Literal["create", "open", "write", "sync", "rename", "remove", "sync_directory"]


class PowerCut(BaseException):
    """The machine is gone. No code under test may survive this, so it is no Exception."""


class _Inode:
    __slots__ = ("data", "durable", "locked", "pending")

    def __init__(self, durable: bytes = b"") -> None:
        self.data = bytearray(durable)
        self.durable = bytearray(durable)
        self.pending: list[tuple[int, bytes]] = []
        self.locked = False

    def settle(self, fate: Fate) -> None:
        for position, data in _survivors(self.pending, fate):
            _put(self.durable, data, position)
        if fate in ("torn", "zeroed") and self.pending:
            position, data = self.pending[-1]
            _put(self.durable, data[: len(data) // 2], position)
            if fate == "zeroed":
                self.durable.extend(bytes(max(0, position + len(data) - len(self.durable))))
        self.data = bytearray(self.durable)
        self.pending.clear()
        self.locked = False


@dataclass
class _Fault:
    error: int
    left: int | None
    passes: int


class SimulatedDisk:
    """In memory. Steps are counted so that a test can cut the power before each of them in turn."""

    def __init__(self) -> None:
        self.steps = 0
        self.cut_before_step: int | None = None
        self.capacity: int | None = None
        """Bytes in all files; a write that exceeds it stores what fits and fails with ENOSPC."""
        self.max_open: int | None = None
        self.boot = 0
        self.open_files = 0
        self._files: dict[str, _Inode] = {}
        self._durable_files: dict[str, _Inode] = {}
        self._directories = {""}
        self._name_changes: list[tuple[str, dict[str, _Inode | None]]] = []
        self._faults: dict[Operation, _Fault] = {}

    # What tests do to it.

    def fail(self, operation: Operation, error: int, times: int | None = 1, after: int = 0) -> None:
        """`after` calls pass, the next ones fail; `times=None`: all of them, until `heal`."""
        self._faults[operation] = _Fault(error, times, after)

    def heal(self) -> None:
        self._faults.clear()
        self.capacity = self.max_open = None

    def flip(self, path: str, bit: int) -> None:
        inode = self._inode(path)
        inode.data[bit // 8] ^= 1 << bit % 8
        inode.durable[bit // 8] ^= 1 << bit % 8

    def copy(self) -> "SimulatedDisk":
        """Another disk with the same durable files."""
        twin = SimulatedDisk()
        twin._directories = set(self._directories)
        for path, inode in self._durable_files.items():
            twin._files[path] = twin._durable_files[path] = _Inode(bytes(inode.durable))
        return twin

    def crash(self, data: Fate = "lost", names: Fate = "lost") -> None:
        """Cut the power and start again: open files and locks are gone, and what was not synced
        meets its fate, bytes and names separately (a rename may outlive what it named)."""
        for change in _survivors([change for _, change in self._name_changes], names):
            _rename_all(self._durable_files, change)
        self._files = dict(self._durable_files)
        self._name_changes.clear()
        for inode in {id(inode): inode for inode in self._files.values()}.values():
            inode.settle(data)
        self.boot += 1
        self.open_files = 0
        self.cut_before_step = None

    # What the feed does with it.

    def create(self, path: str) -> "SimulatedFile":
        self._step("create")
        if path in self._files:
            raise FileExistsError(errno.EEXIST, "file exists", path)
        if _parent(path) not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        file = SimulatedFile(self, _Inode())
        self._change_names(path, {path: file.inode})
        return file

    def open(self, path: str) -> "SimulatedFile":
        self._check("open")
        return SimulatedFile(self, self._inode(path))

    def read(self, path: str, position: int, size: int) -> bytes:
        return bytes(self._inode(path).data[position : position + size])

    def map(self, path: str) -> bytes:
        return bytes(self._inode(path).data)

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._directories

    def list(self, directory: str) -> list[str]:
        if directory not in self._directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", directory)
        return sorted(
            path.rpartition("/")[2]
            for path in (*self._files, *self._directories)
            if path and _parent(path) == directory
        )

    def make_directory(self, path: str) -> None:
        while path:
            self._directories.add(path)
            path = _parent(path)

    def rename(self, source: str, target: str) -> None:
        self._step("rename")
        self._change_names(source, {source: None, target: self._inode(source)})

    def remove(self, path: str) -> None:
        self._inode(path)
        self._step("remove")
        self._change_names(path, {path: None})

    def sync_directory(self, path: str) -> None:
        self._step("sync_directory")
        for directory, change in self._name_changes:
            if directory == path:
                _rename_all(self._durable_files, change)
        self._name_changes = [entry for entry in self._name_changes if entry[0] != path]

    def used(self) -> int:
        return sum(len(inode.data) for inode in self._files.values())

    def _inode(self, path: str) -> _Inode:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, "no such file", path) from None

    def _change_names(self, path: str, change: dict[str, _Inode | None]) -> None:
        _rename_all(self._files, change)
        self._name_changes.append((_parent(path), change))

    def _step(self, operation: Operation) -> None:
        if self.steps == self.cut_before_step:
            raise PowerCut
        self.steps += 1
        self._check(operation)

    def _check(self, operation: Operation) -> None:
        full = self.max_open is not None and self.open_files >= self.max_open
        if full and operation in ("create", "open"):
            raise OSError(errno.EMFILE, "too many open files")
        fault = self._faults.get(operation)
        if fault is None or fault.left == 0:
            return
        if fault.passes:
            fault.passes -= 1
            return
        if fault.left is not None:
            fault.left -= 1
        raise OSError(fault.error, os.strerror(fault.error))


class SimulatedFile:
    __slots__ = ("_boot", "_disk", "_holds_lock", "_open", "inode")

    def __init__(self, disk: SimulatedDisk, inode: _Inode) -> None:
        self.inode = inode
        self._disk = disk
        self._boot = disk.boot
        self._open = True
        self._holds_lock = False
        disk.open_files += 1

    def write_at(self, data: bytes, position: int) -> None:
        self._step("write")
        grown = max(0, position + len(data) - len(self.inode.data))
        room = grown if self._disk.capacity is None else self._disk.capacity - self._disk.used()
        fits = data if room >= grown else data[: len(data) - grown + max(0, room)]
        _put(self.inode.data, fits, position)
        self.inode.pending.append((position, bytes(fits)))
        if len(fits) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def sync(self) -> None:
        try:
            self._step("sync")
        except OSError:
            # As Linux does: the pages count as clean from now on, though they were never stored.
            self.inode.pending.clear()
            raise
        for position, data in self.inode.pending:
            _put(self.inode.durable, data, position)
        self.inode.pending.clear()

    def lock(self) -> None:
        if self.inode.locked:
            raise BlockingIOError(errno.EAGAIN, "locked")
        self.inode.locked = self._holds_lock = True

    def close(self) -> None:
        if self._open and self._boot == self._disk.boot:
            self._disk.open_files -= 1
            if self._holds_lock:
                self.inode.locked = False
        self._open = False

    def _step(self, operation: Operation) -> None:
        if self._boot != self._disk.boot:
            raise PowerCut
        self._disk._step(operation)


T = TypeVar("T")


def _survivors(pending: list[T], fate: Fate) -> list[T]:
    match fate:
        case "lost":
            return []
        case "torn" | "zeroed":
            return pending[:-1]
        case "kept":
            return pending
        case "reordered":
            return pending[-1:]


def _put(content: bytearray, data: bytes, position: int) -> None:
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def _rename_all(names: dict[str, _Inode], change: dict[str, _Inode | None]) -> None:
    for path, inode in change.items():
        if inode is None:
            names.pop(path, None)
        else:
            names[path] = inode


def _parent(path: str) -> str:
    return path.rpartition("/")[0]
