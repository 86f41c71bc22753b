"""The store on disk: every cell is one key of a RocksDB.

    key    row, escaped ‖ 00 00 ‖ column        value    timestamp (8 bytes, big-endian) ‖ value

With a generation the value begins with that, the highest bit of its 8 bytes set, before the
timestamp.
The escape turns each 00 of a row into 00 FF. So the first 00 00 of a key ends its row, keys sort
by row and then by column, and a row is one short range. Stamps are big-endian so that comparing
the stored bytes compares the timestamps; and any generation is above none.

What shapes the code is the interpreter's lock. RocksDB's `write` is called with it held: a stall
in there would stop every thread of the process. Hence batches are small, nothing is synced by
`write` (`flush_wal` lets the lock go), and a write is told to fail rather than to wait for
compaction, so that the waiting happens here, where others can run.
"""

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from struct import Struct
from typing import Any, Final, cast

import rocksdict

from roskva.errors import Damaged, RoskvaError, StorageUnavailable
from roskva.store.base import Batch, Cell, CellName, DeleteCell, Put, Row, check_batch

_END_OF_ROW: Final = b"\0\0"
_AFTER_ROW: Final = b"\0\1"

_STAMP_BYTES: Final = 8
_stamp = Struct(">Q").pack
_stamp_of = Struct(">Q").unpack_from
_two_stamps = Struct(">QQ").pack
_two_stamps_of = Struct(">QQ").unpack_from
_HAS_GENERATION: Final = 1 << 63

_FEW_CELLS: Final = 64
"""A row up to this size is deleted cell by cell, a larger one as a range: many ranges make every
later read slower, many single deletions hold the interpreter's lock."""

_STALL_RETRY_S: Final = 0.002
_STALL_LIMIT_S: Final = 30.0

_RESERVE: Final = "reserve.tmp"
_RESERVE_BYTES: Final = 4 << 20

_Changes = dict[bytes, bytes | None]
"""What a key becomes; None: it goes."""


class RocksStore:
    def __init__(self, directory: Path, open_files: int = 256, *, read_only: bool = False) -> None:
        """`open_files`: at most."""
        self._open_files = open_files
        self._directory = directory
        self._read_only = read_only
        self._failed = False
        self._unsynced = False
        self._in_doubt = False
        self._write_options = rocksdict.WriteOptions()
        self._write_options.no_slowdown = True
        with _translated():
            self._db = self._open()

    def write(self, batch: Batch, *, sync: bool = False) -> None:
        check_batch(batch)
        with self._writing():
            changes, large_rows = self._settle(batch)
            self._commit(changes, large_rows)
        self._unsynced = True
        if sync:
            self.sync()

    def sync(self) -> None:
        if self._in_doubt:
            self._in_doubt = self._unsynced = False
            raise StorageUnavailable("a write failed, and what was written before it may be lost")
        with self._writing():
            self._db.flush_wal(True)
        self._unsynced = False

    def read(self, row: bytes) -> Row:
        start = _start_of(row)
        with _translated():
            return {key[len(start) :]: _cell(stored) for key, stored in self._items_of(row)}

    def read_cells(self, names: Sequence[CellName]) -> list[Cell | None]:
        with _translated():
            found = self._get([_key(row, column) for row, column in names])
        return [None if stored is None else _cell(stored) for stored in found]

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, Row]]:
        # The iterator is the snapshot, so it has to be made now and not at the first row.
        with _translated():
            return _rows(
                self._items(_start_of(start), None if end is None else _start_of(end), bulk=True)
            )

    def checkpoint(self, directory: Path) -> None:
        with _translated():
            # Flushing lets others run, making the checkpoint does not: leave it little to flush.
            self._db.flush()
            rocksdict.Checkpoint(self._db).create_checkpoint(str(directory))

    def close(self) -> None:
        with _translated(), suppress(rocksdict.DbClosedError):
            self._db.close()

    # Inside

    def _open(self) -> rocksdict.Rdict:
        access = (
            rocksdict.AccessType.read_only(False)
            if self._read_only
            else rocksdict.AccessType.read_write()
        )
        return rocksdict.Rdict(str(self._directory), _options(self._open_files), access_type=access)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """After a write that failed (a full disk), RocksDB refuses all others until it is opened
        again. That is done by the first one after there is space; till then reads go on. What was
        not synced by then may not be there any more, so the next sync must not say that it is."""
        with _translated():
            if self._failed:
                _reserve(self._directory / _RESERVE, _RESERVE_BYTES)
                with suppress(Exception):
                    self._db.close()  # complains of the failure that brought us here
                self._db = self._open()
                self._failed = False
            try:
                yield
            except Exception:
                self._failed = not self._read_only
                self._in_doubt = self._unsynced
                raise

    def _settle(self, batch: Batch) -> tuple[_Changes, list[bytes]]:
        """What the batch comes to: the keys that change, and large rows that go before that."""
        keys = [_key(put.row, put.column) for put in batch if type(put) is Put]
        # Asked for and written in their order, neighbours are still in the processor's cache.
        ordered = sorted(set(keys))
        current: _Changes = dict(zip(ordered, self._get(ordered), strict=True))
        put_keys = _by_row(batch, keys) if len(keys) < len(batch) else {}
        changed: set[bytes] = set()
        large_rows: list[bytes] = []
        next_key = iter(keys).__next__
        for operation in batch:
            if type(operation) is Put:
                key = next_key()
                age = _age(operation)
                stored = age + operation.value
                before = current[key]
                if before is None or before[: len(age)] <= age:
                    current[key] = stored
                    changed.add(key)
            elif type(operation) is DeleteCell:
                key = _key(operation.row, operation.column)
                current[key] = None
                changed.add(key)
            else:
                row = operation.row
                doomed = [key for key, _ in islice(self._items_of(row), _FEW_CELLS + 1)]
                if len(doomed) > _FEW_CELLS:
                    large_rows.append(row)
                    doomed.clear()
                doomed.extend(put_keys.get(row, ()))
                current.update(dict.fromkeys(doomed))
                changed.update(doomed)
        return {key: current[key] for key in current if key in changed}, large_rows

    def _commit(self, changes: _Changes, large_rows: list[bytes]) -> None:
        give_up = time.monotonic() + _STALL_LIMIT_S
        while True:
            try:
                self._db.write(_write_batch(changes, large_rows), self._write_options)
                return
            except Exception as error:
                if "Write stall" not in str(error) or time.monotonic() > give_up:
                    raise
            time.sleep(_STALL_RETRY_S)

    def _items_of(self, row: bytes) -> Iterator[tuple[bytes, bytes]]:
        return self._items(_start_of(row), _escaped(row) + _AFTER_ROW)

    # RocksDB's own types are wider than what a database of bytes returns: hence the casts.

    def _get(self, keys: list[bytes]) -> list[bytes | None]:
        return cast(list[bytes | None], self._db.get(cast(list[Any], keys)))

    def _items(
        self, start: bytes, end: bytes | None, *, bulk: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        options = rocksdict.ReadOptions()
        options.fill_cache(not bulk)  # type: ignore[call-arg]  # its stub forgets the argument
        if end is not None:
            options.set_iterate_upper_bound(end)
        cursor = self._db.iter(options)
        cursor.seek(start)
        return _walk(cursor, options, end)


def _walk(cursor: rocksdict.RdictIter, *_held: object) -> Iterator[tuple[bytes, bytes]]:
    """Two traps of the binding are dealt with here. Its iterators end early, without an error,
    where they meet damage: so ask at the end. And they point into their options and their bound
    without keeping them alive: so hold these meanwhile."""
    while cursor.valid():
        yield cursor.key(), cursor.value()
        cursor.next()
    cursor.status()


def _options(open_files: int) -> rocksdict.Options:
    """A shard's store is one of several in its process: small buffers, few files and threads."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    # Three memtables of 16 MiB bound the memory, and a small one is quicker to search and to fill.
    options.set_write_buffer_size(16 << 20)
    options.set_max_write_buffer_number(3)
    # Every put reads first. Most new cells are told apart by the filters, without a search.
    options.set_memtable_whole_key_filtering(True)
    options.set_memtable_prefix_bloom_ratio(0.05)
    options.set_compression_type(rocksdict.DBCompressionType.lz4())
    options.set_max_open_files(open_files)
    options.set_max_background_jobs(2)
    options.set_keep_log_file_num(2)
    options.set_max_log_file_size(1 << 20)
    table = rocksdict.BlockBasedOptions()
    table.set_bloom_filter(10, False)
    table.set_block_cache(rocksdict.Cache(32 << 20))
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    options.set_block_based_table_factory(table)
    return options


def _reserve(path: Path, size: int) -> None:
    """Raise OSError unless a file of this size can be made here."""
    try:
        with path.open("wb") as file:
            file.write(bytes(size))
            file.flush()
            os.fsync(file.fileno())
    finally:
        path.unlink(missing_ok=True)


def _write_batch(changes: _Changes, large_rows: list[bytes]) -> rocksdict.WriteBatch:
    batch = rocksdict.WriteBatch(raw_mode=True)
    for row in large_rows:
        batch.delete_range(_start_of(row), _escaped(row) + _AFTER_ROW)
    for key, stored in changes.items():
        if stored is None:
            batch.delete(key)
        else:
            batch.put(key, stored)
    return batch


def _by_row(batch: Batch, put_keys: list[bytes]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    puts = (operation for operation in batch if type(operation) is Put)
    for put, key in zip(puts, put_keys, strict=True):
        found.setdefault(put.row, []).append(key)
    return found


def _rows(items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, Row]]:
    """Cells in the order of their keys, put together to rows."""
    row_key, cells = b"", Row()
    with _translated():
        for key, stored in items:
            escaped, _, column = key.partition(_END_OF_ROW)
            if escaped != row_key and cells:
                yield _unescaped(row_key), cells
                cells = {}
            row_key = escaped
            cells[column] = _cell(stored)
    if cells:
        yield _unescaped(row_key), cells


def _key(row: bytes, column: bytes) -> bytes:
    return row.replace(b"\0", b"\0\xff") + _END_OF_ROW + column


def _escaped(row: bytes) -> bytes:
    return row.replace(b"\0", b"\0\xff")


def _unescaped(row: bytes) -> bytes:
    return row.replace(b"\0\xff", b"\0")


def _start_of(row: bytes) -> bytes:
    return _key(row, b"")


def _age(put: Put) -> bytes:
    if not put.generation:
        return _stamp(put.timestamp)
    return _two_stamps(put.generation | _HAS_GENERATION, put.timestamp)


def _cell(stored: bytes) -> Cell:
    [first] = _stamp_of(stored)
    if first < _HAS_GENERATION:
        return Cell(first, stored[_STAMP_BYTES:])
    generation, timestamp = _two_stamps_of(stored)
    return Cell(timestamp, stored[2 * _STAMP_BYTES :], generation ^ _HAS_GENERATION)


@contextmanager
def _translated() -> Iterator[None]:
    """RocksDB's errors are bare exceptions with a sentence; make them ours."""
    try:
        yield
    except RoskvaError:
        raise
    except Exception as error:
        if str(error).startswith("Corruption"):
            raise Damaged(f"RocksDB found damage: {error}") from error
        raise StorageUnavailable(f"RocksDB cannot do this now: {error}") from error
