"""The pipeline at work: the bridge and the ingests of a node, in one Spark session.

Each is a query of its own with a checkpoint of its own. One that fails is started again, ever later
if it keeps failing; the others go on. There is no orderly end: whenever this process is killed, the
next run goes on from there.

    DATA/pipeline/
      bridge/             checkpoint
      ingest-NAME/        checkpoint, dead-letters/, counters.json; of a flow of a source no
                          checkpoint, see flow.py
      spark.log           what Spark had to say, and in spark.log.1 what it said before that
"""

import json
import logging
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roskva.config import CHANGES_FORMAT, Config
from roskva.errors import RoskvaError
from roskva.feed.base import Marker
from roskva.links.processes import write_report
from roskva.pipeline.bridge import SparkBridge
from roskva.pipeline.checkpoint import Checkpoint
from roskva.pipeline.feeds import passed
from roskva.pipeline.ingest import Ingest
from roskva.pipeline.machine import Usage, stamped
from roskva.pipeline.progress import note_progress, short
from roskva.pipeline.session import spark_session
from roskva.pipeline.source_flows import SourceFlows
from roskva.wire.admin import PartNow, PipelineNow

_TICK_S: Final = 1.0
_TIDY_S: Final = 3600.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_LOCK_PATIENCE_S: Final = 15.0
_LASTING: Final = {
    # Beside a node there is nothing to do most of the time: the heap is as small as it can be, and
    # no threads collect it side by side.
    "spark.driver.defaultJavaOptions": (
        "-XX:+UseSerialGC -Xms48m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -Xss512k"
    ),
    # What lags does not hold up what does not: see caravan.py.
    "spark.scheduler.mode": "FAIR",
}
_log = logging.getLogger(__name__)


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, and where."""

    config: Config
    bridge: bool = True
    ingests: tuple[str, ...] = ()
    report: Path | None = None
    """Where to say how it goes."""
    scratch: Path | None = None
    settings: dict[str, str] = {}
    """Of Spark, over ours."""

    @property
    def directory(self) -> Path:
        return self.config.node.data / "pipeline"


class _Running:
    """A query, kept going."""

    def __init__(self, part: PartNow, start: Callable[[], StreamingQuery]) -> None:
        self.part = part
        self._start = start
        self._query: StreamingQuery | None = None
        self._again_at = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self.progress: Any = None

    @property
    def parts(self) -> Sequence[PartNow]:
        return [self.part]

    def tick(self) -> None:
        now = time.monotonic()
        if self._query is None:
            if now >= self._again_at:
                self._try()
            return
        if not self._query.isActive:
            error = self._query.exception()
            self._query = None
            self._failed("it ended" if error is None else str(error), now)
            return
        self.progress = self._query.lastProgress
        if self.progress is not None:
            note_progress(self.part, self.progress)
            self._pause_s = _FIRST_PAUSE_S

    def _try(self) -> None:
        try:
            self._query = self._start()
        except (RoskvaError, PySparkException, Py4JError) as error:
            self._failed(str(error), time.monotonic())

    def _failed(self, error: str, now: float) -> None:
        self.part.state = "failed"
        self.part.last_error = short(error)
        _log.error("%s: %s; again in %.0f s", self.part.name, self.part.last_error, self._pause_s)
        self._again_at = now + self._pause_s
        self._pause_s = min(_LONGEST_PAUSE_S, 2 * self._pause_s)


class _BridgeRunning(_Running):
    def __init__(self, bridge: SparkBridge, checkpoint: Path) -> None:
        super().__init__(PartNow(name="bridge"), lambda: bridge.start(checkpoint))
        self._bridge = bridge
        self._closing: threading.Thread | None = None

    def tick(self) -> None:
        super().tick()
        lags = self._bridge.lags()
        self.part.lag_updates = sum(lag.updates for lag in lags.values())
        self.part.lag_seconds = round(max((lag.seconds for lag in lags.values()), default=0.0), 3)
        if self._closing is not None and not self._closing.is_alive():
            self._closing = None
            self.part.gaps = []
        gaps = self._bridge.gaps(lags, self._passed())
        if gaps and self._closing is None:
            self.part.gaps = gaps
            self._closing = threading.Thread(target=self._close, name="gaps", daemon=True)
            self._closing.start()
        self.part.gaps_closed = self._bridge.gaps_closed
        self.part.delivered = self._bridge.delivered

    def _passed(self) -> dict[int, Marker]:
        """Where the query has been."""
        if self.progress is None:
            return {}
        end = self.progress["sources"][0]["endOffset"]
        return passed(json.loads(end) if isinstance(end, str) else end)

    def _close(self) -> None:
        try:
            self._bridge.close_gaps()
        except (RoskvaError, PySparkException, Py4JError) as error:
            self.part.last_error = short(str(error))
            _log.error("closing a gap: %s", self.part.last_error)


class _IngestRunning(_Running):
    def __init__(self, ingest: Ingest, checkpoint: Path) -> None:
        super().__init__(PartNow(name=f"ingest {ingest.name}"), lambda: ingest.start(checkpoint))
        self._ingest = ingest
        self._tidy_at = 0.0

    def tick(self) -> None:
        super().tick()
        if time.monotonic() >= self._tidy_at:
            self._tidy_at = time.monotonic() + _TIDY_S
            self._ingest.tidy()
        counted = self._ingest.counters()
        self.part.rows, self.part.published = counted.rows, counted.published
        self.part.superseded, self.part.dead_letters = counted.superseded, counted.dead


def run(work: Work) -> NoReturn:
    """Until this process is killed; see `machine.kill_at_once_on`."""
    report, usage = PipelineNow(state="starting", pid=os.getpid(), started_at=time.time()), Usage()
    _say(work, report, usage)
    with session(work) as (spark, checkpoints):
        parts = _parts(work, spark, checkpoints)
        report.state = "running"
        report.parts = [part for running in parts for part in running.parts]
        while True:
            for running in parts:
                running.tick()
                _say(work, report, usage)
            time.sleep(_TICK_S)


@contextmanager
def session(work: Work) -> Iterator[tuple[SparkSession, Mapping[str, Checkpoint]]]:
    """With the checkpoints of all parts locked and mended before Spark starts."""
    names = ["bridge"] * work.bridge + [f"ingest-{name}" for name in work.ingests]
    with ExitStack() as stack:
        checkpoints = {
            name: stack.enter_context(Checkpoint(work.directory / name, _LOCK_PATIENCE_S))
            for name in names
        }
        work.directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        pipeline = work.config.pipeline
        spark = spark_session(
            "roskva pipeline",
            pipeline.master,
            {**_LASTING, "spark.driver.memory": pipeline.driver_memory, **work.settings},
            inherited=[checkpoint.lock for checkpoint in checkpoints.values()],
            log_file=work.directory / "spark.log",
            scratch=work.scratch,
        )
        stack.callback(spark.stop)
        yield spark, checkpoints


def _parts(
    work: Work, spark: SparkSession, checkpoints: Mapping[str, Checkpoint]
) -> "list[_Running | SourceFlows]":
    config, parts = work.config, list[_Running | SourceFlows]()
    data = config.node.data
    if work.bridge:
        bridge = SparkBridge(spark, data)
        parts.append(_BridgeRunning(bridge, checkpoints["bridge"].spark))
    flows = defaultdict[str, dict[str, Path]](dict)
    for name in work.ingests:
        checkpoint = checkpoints[f"ingest-{name}"]
        if config.ingest[name].format == CHANGES_FORMAT:
            flows[config.ingest[name].path or ""][name] = checkpoint.directory
            continue
        ingest = Ingest(spark, name, config, checkpoint.directory)
        parts.append(_IngestRunning(ingest, checkpoint.spark))
    for source, directories in flows.items():
        parts.append(SourceFlows(spark, source, config, directories, work.scratch))
    return parts


def _say(work: Work, report: PipelineNow, usage: Usage) -> None:
    if work.report is not None:
        with suppress(OSError):  # the node is going, and its directory with it
            write_report(work.report, stamped(report, usage))
