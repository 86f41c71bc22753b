"""The bridge: certain delivery. Everything in the feed reaches its matcher, whoever was down.

One streaming query, stateless and without a shuffle, from the feed (`bridging.py`) to the matchers
(`sink.py`). It goes on whatever becomes of a single matcher. When one is back and lacks more than
the query makes up for in passing, the gap is closed beside it, by a batch read of the feed.

Nothing depends on the checkpoint: what is delivered begins where the matchers stand. It only says
where the query need not look again.
"""

import time
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roskva.feed.base import Batch, Marker
from roskva.pipeline.bridging import NAME, BridgeSource
from roskva.pipeline.feeds import Feeds
from roskva.pipeline.matchers import Matchers, Range
from roskva.pipeline.sink import deliver

_PATIENCE_MS: Final = 30
"""For the fast path, where there is one."""
_GAP_S: Final = 3.0
"""A matcher that has not moved for so long, with updates before it, has a gap."""


class Lag(msgspec.Struct, frozen=True):
    """What the feed has and a matcher has not."""

    updates: int
    seconds: float
    """Since the oldest of them was appended."""


class Bridge:
    def __init__(self, spark: SparkSession, data: Path, *, fast_path: bool) -> None:
        """`fast_path`: whether all apps use it; if not, the bridge has no time to lose."""
        self._spark = spark
        self._data = str(data)
        self._patience_ms = _PATIENCE_MS if fast_path else 0
        self._feeds = Feeds(self._data)
        self._matchers = Matchers(self._data)
        self._delivering = Matchers(self._data)
        self._stood: dict[int, tuple[int, float]] = {}
        self.delivered = 0
        """Ranges that matchers took over."""
        self.gaps_closed = 0
        spark.dataSource.register(BridgeSource)

    def start(self, checkpoint: Path) -> StreamingQuery:
        rows = (
            self._spark.readStream.format(NAME)
            .option("path", self._data)
            .option("patienceMs", self._patience_ms)
            .option("warmPartitions", self._spark.sparkContext.defaultParallelism)
            .load()
        )
        return (
            rows.writeStream.queryName("bridge")
            .foreachBatch(self._deliver)
            .option("checkpointLocation", str(checkpoint))
            .start()
        )

    def _deliver(self, rows: DataFrame, batch: int) -> None:
        """On a thread of the query's own."""
        self.delivered += _count(deliver(rows.toArrow(), self._delivering))

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
        with closing(Matchers(self._data)) as matchers:
            while True:
                rows = self._spark.read.format(NAME).option("path", self._data).load()
                taken = _count(deliver(rows.toArrow(), matchers))
                if not taken:
                    return batches
                batches += 1
                self.gaps_closed += taken


def _count(delivered: dict[Range, Marker | None]) -> int:
    """The ranges that were taken over."""
    return sum(at is not None and at.offset >= found.last for found, at in delivered.items())
