"""The flows of one source: who is read for together, who apart, and how all of them are.

**Near each other, together.** Flows whose markers are near each other travel as one caravan: the
log is read once for them. One that lags, because it is new or was away, travels alone until it has
come near the others; then both caravans end, and one begins where the last of them stood. A marker
moves only when all before it is published, so nothing is missed, and what is read again is skipped.

**Trouble stays with who has it.** When the query of several ends with an error nobody knows whose
SQL it was, so each goes on alone; whoever gets to the end of the log joins the others again, and
who fails alone is tried again, ever later. Those that the node does not take updates of for now,
while it takes those of others, leave their caravan (`caravan.py`) and travel together, apart. A
flow that has lost changes waits for its doubt (`flow.py`) and is read for afterwards.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from roskva.config import Config
from roskva.errors import BadConfig, BadInput, RoskvaError
from roskva.feed.reader import LogReader
from roskva.pipeline.caravan import Caravan, CaravanDelivery, Passenger
from roskva.pipeline.changes import flow_sql
from roskva.pipeline.changes_reader import SHARD, CaravanSource
from roskva.pipeline.feeds import ChangesFeed
from roskva.pipeline.flow import SparkFlow
from roskva.pipeline.progress import note_progress, short
from roskva.pipeline.publish_sink import NodeAt
from roskva.pipeline.session import PipelineFailed
from roskva.sources.changes import DIRECTORY
from roskva.wire.admin import PartNow

NEAR: Final = 20_000
"""Changes between flows that are near each other."""
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_TIDY_S: Final = 3600.0
_ONCE_TICK_S: Final = 0.1
_log = logging.getLogger(__name__)


class FlowStanding(msgspec.Struct, frozen=True):
    offset: int
    alone: bool = False
    """It may be what the query of several has failed at."""
    stuck: bool = False
    """The node did not take its updates, while it took those of others."""


def companies(flows: Mapping[str, FlowStanding], near: int = NEAR) -> list[frozenset[str]]:
    """Who is read for together; those that are furthest come last."""
    alone = [frozenset((name,)) for name, flow in flows.items() if flow.alone]
    stuck = frozenset(name for name, flow in flows.items() if flow.stuck and not flow.alone)
    others = {n: flow.offset for n, flow in flows.items() if not (flow.alone or flow.stuck)}
    found: list[set[str]] = []
    reached = 0
    for name, offset in sorted(others.items(), key=lambda each: each[1]):
        if not found or offset - reached > near:
            found.append(set())
        found[-1].add(name)
        reached = offset
    return [*alone, *([stuck] if stuck else []), *map(frozenset, found)]


class _Trouble(msgspec.Struct):
    """What keeps a flow from the others."""

    alone: bool = False
    stuck: bool = False
    until: int = 0
    """The end of the log when it began: who has passed that is out of it."""
    again_at: float = 0.0
    pause_s: float = _FIRST_PAUSE_S


class SourceFlows:
    def __init__(
        self,
        spark: SparkSession,
        source: str,
        config: Config,
        directories: Mapping[str, Path],
        scratch: Path | None = None,
        node: Callable[[], NodeAt] | None = None,
    ) -> None:
        """`directories`: of each of the flows, by name; `node`: makes the way to another one than
        that which serves the data. Each caravan has its own."""
        data = config.node.data
        self._spark, self._scratch = spark, scratch
        self._app = config.source[source].app_of(source)
        self._place = str(data / DIRECTORY / source)
        self._feed: ChangesFeed | None = None
        self._node = node or (lambda: NodeAt("", str(data), flow=self._app))
        self.flows = {
            name: SparkFlow(name, config, directory, self._place)
            for name, directory in directories.items()
        }
        self._passengers: dict[str, Passenger] = {}
        self._troubles = {name: _Trouble() for name in self.flows}
        self._caravans: list[Caravan] = []
        self._tidy_at = 0.0
        # A value that cannot be computed is null, instead of the end of the query.
        spark.conf.set("spark.sql.ansi.enabled", "false")
        spark.dataSource.register(CaravanSource)

    @property
    def parts(self) -> Sequence[PartNow]:
        return [flow.part for flow in self.flows.values()]

    def tick(self) -> None:
        """Once a second or so."""
        now = time.monotonic()
        try:
            self._go_on(now)
        except RoskvaError as error:  # of the disk, or the log is just made anew
            _log.error("the flows of %s: %s", self._place, error)
        if now >= self._tidy_at:
            self._tidy_at = now + _TIDY_S
            for flow in self.flows.values():
                flow.tidy()

    def _go_on(self, now: float) -> None:
        reader = self.reader()
        if reader is not None:
            end = reader.end()
            self._look_at(end)
            for flow in self.flows.values():
                flow.make_up(reader)
            self._regroup(reader, end)
        for flow in self.flows.values():
            flow.keep(now)
            flow.report(reader)

    def stop(self) -> None:
        for caravan in self._caravans:
            caravan.stop()
        self._caravans = []
        for flow in self.flows.values():
            flow.keep()

    def reader(self) -> LogReader | None:
        if self._feed is None and Path(self._place).is_dir():
            self._feed = ChangesFeed(self._place)
        return None if self._feed is None else self._feed.reader(SHARD)

    # How it goes with those that are under way.

    def _look_at(self, end: int) -> None:
        for caravan in list(self._caravans):
            query = caravan.query
            if query is None or not query.isActive:
                self._ended(caravan, caravan.error, end)
                continue
            for name in caravan.left - caravan.noticed:
                self._troubles[name] = _Trouble(stuck=True, until=end)
                _log.warning("ingest %s: the node does not take its updates for now", name)
            caravan.noticed = caravan.left
            progress, members = query.lastProgress, caravan.names - caravan.left
            for name in members:
                self.flows[name].part.together = len(members)
                if progress is not None:
                    self.flows[name].part.last_error = ""
                    note_progress(self.flows[name].part, progress)
                self._out_of_trouble(name)

    def _out_of_trouble(self, name: str) -> None:
        trouble, marker = self._troubles[name], self.flows[name].marker
        if marker is not None and marker.offset >= trouble.until:
            self._troubles[name] = _Trouble()

    def _ended(self, caravan: Caravan, error: str, end: int) -> None:
        caravan.stop()
        self._caravans.remove(caravan)
        members = caravan.names - caravan.left
        for name in members:
            trouble = self._troubles[name]
            if len(members) > 1:
                self._troubles[name] = _Trouble(alone=True, until=end)
            else:
                self._fail(name, error, trouble, end)

    def _fail(self, name: str, error: str, trouble: _Trouble, end: int) -> None:
        part, pause_s = self.flows[name].part, trouble.pause_s
        part.state, part.last_error, part.together = "failed", short(error), 0
        _log.error("%s: %s; again in %.0f s", part.name, part.last_error, pause_s)
        self._troubles[name] = _Trouble(
            alone=True,
            until=max(end, trouble.until),
            again_at=time.monotonic() + pause_s,
            pause_s=min(_LONGEST_PAUSE_S, 2 * pause_s),
        )

    # Who travels with whom.

    def _regroup(self, reader: LogReader, end: int) -> None:
        wanted = companies(self._standing(reader))
        under_way = {caravan: caravan.names - caravan.left for caravan in self._caravans}
        for caravan, members in under_way.items():
            if members not in wanted or caravan.lineage != reader.lineage:
                caravan.stop()
                self._caravans.remove(caravan)
        kept = [under_way[caravan] for caravan in self._caravans]
        for company in wanted:
            if company not in kept:
                self._set_off(company, reader, end)

    def _standing(self, reader: LogReader) -> dict[str, FlowStanding]:
        """Of those that are to be read for now."""
        now = time.monotonic()
        found = {}
        for name, flow in self.flows.items():
            trouble = self._troubles[name]
            if flow.waits or now < trouble.again_at:
                flow.part.together = 0
            else:
                found[name] = FlowStanding(flow.find(reader).offset, trouble.alone, trouble.stuck)
        return found | self._together(found)

    def _together(self, standing: Mapping[str, FlowStanding]) -> dict[str, FlowStanding]:
        """Of a caravan under way all stand where the last does: one by one they pass the same."""
        found = {}
        for caravan in self._caravans:
            members = (caravan.names - caravan.left) & standing.keys()
            last = min((standing[name].offset for name in members), default=0)
            for name in members:
                found[name] = msgspec.structs.replace(standing[name], offset=last)
        return found

    def _set_off(self, names: Collection[str], reader: LogReader, end: int) -> None:
        passengers = [p for name in sorted(names) if (p := self._passenger(name, end)) is not None]
        if len(passengers) < len(names):
            return  # the others set off at the next tick
        flows = [passenger.flow for passenger in passengers]
        starts = {flow.name: flow.find(reader) for flow in flows}
        lags = end - min(marker.offset for marker in starts.values()) > NEAR
        delivery = CaravanDelivery(self._app, flows, self._node(), self._place)
        caravan = Caravan(self._spark, self._place, passengers, delivery)
        try:
            caravan.start(starts, self._scratch, lags=lags)
        except (RoskvaError, PySparkException, Py4JError) as error:
            self._caravans.append(caravan)
            self._ended(caravan, str(error), end)
            return
        self._caravans.append(caravan)
        for flow in flows:
            flow.part.together = len(flows)

    def _passenger(self, name: str, end: int) -> Passenger | None:
        if name not in self._passengers:
            flow = self.flows[name]
            try:
                sql = flow_sql(self._spark, name, flow.ingest)
            except BadConfig as error:
                self._fail(name, str(error), self._troubles[name], end)
                return None
            prefix = "" if flow.table is None else f"{self._app}/{flow.table}/"
            self._passengers[name] = Passenger(flow, sql, prefix)
        return self._passengers[name]


def publish_once(spark: SparkSession, config: Config, name: str, directory: Path) -> SparkFlow:
    """What the log has now, and no more."""
    source = config.ingest[name].path or ""
    flows = SourceFlows(spark, source, config, {name: directory})
    try:
        [flow] = flows.flows.values()
        reader = flows.reader()
        if reader is None:
            raise BadInput(f"the source {source} has not begun: there is no log of its changes")
        end = reader.end()
        while flow.marker is None or flow.marker.offset < end:
            flows.tick()
            if flow.part.state == "failed":
                raise PipelineFailed(flow.part.last_error)
            time.sleep(_ONCE_TICK_S)
        return flow
    finally:
        flows.stop()
