"""The last word on each object: what whoever is far behind has to say of a feed.

Rows stay columns until it is known which of them are left, so a million updates of a few thousand
objects are sorted out in a fraction of a second. It is for feeds whose versions rise with their
offsets, as those of changes logs do.
"""

from typing import TYPE_CHECKING, Final

import msgspec

from roskva.feed.base import Batch, Marker, Read
from roskva.feed.reader import LogReader
from roskva.model import Update

if TYPE_CHECKING:
    import pyarrow as pa

FEW: Final = 256
"""Up to so many rows, sorting them out takes longer than it saves."""
MOST_ROWS: Final = 1 << 20
MOST_KEPT: Final = 1 << 17
MOST_BYTES: Final = 64 << 20
"""Of the rows that are kept."""
PART: Final = 1 << 16
"""Rows that are sorted out at a time."""


class Latest(msgspec.Struct, frozen=True):
    """Of what follows a marker up to `last`: every reset, and of each object the last update before
    each reset and at the end. By offset."""

    entries: list[tuple[int, Update]]
    last: int
    superseded: int = 0
    """Updates that were left out."""


def read_latest(
    reader: LogReader, after: Marker, end: int, *, resets_only: bool = False
) -> Latest | Read:
    """Not beyond `end`, and not more than fits well into memory; few are as they are."""
    read = reader.read(after, end - after.offset)
    if not isinstance(read, Batch):
        return read
    if read.last == end and read.rows.num_rows <= FEW:
        return Latest(read.entries(), end)
    gathered = _Gathered(resets_only)
    gathered.take(read)
    while gathered.last < end and not gathered.enough:
        read = reader.read(Marker(after.lineage, gathered.last), end - gathered.last)
        if not isinstance(read, Batch):
            break  # whoever reads on from here is told
        gathered.take(read)
    return gathered.latest()


class _Gathered:
    def __init__(self, resets_only: bool) -> None:
        self.resets_only = resets_only
        self.last = self.rows = self.waiting = 0
        self.parts: list[pa.RecordBatch] = []

    @property
    def enough(self) -> bool:
        if self.waiting:
            return False
        kept = sum(part.num_rows for part in self.parts)
        size = sum(part.nbytes for part in self.parts)
        return self.rows >= MOST_ROWS or kept >= MOST_KEPT or size >= MOST_BYTES

    def take(self, batch: Batch) -> None:
        from roskva.feed.arrow import placed

        rows = placed(batch)
        self.parts.append(rows.filter(rows["reset"]) if self.resets_only else rows)
        self.last = batch.last
        self.rows += batch.rows.num_rows
        self.waiting += batch.rows.num_rows
        if self.waiting >= PART:
            self._sort_out()

    def latest(self) -> Latest:
        self._sort_out()
        entries: list[tuple[int, Update]] = []
        for part in self.parts:
            offsets, *fields = part.columns
            updates = map(Update, *(column.to_pylist() for column in fields))
            entries += zip(offsets.to_pylist(), updates, strict=True)
        return Latest(entries, self.last, self.rows - len(entries))

    def _sort_out(self) -> None:
        from roskva.feed.arrow import last_words

        self.parts = last_words(self.parts)
        self.waiting = 0
