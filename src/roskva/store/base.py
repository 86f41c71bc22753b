"""The store of one shard: rows of timestamped cells, the way Bigtable keeps them.

A **row** is named by a key; it is nothing but its **cells**, each under a column of its own and
carrying a timestamp. Writing is a **batch** of operations, applied in their order, all or none:

- `Put`: the cell becomes this value, unless a strictly newer timestamp is already there. An equal
  timestamp replaces. Whoever writes what it heard late, twice or out of order thus changes nothing.
  Timestamps that began anew carry a higher *generation*, and are newer than all before.
- `DeleteCell`, `DeleteRow`: whatever is there is gone and leaves nothing behind, so that a later
  `Put` of any timestamp wins. An object that starts anew is `DeleteRow` and `Put` in one batch.

A row whose last cell went does not exist; reading it gives no cells.

**Durability.** A batch is visible to reads at once, and survives a power cut when `write` was told
`sync=True` or a later `sync()` returned. A crash before that keeps some of the first unsynced
batches and drops the others: never one without those before it, never half of one.

**One owner.** A store belongs to one thread of one process. It compares timestamps by reading
before it writes, which is right only because nobody writes in between.

What fails for now raises `StorageUnavailable`. A batch that could not be written has changed
nothing; after a sync that failed nobody knows what a power cut would leave.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

import msgspec

MAX_TIMESTAMP: Final = 2**63 - 1

MAX_BATCH: Final = 1_024
"""Operations in one batch: a thousand versions and the marker that covers them. A batch is written
in one step that nothing can interrupt; this many cells are about a millisecond of everybody's
time, so what is longer has to be several batches."""


class Cell(msgspec.Struct, frozen=True, gc=False):
    timestamp: int
    value: bytes
    generation: int = 0


class Put(msgspec.Struct, frozen=True, gc=False):
    row: bytes
    column: bytes
    timestamp: int
    value: bytes
    generation: int = 0


class DeleteCell(msgspec.Struct, frozen=True, gc=False):
    row: bytes
    column: bytes


class DeleteRow(msgspec.Struct, frozen=True, gc=False):
    row: bytes


Operation = Put | DeleteCell | DeleteRow
Batch = Sequence[Operation]

Row = dict[bytes, Cell]
"""The cells of a row by column, in the order of the columns. Empty: there is no such row."""

CellName = tuple[bytes, bytes]
"""Row and column."""


class Store(Protocol):
    def write(self, batch: Batch, *, sync: bool = False) -> None: ...

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""

    def read(self, row: bytes) -> Row: ...

    def read_cells(self, names: Sequence[CellName]) -> list[Cell | None]:
        """Single cells of many rows at once, in the order asked for."""

    def scan(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, Row]]:
        """The rows from `start` up to, not including, `end`, in the order of their keys, as they
        are now: what is written after this call is not seen."""

    def checkpoint(self, directory: Path) -> None:
        """Everything written so far, as a store of its own in `directory`, which must not exist
        yet. It costs no copy, and what is written later does not change it."""

    def close(self) -> None: ...


def check_batch(batch: Batch) -> None:
    """Refuse what no store could keep, before anything is touched."""
    if len(batch) > MAX_BATCH:
        raise ValueError(f"a batch has at most {MAX_BATCH} operations; got {len(batch)}")
    for operation in batch:
        if type(operation) is not Put:
            continue
        for number in (operation.timestamp, operation.generation):
            if not 0 <= number <= MAX_TIMESTAMP:
                raise ValueError(f"a timestamp and its generation are 0 to 2^63−1; got {number}")
