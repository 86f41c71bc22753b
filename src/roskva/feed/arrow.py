"""The feed's rows in Arrow.

Arrow takes a fifth of a second to load, and a registrar has no feed: so this module is imported
where its functions are called, and by writers and readers when they open a feed.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from msgspec.structs import astuple

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
_ROW: Final = pa.struct(list(SCHEMA))


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
