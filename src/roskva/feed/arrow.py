"""The feed's rows in Arrow.

Arrow takes a fifth of a second to load, and a registrar has no feed: so this module is imported
where its functions are called, and by writers and readers when they open a feed.
"""

from collections.abc import Sequence
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import astuple

from roskva.feed.base import Batch
from roskva.model import Update

SCHEMA: Final = pa.schema(
    [
        pa.field("object", pa.string(), nullable=False),
        pa.field("version", pa.int64(), nullable=False),
        pa.field("source", pa.string()),
        pa.field("payload", pa.binary()),
        pa.field("published_at", pa.int64(), nullable=False),
        pa.field("reset", pa.bool_(), nullable=False),
    ]
)
"""One row is one `Update`, field by field."""
PLACED: Final = pa.schema([pa.field("offset", pa.int64(), nullable=False), *SCHEMA])
"""Updates, each with its offset."""
_ROW: Final = pa.struct(list(SCHEMA))
_COUNTED: Final = 16_384


def rows_of(updates: Sequence[Update]) -> pa.RecordBatch:
    return record_batch([astuple(update) for update in updates])


def record_batch(rows: Sequence[tuple[object, ...]]) -> pa.RecordBatch:
    """Each of them the fields of an Update."""
    return pa.RecordBatch.from_struct_array(pa.array(rows, _ROW))


def buffer_of(body: memoryview) -> pa.Buffer:
    return pa.py_buffer(body)


def decoded(body: pa.Buffer) -> pa.RecordBatch:
    return pa.ipc.read_record_batch(body, SCHEMA)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def placed(batch: Batch) -> pa.RecordBatch:
    """Its updates, each with its offset."""
    offsets = numbered(batch.base, batch.rows.num_rows)
    return pa.RecordBatch.from_arrays([offsets, *batch.rows.columns], schema=PLACED)


def numbered(first: int, count: int) -> pa.Array:
    """Offsets from `first` on."""
    if count > len(_counted()):
        return pa.array(range(first, first + count), pa.int64())
    return pc.add(_counted().slice(0, count), first)


@cache
def _counted() -> pa.Array:
    return pa.array(range(_COUNTED), pa.int64())


def last_words(parts: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Of rows with offsets: every reset, and of each object the last row before each reset and at
    the end."""
    rows = pa.Table.from_batches(parts, PLACED)
    resets = pc.cumulative_sum(rows["reset"].cast(pa.int64()))
    keys = pa.table({"object": rows["object"], "resets": resets, "offset": rows["offset"]})
    groups = keys.group_by(["object", "resets"], use_threads=False)
    last = groups.aggregate([("offset", "max")])["offset_max"]
    found: list[pa.RecordBatch] = rows.filter(pc.is_in(rows["offset"], value_set=last)).to_batches()
    return found
