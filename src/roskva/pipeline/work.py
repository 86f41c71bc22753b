"""The pipeline at work: the bridge and the ingests of a node, in one Spark session.

Each is a query of its own with a checkpoint of its own. One that fails is started again, ever later
if it keeps failing; the others go on. There is no orderly end: whenever this process is killed, the
next run goes on from there.

    DATA/pipeline/
      bridge/             checkpoint
      ingest-NAME/        checkpoint, dead-letters/, counters.json
      spark.log           what Spark had to say, and in spark.log.1 what it said before that
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

import msgspec
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from roskva.config import Config
from roskva.errors import RoskvaError
from roskva.feed.base import Marker
from roskva.links.processes import write_report
from roskva.pipeline.bridge import SparkBridge, passed
from roskva.pipeline.checkpoint import Checkpoint
from roskva.pipeline.ingest import Ingest
from roskva.pipeline.machine import Usage, stamped
from roskva.pipeline.session import spark_session
from roskva.wire.admin import BatchTimes, PartNow, PipelineNow

_TICK_S: Final = 1.0
_TIDY_S: Final = 3600.0
_FIRST_PAUSE_S: Final = 1.0
_LONGEST_PAUSE_S: Final = 60.0
_LOCK_PATIENCE_S: Final = 15.0
_RECENT: Final = 60
_LASTING: Final = {
    # Beside a node there is nothing to do most of the time: the heap is as small as it can be, and
    # no threads collect it side by side.
    "spark.driver.defaultJavaOptions": (
        "-XX:+UseSerialGC -Xms48m -XX:MinHeapFreeRatio=20 -XX:MaxHeapFreeRatio=40 -Xss512k"
    )
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
        self.progress = progress = self._query.lastProgress
        if progress is not None:
            self.part.state = "running"
            self.part.batches = progress["batchId"] + 1
            self.part.batch_ms = progress["durationMs"].get("triggerExecution")
            self._note(progress)
            self._pause_s = _FIRST_PAUSE_S

    def _note(self, progress: Any) -> None:
        times = dict(progress["durationMs"])
        total, recent = times.pop("triggerExecution", 0), self.part.recent
        batch = progress["batchId"]
        if "addBatch" not in times or (recent and recent[-1].batch == batch):
            return  # it looked, and there was nothing; or it is known
        rows = progress["numInputRows"]
        noted = BatchTimes(batch, round(time.time(), 1), rows, total, times)
        self.part.recent = [*recent, noted][-_RECENT:]

    def _try(self) -> None:
        try:
            self._query = self._start()
        except (RoskvaError, PySparkException, Py4JError) as error:
            self._failed(str(error), time.monotonic())

    def _failed(self, error: str, now: float) -> None:
        self.part.state = "failed"
        self.part.last_error = _short(error)
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
            self.part.last_error = _short(str(error))
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
        report.parts = [running.part for running in parts]
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
) -> list[_Running]:
    config, parts = work.config, list[_Running]()
    data = config.node.data
    if work.bridge:
        bridge = SparkBridge(spark, data)
        parts.append(_BridgeRunning(bridge, checkpoints["bridge"].spark))
    for name in work.ingests:
        checkpoint = checkpoints[f"ingest-{name}"]
        ingest = Ingest(spark, name, config, checkpoint.directory)
        parts.append(_IngestRunning(ingest, checkpoint.spark))
    return parts


def _say(work: Work, report: PipelineNow, usage: Usage) -> None:
    if work.report is not None:
        with suppress(OSError):  # the node is going, and its directory with it
            write_report(work.report, stamped(report, usage))


def _short(error: str) -> str:
    return error.strip().splitlines()[0][:300] if error.strip() else "no reason was given"
