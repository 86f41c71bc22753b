"""`roskva-history`: what is left of one shard's feed, coalesced, and where something is missing.

Unlike `roskva-feed` it is read in parallel, a few segments at a time, and it does not end where a
range cannot be read: such a range is a row of its own, with `object` null and `offset` its end. For
rebuilding what a store has lost.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from roskva.disk import RealDisk
from roskva.feed.base import START, Batch, Marker, Missing
from roskva.feed.reader import LogReader
from roskva.pipeline.transforms import PLACED, coalesced

FORMAT: Final = "roskva-history"
SCHEMA: Final = StructType(
    [
        StructField("offset", LongType(), nullable=False),
        StructField("object", StringType()),
        StructField("version", LongType()),
        StructField("source", StringType()),
        StructField("payload", BinaryType()),
        StructField("published_at", LongType()),
        StructField("reset", BooleanType()),
    ]
)
_arrow: Final = to_arrow_schema(SCHEMA, timezone="UTC")
_COALESCED_ROWS: Final = 1 << 18
"""Rows that are put together before they are coalesced."""


def history(spark: SparkSession, feed: Path) -> DataFrame:
    spark.dataSource.register(HistorySource)
    return spark.read.format(FORMAT).load(str(feed))


class _Range(InputPartition):
    def __init__(self, lineage: int, after: int, last: int) -> None:
        self.lineage = lineage
        self.after = after
        self.last = last


class HistorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return SCHEMA

    def reader(self, schema: StructType) -> "HistoryReader":
        return HistoryReader(self.options["path"])


class HistoryReader(DataSourceReader):
    def __init__(self, feed: str) -> None:
        self._feed = feed

    def partitions(self) -> Sequence[InputPartition]:
        """One per segment; the first reaches back to the beginning, whatever is left of it."""
        reader = LogReader(RealDisk(), self._feed)
        starts = [segment.void_from - 1 for segment in reader.segments()]
        if not starts:
            return [_Range(reader.lineage, START, START)]
        cuts = [START, *starts[1:], reader.end()]
        return [_Range(reader.lineage, *cut) for cut in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Range)
        waiting: list[pa.RecordBatch] = []
        rows = 0
        for read in _reads(LogReader(RealDisk(), self._feed), partition):
            if isinstance(read, Missing):
                yield _missing(min(read.last, partition.last))
                continue
            waiting.append(_placed(read, partition.last))
            rows += read.rows.num_rows
            if rows > _COALESCED_ROWS:
                kept = coalesced(pa.Table.from_batches(waiting))
                yield from _batches(kept)
                waiting, rows = [], 0
        if waiting:
            yield from _batches(coalesced(pa.Table.from_batches(waiting)))


def _reads(reader: LogReader, wanted: _Range) -> Iterator[Batch | Missing]:
    after = wanted.after
    while after < wanted.last:
        read = reader.read(Marker(wanted.lineage, after), max_rows=wanted.last - after)
        if not isinstance(read, Batch | Missing):
            return
        yield read
        after = read.last


def _placed(batch: Batch, last: int) -> pa.RecordBatch:
    rows = batch.rows.slice(0, last - batch.base + 1)
    offsets = pa.array(range(batch.base, batch.base + rows.num_rows), pa.int64())
    return pa.RecordBatch.from_arrays([offsets, *rows.columns], schema=PLACED)


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    found: list[pa.RecordBatch] = table.cast(_arrow).to_batches()
    return found


def _missing(last: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"offset": last}], schema=_arrow)
