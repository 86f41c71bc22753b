"""Logs as tables, for batches: `roskva-history` and `roskva-trace`.

**`roskva-history`** is what is left of one shard's feed, coalesced, and where something is missing.
Unlike `roskva-feed` it is read in parallel, a few segments at a time, and it does not end where a
range cannot be read: such a range is a row of its own, with `object` null and `offset` its end. For
rebuilding what a store has lost.

**`roskva-trace`** is when sampled updates passed each stage.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.arrow import placed
from roskva.feed.base import START, Batch, Marker, Missing
from roskva.feed.reader import LogReader
from roskva.feed.record import META
from roskva.feed.trace import DIRECTORY
from roskva.pipeline.columns import NamedSource, coalesced, columns

FORMAT: Final = "roskva-history"
SCHEMA: Final = columns(
    "offset long, object text?, version long?, source text?, payload bytes?, "
    "published_at long?, reset bool?"
)
_arrow: Final = to_arrow_schema(SCHEMA, timezone="UTC")
_COALESCED_ROWS: Final = 1 << 18
"""Rows that are put together before they are coalesced."""

TRACE_FORMAT: Final = "roskva-trace"
TRACE_SCHEMA: Final = columns("object text, version long, stage text, at long")
"""`at` is wall-clock microseconds."""


# `roskva-history`.


def history(spark: SparkSession, feed: Path) -> DataFrame:
    spark.dataSource.register(HistorySource)
    return spark.read.format(FORMAT).load(str(feed))


@dataclass
class _OffsetRange(InputPartition):
    lineage: int
    after: int
    last: int


class HistorySource(NamedSource):
    NAME = FORMAT
    SCHEMA = SCHEMA

    def reader(self, schema: StructType) -> "HistoryReader":
        return HistoryReader(self.options["path"])


@dataclass
class HistoryReader(DataSourceReader):
    feed: str

    def partitions(self) -> Sequence[InputPartition]:
        """One per segment; the first reaches back to the beginning, whatever is left of it."""
        reader = LogReader(RealDisk(), self.feed)
        starts = [segment.void_from - 1 for segment in reader.segments()]
        if not starts:
            return [_OffsetRange(reader.lineage, START, START)]
        cuts = [START, *starts[1:], reader.end()]
        return [_OffsetRange(reader.lineage, *cut) for cut in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _OffsetRange)
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for read in _reads(LogReader(RealDisk(), self.feed), partition):
            if isinstance(read, Missing):
                row = {"offset": min(read.last, partition.last)}
                yield pa.RecordBatch.from_pylist([row], schema=_arrow)
                continue
            waiting.append(placed(read.up_to(partition.last)))
            rows += read.rows.num_rows
            if rows > _COALESCED_ROWS:
                kept = coalesced(pa.Table.from_batches(waiting))
                yield from _batches(kept)
                waiting, rows = [], 0
        if waiting:
            yield from _batches(coalesced(pa.Table.from_batches(waiting)))


def _reads(reader: LogReader, wanted: _OffsetRange) -> Iterator[Batch | Missing]:
    after = wanted.after
    while after < wanted.last:
        read = reader.read(Marker(wanted.lineage, after), max_rows=wanted.last - after)
        if not isinstance(read, Batch | Missing):
            return
        yield read
        after = read.last


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.cast(_arrow).to_batches()
    return found


# `roskva-trace`.


def traces(spark: SparkSession, data: Path) -> DataFrame:
    spark.dataSource.register(TraceSource)
    return spark.read.format(TRACE_FORMAT).load(str(data))


class TraceSource(NamedSource):
    NAME = TRACE_FORMAT
    SCHEMA = TRACE_SCHEMA

    def reader(self, schema: StructType) -> "TraceReader":
        return TraceReader(Path(self.options["path"]))


@dataclass
class TraceReader(DataSourceReader):
    data: Path

    def partitions(self) -> Sequence[InputPartition]:
        found = sorted((self.data / DIRECTORY).glob(f"*/{META}"))
        if not found:
            raise BadInput(f"{self.data} has no traces: the node has to be told to sample updates")
        return [InputPartition(str(meta.parent)) for meta in found]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(TRACE_SCHEMA, timezone="UTC")
        reader = LogReader(RealDisk(), partition.value)
        after = START
        while isinstance(read := reader.read(Marker(reader.lineage, after)), Batch | Missing):
            after = read.last
            if isinstance(read, Batch):
                columns = [read.rows[name] for name in ("object", "version", "source")]
                columns.append(read.rows["published_at"])
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
