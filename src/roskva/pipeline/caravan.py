"""A caravan: flows of a source that are read for together, by one query.

The log is read once for all of them, and each row is offered to the SQL of each (`changes.py`).
What they make of it comes to the driver, and goes to the node over HTTP as from any publisher; of
the rows of an object that come together only the last word. Then the markers move: they are the
flows' own, and all that a restart needs, so the query's checkpoint is thrown away with it.

**A slow flow is left behind.** What the node cannot take for now is sent again until it can, and a
flow waits for its own rows only: once others are through and it is not, a second later, the
caravan goes on without it. It is then read for apart.

**What was lost** of the log is no error of the query: each flow that should have read it waits for
a doubt (`flow.py`), and the query goes on without it.
"""

import json
import shutil
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roskva.core.backoff import Backoff, Dice
from roskva.errors import RoskvaError, TooLate
from roskva.feed.base import Marker
from roskva.pipeline.changes import MILESTONE, Boarding, FlowSql, updates_of_flows
from roskva.pipeline.changes_reader import (
    MOST_CHANGES,
    NAME,
    SHARD,
    Milestone,
    read_milestone,
)
from roskva.pipeline.feeds import ChangesFeed, offsets_of
from roskva.pipeline.flow import SparkFlow
from roskva.pipeline.publish_sink import NodeAt, parts, update_from
from roskva.publisher.requests import PublishFailure, UpdateBody

_POOL: Final = "spark.scheduler.pool"
"""Those that lag have one of their own: a core that is free is given to others first."""
_PATIENCE_S: Final = 1.0
"""With a flow that is not through while others are."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 2.0


class Passenger(msgspec.Struct, frozen=True):
    flow: SparkFlow
    sql: FlowSql
    prefix: str
    """Of the objects that are its table's."""


class Item(msgspec.Struct, frozen=True):
    """What a flow publishes."""

    flow: int
    offset: int
    update: UpdateBody


class Caravan:
    def __init__(
        self,
        spark: SparkSession,
        place: str,
        passengers: Sequence[Passenger],
        delivery: "CaravanDelivery",
    ) -> None:
        self.names = frozenset(each.flow.name for each in passengers)
        self._spark, self._place, self._passengers = spark, place, passengers
        self._delivery = delivery
        self._checkpoint = ""
        self.noticed = frozenset[str]()
        """Of those that have left, who was dealt with."""
        self.query: StreamingQuery | None = None
        self.lineage = 0
        """Of the log that it reads."""
        self._failure = ""

    @property
    def error(self) -> str:
        """Why it does not go on."""
        found = None if self.query is None else self.query.exception()
        return self._failure or (str(found) if found is not None else "it ended")

    @property
    def left(self) -> frozenset[str]:
        """Who does not travel with it any more."""
        return frozenset(self._passengers[n].flow.name for n in self._delivery.left)

    def start(self, starts: Mapping[str, Marker], scratch: Path | None, *, lags: bool) -> None:
        first = min(starts.values(), key=lambda marker: marker.offset)
        self.lineage = first.lineage
        flows = [
            Boarding(each.sql, starts[each.flow.name].offset, each.prefix)
            for each in self._passengers
        ]
        log = (
            self._spark.readStream.format(NAME)
            .option("path", self._place)
            .option("startingOffsets", json.dumps(offsets_of({SHARD: first})))
            .option("maxUpdatesPerTrigger", self._most())
            .option("prefixes", json.dumps(self._prefixes()))
            .option("lastOnly", str(all(flow.sql.last_only for flow in flows)).lower())
            .load()
        )
        self._checkpoint = tempfile.mkdtemp(prefix="roskva-caravan-", dir=scratch)
        context = self._spark.sparkContext
        context.setLocalProperty(_POOL, "behind" if lags else "default")
        try:
            self.query = (
                updates_of_flows(log, flows)
                .writeStream.queryName(" ".join(sorted(self.names)))
                .foreachBatch(self._deliver)
                .option("checkpointLocation", self._checkpoint)
                .start()
            )
        finally:
            context.setLocalProperty(_POOL, "default")

    def stop(self) -> None:
        """When this returns, it moves no marker any more."""
        self._delivery.stop()
        if self.query is not None:
            self.query.stop()
        shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _deliver(self, rows: DataFrame, batch: int) -> None:
        """On a thread of the query's own."""
        try:
            self._delivery.deliver(rows.toArrow(), self.lineage)
        except Exception as error:
            self._failure = str(error)  # Spark would only say where it was raised
            raise

    def _most(self) -> int:
        options = [each.sql.ingest.options or {} for each in self._passengers]
        return min(int(given.get("maxUpdatesPerTrigger", MOST_CHANGES)) for given in options)

    def _prefixes(self) -> list[str]:
        found = {each.prefix for each in self._passengers}
        return [] if "" in found else sorted(found)


class CaravanDelivery:
    """Publishes what the flows of a caravan made of a range, and moves their markers."""

    def __init__(self, app: str, flows: Sequence[SparkFlow], node: NodeAt, place: str) -> None:
        self._app, self._flows, self._node = app, flows, node
        self._feed = ChangesFeed(place)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self.left = frozenset[int]()
        """Flows that this is no longer for."""

    def stop(self) -> None:
        self._stopping.set()
        with self._lock:
            pass

    def deliver(self, rows: pa.Table, lineage: int) -> None:
        """`rows`: as `changes.updates_of_flows` makes them. Those of another log are left: in it
        flows stand elsewhere."""
        with self._lock:
            if self._stopping.is_set():
                return
            own = pc.invert(pc.equal(rows["flow"], MILESTONE))
            ranges = [read_milestone(m) for m in rows.filter(pc.invert(own))["payload"].to_pylist()]
            if not ranges or ranges[0].lineage != lineage:
                return  # a beat has none
            reach = max(ranges, key=lambda reach: reach.last)
            items = self._items(rows.filter(own))
            self._count_superseded(ranges)
            self._publish(items, reach)

    def _items(self, rows: pa.Table) -> list[Item]:
        """The last word on each object; what cannot be published is buried."""
        absent = self.left | {n for n, flow in enumerate(self._flows) if flow.waits}
        rows = rows.filter(pc.invert(pc.is_in(rows["flow"], pa.array(sorted(absent), pa.int32()))))
        found, dead = list[Item](), dict[int, list[tuple[int, str]]]()
        for number, count in Counter(rows["flow"].to_pylist()).items():
            self._flows[number].counted.rows += count
        kept, superseded = last_words_of(rows)
        for number, count in superseded.items():
            self._flows[number].counted.superseded += count
        names = ("flow", "offset", "name", "version", "source", "payload", "wrong")
        for number, offset, *told in zip(*(kept[n].to_pylist() for n in names), strict=True):
            name, version, source, payload, wrong = told
            try:
                update = update_from(self._app, name, str(version), source, payload, wrong)
            except RoskvaError as error:
                dead.setdefault(number, []).append((offset, str(error)))
                continue
            found.append(Item(number, offset, update))
        self._bury(dead)
        return found

    def _count_superseded(self, ranges: Sequence[Milestone]) -> None:
        """What the reader has left out already."""
        for reach in ranges:
            for number, flow in enumerate(self._flows):
                table = flow.table
                for name, count in reach.superseded.items():
                    if number not in self.left and table in (None, name):
                        flow.counted.superseded += count

    def _publish(self, items: Sequence[Item], reach: Milestone) -> None:
        backoff, dice = Backoff(_FIRST_PAUSE_S, _LONGEST_PAUSE_S), Dice(time.monotonic_ns())
        since = time.monotonic()
        while not self._stopping.is_set():
            items = self._attempt(items)
            waiting = {item.flow for item in items}
            through = set(range(len(self._flows))) - self.left - waiting
            for number in through:
                self._pass(self._flows[number], reach)
            if not items:
                return
            if through and time.monotonic() - since > _PATIENCE_S:
                self.left = self.left | waiting
                return
            self._stopping.wait(backoff.next_delay(dice))

    def _attempt(self, items: Sequence[Item]) -> list[Item]:
        """Those that are to be sent again."""
        again, dead = list[Item](), dict[int, list[tuple[int, str]]]()
        for part in parts(items, lambda item: item.update):
            outcomes = self._node.attempt([item.update for item in part])
            for item, outcome in zip(part, outcomes, strict=True):
                counted = self._flows[item.flow].counted
                if not isinstance(outcome, PublishFailure):
                    counted.published += 1
                elif outcome.retriable:
                    again.append(item)
                elif outcome.code == TooLate.code:
                    counted.late += 1
                else:
                    reason = f"{outcome.text} ({outcome.code})"
                    dead.setdefault(item.flow, []).append((item.offset, reason))
        self._bury(dead)
        return again

    def _pass(self, flow: SparkFlow, reach: Milestone) -> None:
        behind = Marker(reach.lineage, reach.last)
        stood = flow.marker.offset if flow.marker is not None else 0
        lost = [(first, last) for first, last in reach.lost if last > stood]
        if flow.waits:
            return
        if lost:
            flow.lose(lost[0][0], lost[-1][1], behind)
        else:
            flow.passed(behind)

    def _bury(self, dead: Mapping[int, list[tuple[int, str]]]) -> None:
        reader = self._feed.reader(SHARD)
        for number, rows in dead.items():
            if reader is not None:
                self._flows[number].bury(reader, rows)


def last_words_of(rows: pa.Table) -> tuple[pa.Table, dict[int, int]]:
    """Of each object of each flow the last row, by offset, and how many others each flow had. Rows
    without a name, or with something wrong, stay as they are. With one left out, nobody can tell
    any more whether the author of the other knew it."""
    whole = pc.and_(pc.is_null(rows["wrong"]), pc.is_valid(rows["name"]))
    bad, good = rows.filter(pc.invert(whole)), rows.filter(whole)
    groups = good.group_by(["flow", "name"], use_threads=False).aggregate(
        [("offset", "max"), ("offset", "count")]
    )
    place = _place(groups["flow"], groups["offset_max"])
    found = pc.index_in(_place(good["flow"], good["offset"]), value_set=place)
    kept = good.filter(pc.is_valid(found))
    alone = pc.equal(groups["offset_count"].take(found.drop_null()), 1)
    source = pc.if_else(alone, kept["source"], pa.scalar(None, pa.string()))
    kept = kept.set_column(kept.schema.get_field_index("source"), "source", source)
    superseded = {row["values"]: row["counts"] for row in pc.value_counts(good["flow"]).to_pylist()}
    for row in pc.value_counts(kept["flow"]).to_pylist():
        superseded[row["values"]] -= row["counts"]
    return pa.concat_tables([kept, bad]).sort_by("offset"), superseded


def _place(flow: pa.ChunkedArray, offset: pa.ChunkedArray) -> pa.ChunkedArray:
    """A number for a row of a flow: offsets have 43 bits."""
    return pc.add(pc.shift_left(flow.cast(pa.int64()), 43), offset)
