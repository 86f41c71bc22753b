"""What the bridge reads: the feed of each shard from where its matcher stands, coalesced.

It is the source of the bridge's query and of the batches that close gaps, and of use to nobody
else. It differs from `roskva-feed` in three ways. Its ranges begin where the matcher stands, and
not where the last micro-batch ended: a range that the fast path has brought over already costs
nothing, and a short gap is closed in passing. Its rows are what a matcher needs of the range, each
with the range. And it is never at a loss: what cannot be read the matcher finds out by itself.

**When there is something to do.** As long as the fast path brings everything over, the bridge only
looks, and moves its checkpoint on once a second. A shard whose matcher stays behind is what it is
there for. Where an app does without the fast path (`patienceMs` = 0) it does not wait to see.

**Beats.** Python workers that have had nothing to do for a minute are gone, and the next update
would wait for new ones. So there is an empty micro-batch every 30 seconds; the offset counts them.
"""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from roskva.feed.base import Marker
from roskva.pipeline.feeds import Feeds, Offsets, feeds_at, markers_of, offsets_of
from roskva.pipeline.matchers import Matchers, matchers_at
from roskva.pipeline.options import Options
from roskva.pipeline.source import ShardRange, batches, limited, not_before, numbered
from roskva.pipeline.transforms import PLACED, coalesced

NAME: Final = "roskva-bridge"
BRIDGED: Final = StructType(
    [
        StructField("shard", IntegerType(), nullable=False),
        StructField("lineage", LongType(), nullable=False),
        StructField("first", LongType(), nullable=False),
        StructField("last", LongType(), nullable=False),
        StructField("offset", LongType(), nullable=False),
        StructField("object", StringType(), nullable=False),
        StructField("version", LongType(), nullable=False),
        StructField("source", StringType()),
        StructField("payload", BinaryType()),
        StructField("published_at", LongType(), nullable=False),
        StructField("reset", BooleanType(), nullable=False),
    ]
)
"""What a matcher needs of `first … last`; one row for each update of it, by offset."""

BEAT: Final = "beat"
_BEAT_S: Final = 30.0
_LOOK_S: Final = 0.05
_FIRST_PAUSE_S: Final = 0.001
_LONGEST_PAUSE_S: Final = 0.01
_CALM_S: Final = 1.0
"""Between two micro-batches in which nothing has to be delivered."""
_PART: Final = 1 << 18
"""Updates that are coalesced at a time."""
_ONE_TASK: Final = 10_000
"""Updates that a single task reads faster than several."""
SHORT_GAP: Final = 100_000
"""Updates; a longer gap is closed beside the query, so that it holds up nobody."""
_arrow: Final = to_arrow_schema(BRIDGED, timezone="UTC")


class Ranges(InputPartition):
    """Of several shards."""

    def __init__(self, ranges: list[ShardRange]) -> None:
        self.ranges = ranges


class BridgeSource(DataSource):
    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._options = Options(
            NAME, options, "path", "patienceMs", "maxUpdatesPerTrigger", "warmPartitions"
        )

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return BRIDGED

    def reader(self, schema: StructType) -> DataSourceReader:
        return GapReader(self._options)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return BridgeReader(self._options)


class BridgeReader(DataSourceStreamReader):
    def __init__(self, options: Options) -> None:
        self._path = options.text("path")
        self._patience_s = float(options.text("patienceMs", "0")) / 1000
        self._max_rows = options.number("maxUpdatesPerTrigger", 2_000_000)
        self._warm = options.number("warmPartitions", 1)
        self._batch_at = 0.0

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
        assert self._max_rows is not None
        return ReadMaxRows(self._max_rows)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:
        feeds = feeds_at(self._path)
        starts, beat = _split(start)
        ends = self._due(feeds, starts)
        now = time.monotonic()
        if ends == starts:
            if now < self._batch_at + _BEAT_S:
                return start
            beat += 1
        elif isinstance(limit, ReadMaxRows):
            ends = not_before(starts, limited(feeds, starts, ends, limit.max_rows))
        self._batch_at = now
        return {**offsets_of(ends), BEAT: beat}

    def _due(self, feeds: Feeds, starts: dict[int, Marker]) -> dict[int, Marker]:
        """The ends, as soon as there is something to do; else the starts, after a moment."""
        deadline = time.monotonic() + _LOOK_S
        pause = _FIRST_PAUSE_S
        patience = Patience(self._patience_s)
        while True:
            ends = not_before(starts, feeds.ends())
            if ends != starts and self._is_due(ends, patience):
                return ends
            if time.monotonic() + pause > deadline:
                return starts
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _is_due(self, ends: dict[int, Marker], patience: "Patience") -> bool:
        now = time.monotonic()
        if now >= self._batch_at + _CALM_S or not self._patience_s:
            return True
        return patience.exhausted(ends, matchers_at(self._path), now)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        starts, _ = _split(start)
        ends, _ = _split(end)
        feeds = feeds_at(self._path)
        found = ranges_to_deliver(feeds, matchers_at(self._path), starts, ends)
        assert self._warm is not None
        return shared_out(feeds, found) or [Ranges([]) for _ in range(self._warm)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return bridged(feeds_at(self._path), partition)

    def commit(self, end: dict[str, int]) -> None:
        pass

    def stop(self) -> None:
        pass


class GapReader(DataSourceReader):
    """All that the matchers lack, up to so many updates; in a batch of its own."""

    def __init__(self, options: Options) -> None:
        self._path = options.text("path")
        self._max_rows = options.number("maxUpdatesPerTrigger", 2_000_000)

    def partitions(self) -> Sequence[InputPartition]:
        feeds, matchers = feeds_at(self._path), matchers_at(self._path)
        assert self._max_rows is not None
        ends = feeds.ends()
        positions = matchers.positions(ends)
        ends = limited(feeds, positions, ends, self._max_rows)
        return shared_out(feeds, ranges_to_deliver(feeds, matchers, positions, ends))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return bridged(feeds_at(self._path), partition)


class Patience:
    """How long the fast path may take before a matcher counts as behind."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._since: dict[int, tuple[int, float]] = {}
        """What each shard has to reach, and since when we wait for that."""

    def exhausted(self, ends: dict[int, Marker], matchers: Matchers, now: float) -> bool:
        for shard, end in ends.items():
            self._since.setdefault(shard, (end.offset, now))
        for shard, at in matchers.positions(ends).items():
            if at.offset >= self._since[shard][0]:
                self._since[shard] = ends[shard].offset, now
        return any(now > since + self._seconds for _, since in self._since.values())


def ranges_to_deliver(
    feeds: Feeds, matchers: Matchers, starts: dict[int, Marker], ends: dict[int, Marker]
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


def shared_out(feeds: Feeds, ranges: list[ShardRange]) -> list[InputPartition]:
    """Each range for itself if there is much to read, else all together: what a task costs beside
    its work is most of what an update waits for."""
    updates = sum(_count(feeds, wanted) for wanted in ranges)
    if not ranges or updates > _ONE_TASK:
        return [Ranges([wanted]) for wanted in ranges]
    return [Ranges(ranges)]


def _count(feeds: Feeds, wanted: ShardRange) -> int:
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
        offsets = numbered(batch.base, batch.rows.num_rows)
        gathered.append(pa.RecordBatch.from_arrays([offsets, *batch.rows.columns], schema=PLACED))
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


def passed(offsets: dict[str, int]) -> dict[int, Marker]:
    """Where the query has been, by its offset."""
    return _split(offsets)[0]


def _split(offsets: dict[str, int]) -> tuple[dict[int, Marker], int]:
    return markers_of({k: v for k, v in offsets.items() if k != BEAT}), offsets.get(BEAT, 0)
