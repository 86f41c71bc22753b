"""Backups of a data directory, made while it is in use, and what restoring one means; and copies of
its stores for somebody to read.

A backup is laid out like a data directory, with a `manifest` instead of `meta`: every file, its
size and its CRC32C. The manifest is written last: a backup without one was never finished.

**Making one.** Per shard the store's checkpoint comes first and the feed is copied after it, so
that the marker in the store is never ahead of the feed beside it. The feed's files are copied
newest first: retention takes the oldest, and if it is faster, what is left has no hole. Bytes after
the last commit may come along half written; the next writer steps over them, as after a crash.

**Restoring one.** What was published after the backup is lost. The feed's copy does not know it: it
would go on as if nothing had been there, and every client that missed one of those updates would
believe for ever that it is up to date. So restoring puts down that the history went on for longer
than it can be read (`feed/recovery.py`). Whoever catches up from it then finds a range missing, and
the shard begins a new epoch: clients are told, once, to look again. Only whoever knows that nothing
was published after the backup (a node that was stopped first, and moves) may leave that out.

**Change sources.** A log of changes is copied like a feed. Where nothing was published since, it
goes on. Else it is left out, as what followed in it is lost, and a new one begins at offset 1: the
source finds a doubt. Clients may have been told of higher ordinals than the backup knows, so the
next one is `ORDINALS_AHEAD`; and it is begun in all shards here: with it and the new epochs clients
look once, and not once for each (docs/decisions/0042-a-restore-begins-an-ordinal.md).
"""

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
from google_crc32c import extend as crc32c_extend
from google_crc32c import value as crc32c

from roskva.core.effects import PutShard
from roskva.disk import MINE_ALONE, RealDisk, storage_errors, write_whole
from roskva.errors import BadConfig, Damaged, StorageUnavailable
from roskva.feed.base import Batch, Idle, Locked, Marker
from roskva.feed.check import verify
from roskva.feed.reader import LogReader
from roskva.feed.record import MARKERS, write_record
from roskva.feed.record import META as FEED_META
from roskva.feed.recovery import SKIP, skip_ahead, skip_in
from roskva.feed.segment import parse_name
from roskva.links.own_keys import TOKEN_KEY
from roskva.links.processes import Process, running
from roskva.links.questions import ask
from roskva.model import next_generation
from roskva.server.directory import FORMAT, META, DataDirectory, DataMeta, ShardPlace
from roskva.sources.changes import DIRECTORY as SOURCES
from roskva.sources.changes import LOG as CHANGES
from roskva.sources.changes import STATE, begin_restored, read_state
from roskva.store import rows
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import Ask

MANIFEST: Final = "manifest"
ORDINALS_AHEAD: Final = 64
"""So many doubts a source may have had since a backup was made, beyond one an hour. If it had more,
versions fall; being of another epoch, they are news all the same."""
_CHECKPOINT_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 20
_disk = RealDisk()

Checkpoint = Callable[[ShardPlace, Path], None]
"""Asks the owner of the shard's store for a checkpoint in this directory."""

Progress = Callable[[int, int], None]
"""Bytes done, bytes known so far."""


class BackedUp(msgspec.Struct, frozen=True):
    path: str
    size: int
    crc32c: int


class Manifest(msgspec.Struct, frozen=True):
    format: int
    shards: int
    identity: int
    made_at: int
    """Wall-clock microseconds."""
    files: list[BackedUp]


class RestoredShard(msgspec.Struct, frozen=True):
    number: int
    behind: int
    """Offsets between the store's marker and the end of the feed's copy."""
    new_epoch: bool
    """Its clients will be told to look again."""
    unreadable: list[tuple[int, int]]
    """Ranges of the feed that were damaged already when they were backed up."""


def make_backup(
    data: DataDirectory,
    shards: Sequence[ShardPlace],
    checkpoint: Checkpoint,
    target: Path,
    now_us: int,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """`shards`: all of them. Waits for disks, and for the owners of the shards."""
    with storage_errors(f"backing up {data.path}"), _filling(target):
        copy = _Copy(target, progress)
        for shard in shards:
            _back_up_shard(shard, checkpoint, copy)
        for source in _sources_in(data.path):
            _back_up_source(source, copy)
        if (data.path / TOKEN_KEY).exists():  # else every client would shake hands again
            copy.add(data.path / TOKEN_KEY, PurePosixPath(TOKEN_KEY))
        meta = data.meta
        manifest = Manifest(FORMAT, meta.shards, meta.identity, now_us, copy.files)
        copy.sync_directories()
        write_whole(_disk, str(target / MANIFEST), encode_manifest(manifest))
    return manifest


def back_up(
    data: DataDirectory,
    target: Path,
    now_us: int,
    progress: Progress = lambda done, total: None,
) -> Manifest:
    """Where no node is running, and none can start meanwhile; or of one that serves: its processes
    make the checkpoints. `Locked` if it is neither."""
    places: Sequence[ShardPlace] = data.places()
    checkpoint: Checkpoint = make_checkpoint
    with ExitStack() as owning:
        try:
            places = [owning.enter_context(data.own(place.number)) for place in places]
        except Locked:
            owning.close()
            node = running(data.path)
            if node is None:
                raise
            checkpoint = partial(ask_for_checkpoint, node.processes)
        return make_backup(data, places, checkpoint, target, now_us, progress)


def encode_manifest(manifest: Manifest) -> bytes:
    body = msgspec.json.format(msgspec.json.encode(manifest))
    return body + b"\n%08x" % crc32c(body)


def read_manifest(backup: Path) -> Manifest:
    try:
        raw = (backup / MANIFEST).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise BadConfig(f"{backup} is no backup, or one that was never finished") from None
    body, _, checksum = raw.rpartition(b"\n")
    if checksum != b"%08x" % crc32c(body):
        raise Damaged(f"{backup / MANIFEST} is not what was written")
    found: int = msgspec.json.decode(body)["format"]
    if found > FORMAT:
        raise BadConfig(f"{backup} has format {found}; this Roskva reads up to {FORMAT}: update it")
    return msgspec.json.decode(body, type=Manifest)


def restore(
    backup: Path,
    target: Path,
    *,
    nothing_published_since: bool = False,
    progress: Progress = lambda done, total: None,
) -> list[RestoredShard]:
    manifest = read_manifest(backup)
    with storage_errors(f"restoring {backup}"), _filling(target):
        copy = _Copy(target, progress)
        copy.expect(sum(file.size for file in manifest.files))
        for file in manifest.files:
            if nothing_published_since or not _is_of_changes(file):
                _restore_file(backup, file, copy)
        data = DataDirectory(target, DataMeta(FORMAT, manifest.shards, manifest.identity))
        shards = [_settle_shard(place, nothing_published_since) for place in data.places()]
        if not nothing_published_since:
            _begin_ordinals(data)
        copy.sync_directories()
        # Last: without it nobody takes what is here for a data directory.
        write_record(_disk, str(target / META), data.meta)
    return shards


# Checkpoints of stores, made while a node serves or while none does.


@contextmanager
def checkpoints(data: DataDirectory, name: str) -> Iterator[None]:
    """`shard-NN/checkpoints/NAME` in every shard, until this ends.

    They are hard links and cost no space. A node that starts meanwhile removes them: whoever reads
    them is then told that a file is missing, and nothing wrong.
    """
    try:
        for place in data.places():
            _checkpoint(data, place, place.checkpoints_path / name)
        yield
    finally:
        for place in data.places():
            shutil.rmtree(place.checkpoints_path / name, ignore_errors=True)


def _checkpoint(data: DataDirectory, place: ShardPlace, made: Path) -> None:
    """By the shard's owner; if there is none, by us."""
    try:
        with data.own(place.number) as owned:
            if owned.store_path.is_dir():
                make_checkpoint(owned, made)
    except Locked:
        node = running(data.path)
        if node is None:
            raise
        ask_for_checkpoint(node.processes, place, made)


def make_checkpoint(owned: ShardPlace, made: Path) -> None:
    store = RocksStore(owned.store_path)
    try:
        store.checkpoint(made)
    finally:
        store.close()


def ask_for_checkpoint(processes: Sequence[Process], place: ShardPlace, made: Path) -> None:
    owner = next(process for process in processes if place.number in process.shards)
    question = Ask("checkpoint", place.number, made.name)
    answer = asyncio.run(ask(owner.socket, question, _CHECKPOINT_TIMEOUT_S))
    if "error" in answer:
        raise StorageUnavailable(f"shard {place.number}: {answer['error']}")


# Making


def _back_up_shard(shard: ShardPlace, checkpoint: Checkpoint, copy: "_Copy") -> None:
    place = PurePosixPath(shard.path.name)
    made = shard.checkpoints_path / "backup"
    try:
        # Beside the store it is hard links; only then is it copied, to wherever the backup goes.
        checkpoint(shard, made)
        copy.expect(sum(_size(path) for path in (*made.iterdir(), *_segments(shard.feed_path))))
        for path in sorted(made.iterdir()):
            copy.add(path, place / "store" / path.name)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    _copy_feed(shard.feed_path, place / "feed", copy)
    copy.add(shard.path / META, place / META)


def _sources_in(data: Path) -> list[Path]:
    return sorted(path.parent for path in data.glob(f"{SOURCES}/*/{STATE}"))


def _back_up_source(source: Path, copy: "_Copy") -> None:
    """The state first: it is never ahead of the log beside it."""
    place = PurePosixPath(SOURCES, source.name)
    copy.expect(sum(_size(path) for path in _segments(source / CHANGES)))
    copy.add(source / STATE, place / STATE)
    _copy_feed(source / CHANGES, place / CHANGES, copy)


def _copy_feed(feed: Path, place: PurePosixPath, copy: "_Copy") -> None:
    for path in _feed_records(feed):
        with suppress(FileNotFoundError):
            copy.add(path, place / path.relative_to(feed).as_posix())
    for path in reversed(_segments(feed)):
        try:
            copy.add(path, place / path.name)
        except FileNotFoundError:
            break  # retention was faster, and has taken everything older before it


def _feed_records(feed: Path) -> list[Path]:
    """As far as they are there. Copied before the segments, so that no marker is ahead of them, and
    a skip that a writer takes up meanwhile is in them if it is not here."""
    markers = (path for path in (feed / MARKERS).glob("*") if path.suffix != ".tmp")
    return [*markers, feed / SKIP, feed / FEED_META]


def _segments(feed: Path) -> list[Path]:
    return sorted(path for path in feed.glob("*") if parse_name(path.name))


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


# Restoring


def _restore_file(backup: Path, file: BackedUp, copy: "_Copy") -> None:
    place = PurePosixPath(file.path)
    if place.is_absolute() or ".." in place.parts:
        raise Damaged(f"the manifest names {file.path}, which is outside of the backup")
    try:
        copied = copy.add(backup / place, place)
    except FileNotFoundError:
        raise Damaged(f"{backup / place} is missing") from None
    if copied != file:
        raise Damaged(f"{backup / place} is not what was backed up")


def _settle_shard(place: ShardPlace, nothing_published_since: bool) -> RestoredShard:
    number, feed = place.number, place.feed_path
    row = _shard_row(place)
    if not (feed / FEED_META).exists() or row is None:
        return RestoredShard(number, 0, True, [])
    (feed / MARKERS).mkdir(exist_ok=True)
    unreadable = [
        problem.lost
        for checked in verify(_disk, str(feed))
        for problem in checked.problems
        if problem.lost
    ]
    reader = LogReader(_disk, str(feed))
    covered = isinstance(reader.read(Marker(row.lineage, row.applied)), Batch | Idle)
    if not nothing_published_since:
        skip_ahead(_disk, str(feed))
    behind = max(0, reader.end() - row.applied) if covered else 0
    # A backup of what was restored and never started has a skip of its own.
    skips = skip_in(_disk, str(feed)) is not None
    return RestoredShard(number, behind, skips or not covered, unreadable)


def _is_of_changes(file: BackedUp) -> bool:
    return file.path.startswith(f"{SOURCES}/") and CHANGES in PurePosixPath(file.path).parts


def _begin_ordinals(data: DataDirectory) -> None:
    """For each source one above all that was told under, in its state and in every shard."""
    states = {source: read_state(_disk, str(source)) for source in _sources_in(data.path)}
    known = {place: _shard_row(place) for place in data.places() if states}
    begun: dict[str, int] = {}
    for source, state in states.items():
        if state is None:
            continue  # the source finds that it knows nothing
        generations = [dict(row.generations).get(state.app, 0) for row in known.values() if row]
        following = next_generation([state.ordinal, *generations], time.time())
        begun[state.app] = following + ORDINALS_AHEAD
        begin_restored(_disk, str(source), begun[state.app])
    for place, row in known.items():
        if row is not None:
            generations_after = tuple((dict(row.generations) | begun).items())
            _put_shard_row(place, msgspec.structs.replace(row, generations=generations_after))


def _shard_row(place: ShardPlace) -> PutShard | None:
    store = RocksStore(place.store_path, read_only=True)
    try:
        return rows.shard_row(store.read(rows.SHARD_ROW))
    finally:
        store.close()


def _put_shard_row(place: ShardPlace, row: PutShard) -> None:
    store = RocksStore(place.store_path)
    try:
        store.write(list(rows.operations_of(row)), sync=True)
    finally:
        store.close()


# Copying


class _Copy:
    """Copies files below one directory, durably, and remembers what they were."""

    def __init__(self, target: Path, progress: Progress) -> None:
        self.files: list[BackedUp] = []
        self._target = target
        self._progress = progress
        self._done = self._total = 0

    def expect(self, size: int) -> None:
        self._total += size

    def add(self, source: Path, place: PurePosixPath) -> BackedUp:
        with source.open("rb") as content:
            target = self._target / place
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(target, "xb", opener=_mine_alone) as written:
                size = checksum = 0
                while chunk := content.read(_CHUNK_BYTES):
                    written.write(chunk)
                    checksum = crc32c_extend(checksum, chunk)
                    size += len(chunk)
                    self._advance(len(chunk))
                written.flush()
                os.fsync(written.fileno())
        self.files.append(BackedUp(str(place), size, checksum))
        return self.files[-1]

    def sync_directories(self) -> None:
        for directory, _, _ in os.walk(self._target):
            _disk.sync_directory(directory)
        _disk.sync_directory(str(self._target.parent))

    def _advance(self, size: int) -> None:
        self._done += size
        self._progress(self._done, max(self._done, self._total))


def _mine_alone(path: str, flags: int) -> int:
    """Also where the directory is not: backups are carried elsewhere, with the keys in them."""
    return os.open(path, flags, MINE_ALONE)


@contextmanager
def _filling(target: Path) -> Iterator[None]:
    """A directory that was empty, and is again if this fails."""
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise BadConfig(f"{target} is not empty: name an empty or a new directory")
    target.mkdir(mode=0o700, parents=True, exist_ok=True)
    target.chmod(0o700)
    try:
        yield
    except BaseException:
        for path in target.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
        raise
