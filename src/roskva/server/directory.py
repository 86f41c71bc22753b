"""The data directory: which shards there are, and who owns each of them.

    DATA/                 mode 0700
      lock                held by the node that serves the directory
      meta                format, shard count, identity
      probe/              the prober's clients, and what it found (roskva.probe.history)
      shard-00/
        lock              held (flock) by the process that owns the shard
        meta              the same again, and which shard this is
        feed/             roskva.feed
        store/            roskva.store
        checkpoints/      made for somebody who is reading them; cleared by the next owner

The shard count is fixed when the directory is created: it decides where every object lives. The
processes that own shards may change with every start, so each shard has a lock of its own; the
system releases it when its process ends, however it ends.

The identity is drawn at creation and repeated in every shard: a shard that was copied in from
another directory, or from another place in this one, is refused.

A shard whose directory is missing is created empty. That is loss, but not a hidden one: its store
and its feed begin with a new epoch, and its clients are told to look again.
"""

import errno
import logging
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from roskva.disk import MINE_ALONE, RealDisk, lock_file, storage_errors
from roskva.errors import BadConfig, Damaged
from roskva.feed.base import Locked
from roskva.feed.record import read_record, write_record

FORMAT: Final = 1
DEFAULT_SHARDS: Final = 4
MAX_SHARDS: Final = 1024

META: Final = "meta"
_LOCK: Final = "lock"
_MAY_BE_THERE: Final = {_LOCK, "lost+found"}
_WRONG_PATH: Final = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.ELOOP}
_disk = RealDisk()
_log = logging.getLogger(__name__)
_Meta = TypeVar("_Meta", "DataMeta", "ShardMeta")


class _Format(msgspec.Struct, frozen=True):
    format: int


class DataMeta(_Format, frozen=True):
    shards: int
    identity: int


class ShardMeta(DataMeta, frozen=True):
    shard: int


class DataDirectory:
    """A directory that was found to be ours. Nothing in it is locked by this."""

    def __init__(self, path: Path, meta: DataMeta) -> None:
        self.path = path
        self.meta = meta

    @classmethod
    def open(cls, path: Path) -> "DataDirectory":
        if not (path / META).exists():
            raise BadConfig(f"{path} is no data directory of Roskva: it has no file '{META}'")
        return cls(path, _read_meta(path / META, DataMeta))

    @classmethod
    def open_or_create(cls, path: Path, shards: int | None = None) -> "DataDirectory":
        """`shards`: how many there must be; for a new directory, how many it gets."""
        if not (path / META).exists():
            _create(path, DEFAULT_SHARDS if shards is None else shards)
        opened = cls.open(path)
        close_to_others(path)
        if shards is not None and shards != opened.meta.shards:
            raise BadConfig(
                f"{path} was created with {opened.meta.shards} shards, and that cannot change: "
                f"start with {opened.meta.shards} shards, or with another directory for {shards}"
            )
        return opened

    def places(self) -> "list[ShardPlace]":
        return [ShardPlace(self, number) for number in range(self.meta.shards)]

    @contextmanager
    def serving(self) -> Iterator[None]:
        """One node at a time, or `Locked`: also what it tells others about itself is kept here."""
        lock = _lock(self.path / _LOCK)
        try:
            yield
        finally:
            os.close(lock)

    def own(self, number: int, patience_s: float = 0.0) -> "OwnedShard":
        """Become the owner of a shard, or `Locked` if another still is when patience is over."""
        if not 0 <= number < self.meta.shards:
            raise BadConfig(f"{self.path} has shards 0 to {self.meta.shards - 1}; not {number}")
        return OwnedShard(self, number, patience_s)


class ShardPlace:
    """Where a shard is, whoever owns it."""

    def __init__(self, data: DataDirectory, number: int) -> None:
        self.number = number
        self.path = path = data.path / f"shard-{number:02}"
        self.feed_path, self.store_path = path / "feed", path / "store"
        self.checkpoints_path = path / "checkpoints"


class OwnedShard(ShardPlace):
    """A shard that nobody else has open, until `close`."""

    def __init__(self, data: DataDirectory, number: int, patience_s: float) -> None:
        super().__init__(data, number)
        with _explained(self.path):
            self.path.mkdir(mode=0o700, exist_ok=True)
            self._lock = _lock(self.path / _LOCK, patience_s)
        try:
            with _explained(self.path):
                self._settle(data)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        lock, self._lock = self._lock, -1
        if lock >= 0:
            os.close(lock)

    def __enter__(self) -> "OwnedShard":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle(self, data: DataDirectory) -> None:
        meta = data.meta
        expected = ShardMeta(FORMAT, meta.shards, meta.identity, self.number)
        if not (self.path / META).exists():
            write_record(_disk, str(self.path / META), expected)
        found = _read_meta(self.path / META, ShardMeta)
        if msgspec.structs.replace(found, format=FORMAT) != expected:
            raise BadConfig(
                f"{self.path} is shard {found.shard} of {found.shards} of another data directory: "
                "move it back to where it came from"
            )
        shutil.rmtree(self.checkpoints_path, ignore_errors=True)
        self.checkpoints_path.mkdir()
        _disk.sync_directory(str(self.path))


def others_may_read(path: Path) -> bool:
    """Whether anybody but its owner has any right to it."""
    return bool(path.stat().st_mode & 0o077)


def close_to_others(path: Path) -> None:
    """Of what is ours: a copy of a backup, say, that was made without its modes."""
    if not others_may_read(path):
        return
    mode = 0o700 if path.is_dir() else MINE_ALONE
    try:
        path.chmod(mode)
        _log.warning("%s was open to other users of this machine: it is mode %o now", path, mode)
    except OSError:  # it belongs to somebody else
        _log.warning("%s is open to other users of this machine: chmod %o it", path, mode)


def _create(path: Path, shards: int) -> None:
    if not 1 <= shards <= MAX_SHARDS:
        raise BadConfig(f"a data directory has 1 to {MAX_SHARDS} shards; got {shards}")
    with _explained(path):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = _lock(path / _LOCK)
    try:
        if (path / META).exists():
            return  # somebody else was creating it at the same time
        others = {entry.name for entry in path.iterdir()} - _MAY_BE_THERE
        if others:
            raise BadConfig(
                f"{path} is no data directory of Roskva, and not empty: name an empty or a new one"
            )
        with _explained(path):
            path.chmod(0o700)
            meta = DataMeta(FORMAT, shards, secrets.randbits(63))
            write_record(_disk, str(path / META), meta)
            _disk.sync_directory(str(path.parent))
    finally:
        os.close(lock)


def _lock(path: Path, patience_s: float = 0.0) -> int:
    try:
        return lock_file(path, patience_s)
    except BlockingIOError as held:
        raise Locked(
            f"{path.parent} is in use by another process (number {held.strerror}): stop that one, "
            "or name another directory"
        ) from None


def _read_meta(path: Path, of: type[_Meta]) -> _Meta:
    try:
        # The format first: it says whether the rest can be understood at all.
        found = read_record(_disk, str(path), _Format).format
    except Damaged:
        raise Damaged(f"{path} is damaged: put it back from a backup") from None
    if found > FORMAT:
        raise BadConfig(
            f"{path.parent} has format {found}, made by a newer Roskva; this one reads up to "
            f"{FORMAT}: update it, or restore a backup that is as old as this one"
        )
    return read_record(_disk, str(path), of)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    with storage_errors(f"using {path}"):
        try:
            yield
        except OSError as error:
            if error.errno not in _WRONG_PATH:
                raise
            raise BadConfig(f"{path} cannot be used: {error.strerror}") from error
