"""Columns: what our tables are made of, and what is done to those of updates on their way.

Coalescing does the same on columns as `core.objects.coalesce` does one by one.
"""

from typing import ClassVar, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types
from pyspark.sql.datasource import DataSource

from roskva.core.objects import coalesce
from roskva.feed.arrow import PLACED, SCHEMA, rows_of
from roskva.feed.base import updates_of
from roskva.model import WHOLE_SHARD, is_app
from roskva.pipeline.feeds import Options

_TYPES: Final[dict[str, type[types.DataType]]] = {
    "bool": types.BooleanType,
    "bytes": types.BinaryType,
    "int": types.IntegerType,
    "long": types.LongType,
    "text": types.StringType,
    "time": types.TimestampType,
}


def columns(text: str) -> types.StructType:
    """Of a name and a type each; with `?` behind the type it may be null."""
    fields = [column.split() for column in text.split(", ")]
    return types.StructType(
        [
            types.StructField(name, _TYPES[kind.rstrip("?")](), nullable=kind.endswith("?"))
            for name, kind in fields
        ]
    )


class NamedSource(DataSource):
    """What `spark.read.format(NAME)` and its like stand for."""

    NAME: ClassVar[str]
    SCHEMA: ClassVar[types.StructType]
    OPTIONS: ClassVar[tuple[str, ...]] = ()

    @property
    def given(self) -> Options:
        return Options(self.NAME, self.options, *self.OPTIONS)

    @classmethod
    def name(cls) -> str:
        return cls.NAME

    def schema(self) -> types.StructType:
        return self.SCHEMA


def coalesced(rows: pa.Table) -> pa.Table:
    """Per object the last reset, and the highest version after it, or on either side of a reset of
    its app or of the record of an epoch; in the order of offsets."""
    if not pc.any(rows["reset"]).as_py():
        return highest(rows).sort_by("offset")
    # Resets are rare, and do not commute with versions: those objects are gone through in order.
    named = rows.filter(rows["reset"])["object"].unique()
    if WHOLE_SHARD in named.to_pylist():
        return _in_order(rows)
    reset = pc.is_in(rows["object"], named)
    for app in filter(is_app, named.to_pylist()):
        reset = pc.or_(reset, pc.starts_with(rows["object"], app))
    parts = [highest(rows.filter(pc.invert(reset))), _in_order(rows.filter(reset))]
    return pa.concat_tables(parts).sort_by("offset")


def highest(rows: pa.Table) -> pa.Table:
    """Per object the highest version, the earliest if there are several of it."""
    if not rows.num_rows:
        return rows
    # Objects are numbered in the order in which they come, and groups come in that order too.
    objects = rows["object"].combine_chunks().dictionary_encode().indices
    numbered = pa.table({"object": objects, "version": rows["version"]})
    groups = numbered.group_by("object", use_threads=False).aggregate(
        [("version", "max"), ("version", "count")]
    )
    best = pc.equal(groups["version_max"].take(objects), rows["version"])
    where = pc.indices_nonzero(best).cast(pa.int64())
    candidates = pa.table({"object": objects.filter(best.combine_chunks()), "row": where})
    winners = candidates.group_by("object", use_threads=False).aggregate([("row", "min")])
    found = rows.take(winners["row_min"])
    # With one left out, nobody can tell any more whether the author of the other knew it.
    alone = pc.equal(groups["version_count"].take(winners["object"]), 1)
    source = pc.if_else(alone, found["source"], pa.scalar(None, pa.string()))
    return found.set_column(found.schema.get_field_index("source"), SCHEMA.field("source"), source)


def _in_order(rows: pa.Table) -> pa.Table:
    columns = rows.select(SCHEMA.names).combine_chunks().to_batches()
    updates = [update for batch in columns for update in updates_of(batch)]
    kept = coalesce(zip(rows["offset"].to_pylist(), updates, strict=True))
    offsets = pa.array([offset for offset, _ in kept], pa.int64())
    batch = rows_of([update for _, update in kept])
    return pa.Table.from_arrays([offsets, *batch.columns], schema=PLACED)
