"""`roskva-feed`: the feed as a Spark source, for streams and for batches.

    spark.dataSource.register(FeedSource)
    spark.readStream.format("roskva-feed").load("/var/lib/roskva")

`roskva-changes` is the same for the log of changes of a source.

Every update is a row, in the order of its shard; a partition is one shard, and what the log holds
in record batches goes from the mapped file to Spark as it lies there. A stream waits a moment for
the feed to grow instead of polling it. A range that cannot be read any more ends the query, as in
Spark's other sources, unless `failOnDataLoss` is false.

A reader is copied into other processes, so it holds nothing open; what the processes keep from one
micro-batch to the next is in `feeds_at`.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from roskva.config import CHANGES_FORMAT
from roskva.errors import BadInput, Damaged
from roskva.feed.arrow import numbered
from roskva.feed.base import START, Batch, Foreign, Idle, Marker, Missing
from roskva.feed.reader import poll
from roskva.pipeline.columns import NamedSource, columns
from roskva.pipeline.feeds import (
    EARLIEST,
    LATEST,
    Feeds,
    Offsets,
    Options,
    Where,
    feeds_at,
    markers_of,
    offsets_of,
)

NAME: Final = "roskva-feed"
SCHEMA: Final = columns(
    "shard int, offset long, object text, version long, source text?, "
    "payload bytes?, published_at time, reset bool, appended_at time"
)
ROWS: Final = 16_384
"""In one Arrow batch on its way to Spark, about."""
_WAIT_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.01
_log = logging.getLogger(__name__)
_arrow: Final = to_arrow_schema(SCHEMA, timezone="UTC")


class DataLoss(Damaged):
    """A part of the feed that was to be read is no longer there."""

    code = "data_loss"


@dataclass
class ShardRange(InputPartition):
    """The updates of one shard beyond `after`, up to `last`."""

    shard: int
    lineage: int
    after: int
    last: int


class FeedSource(NamedSource):
    NAME = NAME
    SCHEMA = SCHEMA
    OF_SOURCE: ClassVar[bool] = False

    OPTIONS = (
        *("path", "startingOffsets", "endingOffsets", "maxUpdatesPerTrigger", "failOnDataLoss"),
    )

    def schema(self) -> StructType:
        feeds_at(self.given.text("path"), self.OF_SOURCE)  # a wrong path is said at once
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return FeedBatchReader(self.given, self.OF_SOURCE)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FeedStreamReader(self.given, self.OF_SOURCE)


class ChangesSource(FeedSource):
    """The log of changes of a source, at its directory; `changes.py` makes sense of the rows."""

    NAME = CHANGES_FORMAT
    OF_SOURCE = True


class _FeedReader:
    def __init__(self, options: Options, of_source: bool = False) -> None:
        self._path, self._of_source = options.text("path"), of_source
        self._starting = options.where("startingOffsets", EARLIEST)
        self._strict = options.flag("failOnDataLoss", True)

    @property
    def feeds(self) -> Feeds:
        return feeds_at(self._path, self._of_source)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.feeds, partition, self._strict)


class FeedBatchReader(_FeedReader, DataSourceReader):
    """Everything from one place to another, once."""

    def __init__(self, options: Options, of_source: bool = False) -> None:
        super().__init__(options, of_source)
        self._ending = options.where("endingOffsets", LATEST)
        if self._starting == LATEST or self._ending == EARLIEST:
            raise BadInput("a batch from the latest, or to the earliest, offset has no updates")

    def partitions(self) -> Sequence[InputPartition]:
        feeds = self.feeds
        starts, ends = _resolved(self._starting, feeds), _resolved(self._ending, feeds)
        return _ranges(starts, ends, feeds, self._strict)


class FeedStreamReader(_FeedReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """It is not told to commit: retention follows markers of its own."""

    def __init__(self, options: Options, of_source: bool = False) -> None:
        super().__init__(options, of_source)
        self._max_rows = options.number("maxUpdatesPerTrigger", None)
        self._target: dict[int, Marker] | None = None

    def initialOffset(self) -> Offsets:
        return offsets_of(_resolved(self._starting, self.feeds))

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable() if self._max_rows is None else ReadMaxRows(self._max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self.feeds.ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:
        feeds = self.feeds
        starts = markers_of(start)
        ends = await_growth(feeds, starts) if self._target is None else self._target
        if isinstance(limit, ReadMaxRows):
            ends = limited(feeds, starts, ends, limit.max_rows)
        return offsets_of(not_before(starts, ends))

    def reportLatestOffset(self) -> Offsets:
        return offsets_of(self.feeds.ends())

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return _ranges(markers_of(start), markers_of(end), self.feeds, self._strict)


def _resolved(where: Where, feeds: Feeds) -> dict[int, Marker]:
    if where == EARLIEST:
        return feeds.starts()
    ends = feeds.ends()
    if isinstance(where, str):
        return ends
    unknown = where.keys() - range(feeds.shards)
    if unknown:
        raise BadInput(f"{feeds.data} has shards 0 to {feeds.shards - 1}; not {min(unknown)}")
    asked = {
        shard: Marker(marker.lineage or ends[shard].lineage, marker.offset)
        for shard, marker in where.items()
        if shard in ends
    }
    return {**feeds.starts(), **asked}


def await_growth(feeds: Feeds, starts: dict[int, Marker]) -> dict[int, Marker]:
    """The ends, as soon as one of them has moved, or after a moment."""
    ends = starts

    def grown() -> bool:
        nonlocal ends
        ends = feeds.ends()
        return not_before(starts, ends) != starts

    poll(grown, _WAIT_S, longest_pause_s=_LONGEST_PAUSE_S)
    return ends


def not_before(starts: dict[int, Marker], ends: dict[int, Marker]) -> dict[int, Marker]:
    """The ends, unless one is where we were past already: after a power cut that is so until the
    feed's writer is back."""
    found = {**starts, **ends}
    for shard, start in starts.items():
        if found[shard].lineage == start.lineage and found[shard].offset < start.offset:
            found[shard] = start
    return found


def limited(
    feeds: Feeds, starts: dict[int, Marker], ends: dict[int, Marker], max_rows: int
) -> dict[int, Marker]:
    """The same number for all that have so many, and what those leave over for the others."""
    waiting = {
        shard: reader.count(_start(starts, end, shard))
        for shard, end in ends.items()
        if (reader := feeds.reader(shard)) is not None
    }
    found = dict(ends)
    room, shards = max_rows, len(waiting)
    for shard in sorted(waiting, key=waiting.__getitem__):
        share = max(1, room // shards)
        shards -= 1
        room -= min(share, waiting[shard])
        reader = feeds.reader(shard)
        if waiting[shard] > share and reader is not None:
            last = reader.advance(_start(starts, ends[shard], shard), share)
            found[shard] = Marker(ends[shard].lineage, min(last, ends[shard].offset))
    return found


def _start(starts: dict[int, Marker], end: Marker, shard: int) -> int:
    start = starts.get(shard, end)
    return start.offset if start.lineage == end.lineage else START


def _ranges(
    starts: dict[int, Marker], ends: dict[int, Marker], feeds: Feeds, strict: bool
) -> list[InputPartition]:
    found: list[InputPartition] = []
    for shard, end in sorted(ends.items()):
        start = starts.get(shard, Marker(end.lineage, START))
        if start.lineage != end.lineage:
            _lost(strict, f"the feed of shard {shard} in {feeds.data} is another one than before")
            start = Marker(end.lineage, START)
        if end.offset > start.offset:
            found.append(ShardRange(shard, end.lineage, start.offset, end.offset))
    return found


def batches(feeds: Feeds, wanted: ShardRange, strict: bool) -> Iterator[Batch]:
    """What the feed has of a range, in the order of its offsets."""
    reader = feeds.reader(wanted.shard)
    after = wanted.after
    while reader is not None and after < wanted.last:
        match reader.read(Marker(wanted.lineage, after), max_rows=wanted.last - after):
            case Batch() as batch:
                after = batch.last
                yield batch.up_to(wanted.last)
            case Missing(first=first, last=last, why=why):
                last = min(last, wanted.last)
                _lost(strict, f"shard {wanted.shard} has lost {first} to {last}: {why}")
                after = last
            case Idle(last=end) | Foreign(last=end):
                _lost(strict, f"shard {wanted.shard} ends at {end}; {wanted.last} was asked for")
                return


def _lost(strict: bool, sentence: str) -> None:
    if strict:
        raise DataLoss(
            f"{sentence}. What was lost cannot be had back; to go on without it set "
            "failOnDataLoss to false, or begin anew with another checkpoint"
        )
    _log.warning("%s", sentence)


def _read(feeds: Feeds, partition: InputPartition, strict: bool) -> Iterator[pa.RecordBatch]:
    if not isinstance(partition, ShardRange):
        return  # Spark's own, in place of none
    gathered: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches(feeds, partition, strict):
        gathered.append(_with_place(partition.shard, batch))
        rows += batch.rows.num_rows
        if rows >= ROWS:
            yield pa.concat_batches(gathered)
            gathered, rows = [], 0
    if gathered:
        yield pa.concat_batches(gathered)


def _with_place(shard: int, batch: Batch) -> pa.RecordBatch:
    objects, versions, sources, payloads, published, resets = batch.rows.columns
    count = batch.rows.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(shard, pa.int32()), count),
            numbered(batch.base, count),
            objects,
            versions,
            sources,
            payloads,
            published.cast(TIME),
            resets,
            pa.repeat(pa.scalar(batch.appended_at, pa.int64()).cast(TIME), count),
        ],
        schema=_arrow,
    )


TIME: Final = pa.timestamp("us", "UTC")
