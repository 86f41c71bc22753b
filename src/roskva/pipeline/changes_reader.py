"""`roskva-caravan`: the log of changes, as flows that are read for together need it.

It differs from `roskva-changes` in four ways. Of a range there is one partition, so that all flows
cost one reading, and those that lag leave cores to others. Its rows are changes of the tables that
are wanted, and of those only the last of each row where no flow wants others. The last row of a
range is a **milestone**: it says how far the range goes, and what could not be read of it, so that
loss is an answer and not the end of the query. And it waits a second for the log to grow, since it
is asked again and again for as long as nothing happens.

A range is bounded in changes and in bytes, so that memory is.
"""

import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows
from pyspark.sql.types import StructType

from roskva.disk import RealDisk
from roskva.feed.arrow import PLACED, last_words, placed
from roskva.feed.base import START, Marker
from roskva.feed.reader import LogReader, poll
from roskva.pipeline.columns import NamedSource, columns
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
from roskva.pipeline.source import (
    ROWS,
    TIME,
    FeedStreamReader,
    ShardRange,
    batches,
    limited,
    not_before,
)

NAME: Final = "roskva-caravan"
SCHEMA: Final = columns(
    "offset long, object text?, version long, payload bytes?, published_at time"
)
SHARD: Final = 0
"""The log of changes has one."""
MOST_CHANGES: Final = 500_000
_MOST_BYTES: Final = 128 << 20
"""Of the log, in one micro-batch; about."""
_WAIT_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 0.02
_PART: Final = 1 << 16
"""Changes that are sorted out at a time."""
_arrow: Final = to_arrow_schema(SCHEMA, timezone="UTC")


class Milestone(msgspec.Struct, frozen=True):
    """How far a range goes."""

    lineage: int
    first: int
    last: int
    lost: Sequence[tuple[int, int]] = ()
    """Of it, what is not there any more."""
    superseded: dict[str, int] = {}
    """By table: changes that were left out, as a later one of the same row came with them."""


read_milestone: Final = msgspec.json.Decoder(Milestone).decode


class CaravanSource(NamedSource):
    NAME = NAME
    SCHEMA = SCHEMA
    OPTIONS = ("path", "startingOffsets", "maxUpdatesPerTrigger", "prefixes", "lastOnly")

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return CaravanReader(self.given)


class CaravanReader(FeedStreamReader):
    def __init__(self, options: Options) -> None:
        """`prefixes`: of the objects that are wanted, as a list in JSON."""
        super().__init__(options, of_source=True)
        self._prefixes: list[str] = json.loads(options.text("prefixes", "[]"))
        self._last_only = options.flag("lastOnly", False)
        self._max_rows = options.number("maxUpdatesPerTrigger", MOST_CHANGES)
        self._beat_at = -math.inf

    def initialOffset(self) -> Offsets:
        return {**super().initialOffset(), BEAT: 0}

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> Offsets:
        feeds, starts, beat = self.feeds, passed(start), start.get(BEAT, 0)
        ends = self._target
        if ends is None:
            ends = self._await_growth(starts)
            if ends == starts:
                if time.monotonic() < self._beat_at:
                    return start
                beat += 1
            self._beat_at = time.monotonic() + BEAT_S
        if isinstance(limit, ReadMaxRows):
            most = min(limit.max_rows, changes_within(feeds, starts, _MOST_BYTES))
            ends = limited(feeds, starts, ends, most)
        return {**offsets_of(not_before(starts, ends)), BEAT: beat}

    def _await_growth(self, starts: dict[int, Marker]) -> dict[int, Marker]:
        ends = starts

        def grown() -> bool:
            nonlocal ends
            ends = not_before(starts, self.feeds.ends())
            return ends != starts

        wait_s = max(0.0, min(_WAIT_S, self._beat_at - time.monotonic()))
        poll(grown, wait_s, longest_pause_s=_LONGEST_PAUSE_S)
        return ends

    def reportLatestOffset(self) -> Offsets:
        return {**super().reportLatestOffset(), BEAT: 0}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        starts, ends = passed(start), passed(end)
        if SHARD not in ends:
            return [ShardRange(SHARD, 0, START, START)]
        to = ends[SHARD]
        begin = starts.get(SHARD, Marker(to.lineage, START))
        after = begin.offset if begin.lineage == to.lineage else START
        return [ShardRange(SHARD, to.lineage, after, to.offset)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, ShardRange) and partition.last > partition.after:
            yield from changes_in(self.feeds, partition, self._prefixes, self._last_only)


def changes_within(feeds: Feeds, starts: dict[int, Marker], size: int) -> int:
    """How many changes are about so large, as those in the segment where we are."""
    reader, start = feeds.reader(SHARD), starts.get(SHARD)
    if reader is None or start is None:
        return MOST_CHANGES
    for segment in reader.segments():
        if segment.last is not None and segment.last > start.offset:
            each = RealDisk().size(segment.path) // max(1, segment.last - segment.first + 1)
            return max(1, size // max(1, each))
    return MOST_CHANGES  # what follows is in the newest segment, which is not as large


def changes_in(
    feeds: Feeds, wanted: ShardRange, prefixes: Sequence[str], last_only: bool
) -> Iterator[pa.RecordBatch]:
    """Of a range, and its milestone; nothing of a log that is another one by now."""
    reader = feeds.reader(SHARD)
    if reader is None or not reader.end() or reader.lineage != wanted.lineage:
        return
    found, lost, after = (
        _GatheredChanges(prefixes, last_only),
        list[tuple[int, int]](),
        wanted.after,
    )
    for batch in batches(feeds, wanted, strict=False):
        if batch.first > after + 1:
            lost.append((after + 1, batch.first - 1))
        after = batch.last
        found.take(placed(batch))
        if not last_only:
            yield from found.give()
    if after < wanted.last:
        lost.append((after + 1, wanted.last))
    yield from found.give()
    reach = Milestone(wanted.lineage, wanted.after + 1, wanted.last, lost, found.superseded)
    yield _milestone(reach)


class _GatheredChanges:
    def __init__(self, prefixes: Sequence[str], last_only: bool) -> None:
        self._prefixes, self._last_only = prefixes, last_only
        self._parts: list[pa.RecordBatch] = []
        self._waiting = 0
        self.superseded: Counter[str] = Counter()

    def take(self, rows: pa.RecordBatch) -> None:
        rows = rows.filter(self._wanted(rows))
        self._parts.append(rows)
        self._waiting += rows.num_rows
        if self._last_only and self._waiting >= _PART:
            self._sort_out()

    def give(self) -> Iterator[pa.RecordBatch]:
        if self._last_only:
            self._sort_out()
        parts, self._parts = self._parts, []
        rows = pa.Table.from_batches(parts, PLACED).select(_arrow.names)
        rows = rows.set_column(4, _arrow.field(4), rows["published_at"].cast(TIME)).cast(_arrow)
        yield from rows.combine_chunks().to_batches(max_chunksize=ROWS)

    def _wanted(self, rows: pa.RecordBatch) -> pa.Array:
        change = pc.invert(rows["reset"])
        if not self._prefixes:
            return change
        named = pc.starts_with(rows["object"], self._prefixes[0])
        for prefix in self._prefixes[1:]:
            named = pc.or_(named, pc.starts_with(rows["object"], prefix))
        return pc.and_(change, named)

    def _sort_out(self) -> None:
        before = self._parts
        self._parts = last_words(before)
        self._waiting = 0
        for parts, sign in ((before, 1), (self._parts, -1)):
            for part in parts:
                for counted in pc.value_counts(_tables(part["object"])).to_pylist():
                    self.superseded[counted["values"]] += sign * counted["counts"]


def _tables(objects: pa.Array) -> pa.Array:
    return pc.list_element(pc.split_pattern(objects, "/", max_splits=2), 1)


def _milestone(reach: Milestone) -> pa.RecordBatch:
    payload = msgspec.json.encode(reach)
    values = ([reach.last], [None], [0], [payload], [0])
    arrays = [pa.array(v, field.type) for v, field in zip(values, _arrow, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_arrow)


def log_reader(source: str) -> LogReader | None:
    """Of a source's directory; None: there is no log yet."""
    return feeds_at(source, True).reader(SHARD)
