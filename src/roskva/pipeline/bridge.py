"""The bridge: certain delivery. Everything in the feed reaches its matcher, whoever was down.

One streaming query, stateless and without a shuffle, from the feed (`roskva-bridge`) to the
matchers. It goes on whatever becomes of a single matcher. When one is back and lacks more than the
query makes up for in passing, the gap is closed beside it, by a batch read of the feed. Nothing
depends on the checkpoint: what is delivered begins where the matchers stand. It only says where the
query need not look again.

**What is read** is the feed of each shard from where its matcher stands, coalesced; it is of use to
nobody else. It differs from `roskva-feed` in three ways. Its ranges begin where the matcher stands,
and not where the last micro-batch ended: a range that the fast path has brought over already costs
nothing, and a short gap is closed in passing. Its rows are what a matcher needs of the range, each
with the range. And it is never at a loss: what cannot be read the matcher finds out by itself.

**When there is something to do** the matchers say: the source waits for one of them to miss
something (`GapWatch`), and until then there is no micro-batch. So what the fast path brings over
costs nothing here, and what is left to the bridge is begun with at once.

**Beats** (`feeds.py`) keep Python workers at hand.

**Where it ends**: the driver hands each shard's range to its matcher. Rows come with the range they
stand for (`BRIDGED`), those of a range together. A range that a matcher does not take is no error
of the query: its gap is closed later, from the feed.
"""

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from roskva.feed.arrow import PLACED, SCHEMA, placed
from roskva.feed.base import Batch, Marker, updates_of
from roskva.pipeline.columns import NamedSource, coalesced, columns
from roskva.pipeline.feeds import (
    BEAT,
    BEAT_S,
    Feeds,
    Offsets,
    Options,
    feeds_at,
    offsets_of,
    passed,
)
from roskva.pipeline.node import Entry, MatcherLinks, Range, gaps_at, matchers_at
from roskva.pipeline.source import ShardRange, batches, limited, not_before

NAME: Final = "roskva-bridge"
BRIDGED: Final = columns(
    "shard int, lineage long, first long, last long, offset long, object text, "
    "version long, source text?, payload bytes?, published_at long, reset bool"
)
"""What a matcher needs of `first … last`; one row for each update of it, by offset."""

_WAIT_S: Final = 1.0
"""For a gap, until Spark is told that there is none; a query that is stopped waits for that."""
_PART: Final = 1 << 18
"""Updates that are coalesced at a time."""
_ONE_TASK: Final = 10_000
"""Updates that a single task reads faster than several."""
SHORT_GAP: Final = 100_000
"""Updates; a longer gap is closed beside the query, so that it holds up nobody."""
_arrow: Final = to_arrow_schema(BRIDGED, timezone="UTC")

_PLACE: Final = ("shard", "lineage", "first", "last")
_SLICE: Final = 10_000
"""Rows that are turned into updates at a time."""

_GAP_S: Final = 3.0
"""A matcher that has not moved for so long, with updates before it, has a gap."""


# What it reads.


@dataclass
class Ranges(InputPartition):
    """What one task reads, of several shards."""

    ranges: list[ShardRange]


class BridgeSource(NamedSource):
    NAME = NAME
    SCHEMA = BRIDGED

    OPTIONS = ("path", "maxUpdatesPerTrigger")

    def reader(self, schema: StructType) -> DataSourceReader:
        return GapReader(self.given)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BridgeReader(self.given)


class BridgeReader(DataSourceStreamReader):
    def __init__(self, options: Options) -> None:
        self._path = options.text("path")
        self._max_rows = options.number("maxUpdatesPerTrigger", 2_000_000)
        self._beat_at = -math.inf

    def initialOffset(self) -> Offsets:
        """Where the matchers stand: before that there is nothing to do."""
        feeds = feeds_at(self._path)
        positions = matchers_at(self._path).positions(range(feeds.shards))
        starts = {
            shard: marker
            for shard, marker in feeds.starts().items()
            if shard not in positions or positions[shard].lineage != marker.lineage
        }
        ends = feeds.ends()
        known = {shard: at for shard, at in positions.items() if shard in ends}
        return {**offsets_of({**known, **starts}), BEAT: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:
        feeds = feeds_at(self._path)
        starts, beat = passed(start), start.get(BEAT, 0)
        wait_s = max(0.0, min(_WAIT_S, self._beat_at - time.monotonic()))
        if not gaps_at(self._path).await_gap(starts, wait_s):
            if time.monotonic() < self._beat_at:
                return start
            beat += 1
        ends = not_before(starts, feeds.ends())
        if isinstance(limit, ReadMaxRows):
            ends = not_before(starts, limited(feeds, starts, ends, limit.max_rows))
        self._beat_at = time.monotonic() + BEAT_S
        return {**offsets_of(ends), BEAT: beat}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        feeds, matchers = feeds_at(self._path), matchers_at(self._path)
        found = ranges_to_deliver(feeds, matchers, passed(start), passed(end))
        return divided(feeds, found) or [Ranges([])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return bridged(feeds_at(self._path), partition)


class GapReader(DataSourceReader):
    """All that the matchers lack, up to so many updates; in a batch of its own."""

    def __init__(self, options: Options) -> None:
        self._path = options.text("path")
        self._max_rows = options.number("maxUpdatesPerTrigger", 2_000_000)

    def partitions(self) -> Sequence[InputPartition]:
        feeds, matchers = feeds_at(self._path), matchers_at(self._path)
        ends = feeds.ends()
        positions = matchers.positions(ends)
        ends = limited(feeds, positions, ends, self._max_rows)
        return divided(feeds, ranges_to_deliver(feeds, matchers, positions, ends))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return bridged(feeds_at(self._path), partition)


def ranges_to_deliver(
    feeds: Feeds, matchers: MatcherLinks, starts: dict[int, Marker], ends: dict[int, Marker]
) -> list[ShardRange]:
    """From where each matcher stands; of one that is down nothing, until it is back."""
    found: list[ShardRange] = []
    for shard, at in sorted(matchers.positions(ends).items()):
        end, reader = ends[shard], feeds.reader(shard)
        if reader is None or at.lineage != end.lineage or at.offset >= end.offset:
            continue
        start = starts.get(shard, at)
        long_gap = start.offset > at.offset and (
            reader.count(at.offset) - reader.count(start.offset) > SHORT_GAP
        )
        after = start.offset if long_gap and start.lineage == end.lineage else at.offset
        if after < end.offset:
            found.append(ShardRange(shard, end.lineage, after, end.offset))
    return found


def divided(feeds: Feeds, ranges: list[ShardRange]) -> list[InputPartition]:
    """Each range for itself if there is much to read, else all together: what a task costs beside
    its work is most of what an update waits for."""
    updates = sum(_updates_in(feeds, wanted) for wanted in ranges)
    if not ranges or updates > _ONE_TASK:
        return [Ranges([wanted]) for wanted in ranges]
    return [Ranges(ranges)]


def _updates_in(feeds: Feeds, wanted: ShardRange) -> int:
    reader = feeds.reader(wanted.shard)
    return 0 if reader is None else reader.count(wanted.after) - reader.count(wanted.last)


def bridged(feeds: Feeds, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """What matchers need of the ranges of a partition."""
    if not isinstance(partition, Ranges):
        return  # Spark's own, in place of none
    if len(partition.ranges) == 1:
        yield from _needed(feeds, partition.ranges[0])
    elif partition.ranges:
        parts = [rows for wanted in partition.ranges for rows in _needed(feeds, wanted)]
        if parts:
            yield pa.concat_batches(parts)


def _needed(feeds: Feeds, wanted: ShardRange) -> Iterator[pa.RecordBatch]:
    rows = PLACED.empty_table()
    gathered: list[pa.RecordBatch] = []
    waiting, last = 0, wanted.after
    for batch in batches(feeds, wanted, strict=False):
        if batch.first > last + 1:
            break  # something is lost: the matcher has to find that out for itself
        last = batch.last
        gathered.append(placed(batch))
        waiting += batch.rows.num_rows
        if waiting >= _PART:
            rows = coalesced(pa.concat_tables([rows, pa.Table.from_batches(gathered)]))
            gathered, waiting = [], 0
    rows = coalesced(pa.concat_tables([rows, pa.Table.from_batches(gathered, PLACED)]))
    for part in rows.combine_chunks().to_batches(max_chunksize=10_000):
        place = (wanted.shard, wanted.lineage, wanted.after + 1, last)
        columns = [
            pa.repeat(pa.scalar(value, field.type), part.num_rows)
            for value, field in zip(place, _arrow, strict=False)
        ]
        yield pa.RecordBatch.from_arrays([*columns, *part.columns], schema=_arrow)


# Where it ends.


def deliver(rows: pa.Table, matchers: MatcherLinks) -> dict[Range, Marker | None]:
    """Where each matcher then stands; None if it does not answer."""
    ranges = list(ranges_in(rows))
    offered = [(found, _entries(part)) for found, part in ranges]
    stand = matchers.deliver(offered)
    return {found: at for (found, _), at in zip(ranges, stand, strict=True)}


def ranges_in(rows: pa.Table) -> Iterator[tuple[Range, pa.Table]]:
    """With its rows, and the places where they are cut."""
    for shard in pc.unique(rows["shard"]).to_pylist():
        part = rows.filter(pc.equal(rows["shard"], shard))
        yield Range(*(part[name][0].as_py() for name in _PLACE)), part


def _entries(rows: pa.Table) -> Iterator[Entry]:
    updates = rows.select(SCHEMA.names)
    for start in range(0, rows.num_rows, _SLICE):
        offsets = rows["offset"].slice(start, _SLICE).to_pylist()
        [batch] = updates.slice(start, _SLICE).combine_chunks().to_batches()
        yield from zip(offsets, updates_of(batch), strict=True)


# The query.


class Lag(msgspec.Struct, frozen=True):
    """What the feed has and a matcher has not."""

    updates: int
    seconds: float
    """Since the oldest of them was appended."""


class SparkBridge:
    def __init__(self, spark: SparkSession, data: Path) -> None:
        self._spark = spark
        self._data = str(data)
        self._feeds = Feeds(self._data)
        self._matchers = MatcherLinks(self._data)
        self._delivering = MatcherLinks(self._data)
        self._stood: dict[int, tuple[int, float]] = {}
        self.delivered = 0
        """Ranges that matchers took over."""
        self.gaps_closed = 0
        spark.dataSource.register(BridgeSource)

    def start(self, checkpoint: Path) -> StreamingQuery:
        rows = self._spark.readStream.format(NAME).option("path", self._data).load()
        return (
            rows.writeStream.queryName("bridge")
            .foreachBatch(self._deliver)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def _deliver(self, rows: DataFrame, batch: int) -> None:
        """On a thread of the query's own."""
        self.delivered += _taken(deliver(rows.toArrow(), self._delivering))

    def close(self) -> None:
        self._matchers.close()
        self._delivering.close()

    def lags(self) -> dict[int, Lag]:
        """Of the matchers that answer and are behind."""
        found = {}
        now = time.time()
        ends = self._feeds.ends()
        for shard, at in self._matchers.positions(ends).items():
            reader = self._feeds.reader(shard)
            if reader is None or at.lineage != reader.lineage or at.offset >= ends[shard].offset:
                continue
            oldest = reader.read(Marker(at.lineage, at.offset), max_rows=1)
            since = oldest.appended_at / 1e6 if isinstance(oldest, Batch) else now
            found[shard] = Lag(reader.count(at.offset), max(0.0, now - since))
        return found

    def gaps(self, lags: dict[int, Lag], passed: dict[int, Marker]) -> list[int]:
        """Shards whose matcher stands still where the query has passed it."""
        now = time.monotonic()
        stood, self._stood = self._stood, {}
        for shard, at in self._matchers.positions(lags).items():
            if shard in passed and at.lineage == passed[shard].lineage:
                before, since = stood.get(shard, (at.offset, now))
                if at.offset < passed[shard].offset:
                    self._stood[shard] = at.offset, since if before == at.offset else now
        return [shard for shard, (_, since) in self._stood.items() if now - since > _GAP_S]

    def close_gaps(self) -> int:
        """By batches of the feed, until nothing is missing that can be had; how many it took."""
        batches = 0
        with closing(MatcherLinks(self._data)) as matchers:
            while True:
                rows = self._spark.read.format(NAME).option("path", self._data).load()
                taken = _taken(deliver(rows.toArrow(), matchers))
                if not taken:
                    return batches
                batches += 1
                self.gaps_closed += taken


def _taken(delivered: dict[Range, Marker | None]) -> int:
    """The ranges that were taken over."""
    return sum(at is not None and at.offset >= found.last for found, at in delivered.items())
