"""A store in memory, for tests and simulated clusters: same promises, and faults on demand.

The current rows are plain dictionaries. Beside them stands, for every batch that is not synced
yet, what it replaced: a crash plays these back, newest first, as a power cut would.

A `Snapshot` is the disk as somebody copied it; restoring one later is the fault "an old backup
came back". The whole store can be pickled.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from roskva.errors import StorageUnavailable
from roskva.store.base import Batch, Cell, CellName, DeleteCell, Operation, Put, Row, check_batch

_CHECKPOINT = "rows.msgpack"

Snapshot = Mapping[bytes, Row]

_Undo = list[tuple[bytes, bytes, Cell | None]]
"""Row, column and what was there before, in the order of the writes."""


class MemoryStore:
    def __init__(self, rows: Snapshot | None = None) -> None:
        self._rows: dict[bytes, Row] = _copy(rows or {})
        self._unsynced: list[_Undo] = []
        self.refused_prefixes: tuple[bytes, ...] = ()
        """Rows that start with one of these can be neither read nor written for now."""
        self.failing_writes = 0
        """So many of the next writes fail and change nothing."""

    # The store

    def write(self, batch: Batch, *, sync: bool = False) -> None:
        check_batch(batch)
        for operation in batch:
            self._admit(operation.row)
        if self.failing_writes:
            self.failing_writes -= 1
            raise StorageUnavailable("the write failed")
        undo: _Undo = []
        for operation in batch:
            self._apply(operation, undo)
        self._unsynced.append(undo)
        if sync:
            self.sync()

    def sync(self) -> None:
        self._unsynced.clear()

    def read(self, row: bytes) -> Row:
        self._admit(row)
        return _ordered(self._rows.get(row, {}))

    def read_cells(self, names: Sequence[CellName]) -> list[Cell | None]:
        for row, _ in names:
            self._admit(row)
        nothing: Row = {}
        return [self._rows.get(row, nothing).get(column) for row, column in names]

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, Row]]:
        rows = sorted(row for row in self._rows if start <= row and (end is None or row < end))
        for row in rows:
            self._admit(row)
        return iter([(row, _ordered(self._rows[row])) for row in rows])

    def checkpoint(self, directory: Path) -> None:
        directory.mkdir()
        (directory / _CHECKPOINT).write_bytes(msgspec.msgpack.encode(self._rows))

    def close(self) -> None:
        """A store in memory has nothing to let go."""

    # Faults

    def crash(self, keep: int = 0) -> None:
        """Lose what is not synced, but for the first `keep` batches of it."""
        while len(self._unsynced) > keep:
            for row, column, before in reversed(self._unsynced.pop()):
                if before is None:
                    self._remove(row, column)
                else:
                    self._rows.setdefault(row, {})[column] = before
        self._unsynced.clear()

    @property
    def unsynced(self) -> int:
        """How many batches a crash could lose."""
        return len(self._unsynced)

    def snapshot(self) -> Snapshot:
        return _copy(self._rows)

    def restore(self, snapshot: Snapshot) -> None:
        self._rows = _copy(snapshot)
        self._unsynced.clear()

    # Inside

    def _apply(self, operation: Operation, undo: _Undo) -> None:
        cells = self._rows.get(operation.row, {})
        if isinstance(operation, Put):
            before = cells.get(operation.column)
            age = operation.generation, operation.timestamp
            if before is not None and (before.generation, before.timestamp) > age:
                return
            undo.append((operation.row, operation.column, before))
            cells[operation.column] = Cell(
                operation.timestamp, operation.value, operation.generation
            )
            self._rows[operation.row] = cells
            return
        doomed = [operation.column] if isinstance(operation, DeleteCell) else list(cells)
        for column in doomed:
            if column in cells:
                undo.append((operation.row, column, cells[column]))
                self._remove(operation.row, column)

    def _remove(self, row: bytes, column: bytes) -> None:
        cells = self._rows[row]
        del cells[column]
        if not cells:
            del self._rows[row]

    def _admit(self, row: bytes) -> None:
        if row.startswith(self.refused_prefixes):
            raise StorageUnavailable("this row cannot be reached for now")


def open_checkpoint(directory: Path) -> MemoryStore:
    kept = (directory / _CHECKPOINT).read_bytes()
    return MemoryStore(msgspec.msgpack.decode(kept, type=dict[bytes, Row]))


def _copy(rows: Snapshot) -> dict[bytes, Row]:
    return {row: dict(cells) for row, cells in rows.items()}


def _ordered(cells: Row) -> Row:
    return dict(sorted(cells.items()))
