"""A source at work: its database followed on a thread, its flows on the event loop, and a report.

database → Follower (a thread) → DATA/sources/NAME/changes → Flow → the shards of the node
"""

import asyncio
import gc
import logging
import os
import secrets
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from roskva.config import CHANGES_FORMAT, Config, SourceConfig
from roskva.config.access import read_secret
from roskva.disk import RealDisk
from roskva.errors import BadConfig, Unavailable
from roskva.feed.commit import wall_clock_us
from roskva.feed.log import LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.upkeep import Retention
from roskva.links.processes import Process, write_report
from roskva.links.questions import exchange
from roskva.links.shard_link import SocketLink
from roskva.metrics import Rates
from roskva.model import NO_GENERATION, next_generation
from roskva.sources.changes import DIRECTORY, LOG, ChangesLog, forget_flows
from roskva.sources.database import DatabaseLog, Tables
from roskva.sources.direct import DirectFlow
from roskva.sources.flow import NAME, FlowExecutor
from roskva.sources.follower import Follower
from roskva.sources.losses import FlowLoss, losses, made_up_for
from roskva.sources.position import Doubt
from roskva.wire.admin import SourceNow
from roskva.wire.links import PublisherHello, ResetApp, UpdatesPublished

_log = logging.getLogger(__name__)
_REPORT_S: Final = 1.0
_ASK_S: Final = 5.0
_ASK_AGAIN_S: Final = 0.5
_COLLECTOR: Final = (10_000, 20, 100)
"""What is read is let go of in a moment, and nothing of it is in a cycle; by default the collector
looks at all of a backlog so often that reading takes half as long again."""


class SourceJob(msgspec.Struct, frozen=True):
    """What the process of a source is told."""

    name: str
    config: Config
    data: Path
    processes: Sequence[Process]
    """Of the node: who owns which shards."""
    report: Path | None = None
    adopt: bool = False

    @property
    def source(self) -> SourceConfig:
        return self.config.source[self.name]

    @property
    def app(self) -> str:
        return self.source.app_of(self.name)


_DRIVERS: Final = {
    "postgresql": ("PostgreSQL", "postgres"),
    "postgres": ("PostgreSQL", "postgres"),
    "mariadb": ("MariaDB", "mysql"),
    "mysql": ("MySQL", "mysql"),
}
"""By how a url begins: whose driver it is, and the extra that brings it."""


def database_of(name: str, source: SourceConfig) -> DatabaseLog:
    """`BadConfig` if its kind is not known, or its driver is not installed."""
    url = source.url or ""
    kind = url.partition("://")[0]
    if kind not in _DRIVERS:
        raise BadConfig(
            f"source {name}: url begins with postgresql://, mariadb:// or mysql://, not {kind}://"
        )
    database, extra = _DRIVERS[kind]
    try:
        made = _log_class(extra)
    except ModuleNotFoundError:
        raise BadConfig(
            f"source {name} needs the driver of {database}: pip install 'roskva[{extra}]'"
        ) from None
    password = None
    if source.password is not None:
        password = read_secret(f"source.{name}.password", source.password, at_least=1)
    tables = Tables(source.tables, dict(source.keys or {}))
    ca = None if source.ca is None else str(source.ca)
    return made(name, url, password, tables, ca)


def _log_class(extra: str) -> Callable[..., DatabaseLog]:
    if extra == "postgres":
        from roskva.sources.postgres.log import PostgresLog

        return PostgresLog
    from roskva.sources.mysql.log import MysqlLog

    return MysqlLog


def open_changes(job: SourceJob) -> ChangesLog:
    """Whoever has it is its only writer."""
    source = job.source
    directory = str(job.data / DIRECTORY / job.name)
    ingests = job.config.ingest.items()
    flows = {n for n, of in ingests if of.format == CHANGES_FORMAT and of.path == job.name}
    for flow in forget_flows(RealDisk(), directory, flows):
        _log.warning(
            "the ingest %s is none of this source's any more: nothing is kept for it", flow
        )
    retention = Retention(
        source.retention_hours * 3600 * 10**6, source.retention_bytes, source.last_resort_bytes
    )
    return ChangesLog.open(
        RealDisk(),
        directory,
        job.app,
        lineage=secrets.randbits(62),
        now_us=wall_clock_us(),
        config=LogConfig(retention=retention),
    )


class RunningSource:
    """One source. Made and run on an event loop."""

    def __init__(self, job: SourceJob) -> None:
        self._job = job
        self._loop = asyncio.get_running_loop()
        self._began = time.time()
        self._ended = asyncio.Event()
        self._stopping = False
        self._rates = Rates(
            lambda: {
                "changes": self._follower.changed,
                "published": self._flow.machine.published,
            }
        )
        self._made_up = set[FlowLoss]()
        self._changes = open_changes(job)
        self._follower = Follower(
            database_of(job.name, job.source),
            self._changes,
            next_ordinal=self._ask_ordinal,
            grown=lambda last: self._tell(self._flow.grown, last),
            ended=lambda: self._tell(self._ended.set),
            adopt=job.adopt,
        )
        log = str(job.data / DIRECTORY / job.name / LOG)
        shards = sum(len(process.shards) for process in job.processes)
        row = job.source.payload == "row"
        machine = DirectFlow(
            shards,
            self._changes.marker(NAME),
            job.config.limits.publish_patience_s,
            partial(_row, job.config.app(job.app).max_payload_bytes) if row else None,
            publishes=job.source.direct,
            passed=self._changes.last_reset(NAME),
        )
        self._flow = FlowExecutor(
            machine,
            LogReader(RealDisk(), log),
            set_marker=lambda at: self._follower.call(lambda: self._changes.set_marker(NAME, at)),
            doubt=self._follower.doubt,
            saw_generation=self._follower.saw_generation,
        )

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop, or until something of it breaks."""
        self._follower.start()
        try:
            async with asyncio.TaskGroup() as tasks:
                running = [tasks.create_task(self._report()), *self._start_flow(tasks)]
                ends = [tasks.create_task(each.wait()) for each in (stop, self._ended)]
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in (*running, *ends):
                    task.cancel()
        finally:
            self._stopping = True
            self._follower.stop()
            await asyncio.to_thread(self._follower.join)
        if self._follower.failed is not None:
            raise self._follower.failed

    def _start_flow(self, tasks: asyncio.TaskGroup) -> "list[asyncio.Task[None]]":
        links = {
            shard: SocketLink(shard, process.socket, self._flow.step)
            for process in self._job.processes
            for shard in process.shards
        }
        self._flow.links = {shard: link.end for shard, link in links.items()}
        self._flow.grown(self._changes.last)
        running = [tasks.create_task(link.run()) for link in links.values()]
        return [*running, tasks.create_task(self._flow.run())]

    def _tell(self, call: Callable[..., object], *arguments: object) -> None:
        """From the thread."""
        with suppress(RuntimeError):  # the loop is gone, and with it everyone who waits
            self._loop.call_soon_threadsafe(call, *arguments)

    # Ordinals.

    def _ask_ordinal(self) -> int:
        """On the thread: above what any shard knows of the app. It waits until all have said."""
        asked = asyncio.run_coroutine_threadsafe(self._generations(), self._loop)
        return next_generation(asked.result(), time.time())

    async def _generations(self) -> list[int]:
        while not self._stopping:
            try:
                return [await self._generation(*owner) for owner in self._owners()]
            except (OSError, TimeoutError, Unavailable) as error:
                _log.info("waiting for the shards of the node: %s", error or "no answer")
                await asyncio.sleep(_ASK_AGAIN_S)
        raise Unavailable("stopping")

    def _owners(self) -> list[tuple[int, str]]:
        return [(n, process.socket) for process in self._job.processes for n in process.shards]

    async def _generation(self, shard: int, socket: str) -> int:
        """A shard that still reads its feed refuses, and is asked again."""
        question = ResetApp(1, self._job.app, NO_GENERATION)
        answer = await exchange(
            socket, question, UpdatesPublished, _ASK_S, greeting=PublisherHello(shard)
        )
        return answer.versions[0]

    # Losses of flows beside it.

    def _make_up_for_losses(self) -> None:
        """On the thread."""
        directory = str(self._job.data / DIRECTORY / self._job.name)
        for loss in set(losses(RealDisk(), directory)) - self._made_up:
            if made_up_for(LogReader(RealDisk(), f"{directory}/{LOG}"), loss):
                self._made_up.add(loss)
            else:
                self._follower.doubt(Doubt("log lost", loss.sentence))

    # What it says of itself.

    async def _report(self) -> None:
        while True:
            self._follower.call(self._make_up_for_losses)
            self._rates.sample()
            if self._job.report is not None:
                write_report(self._job.report, self.now())
            await asyncio.sleep(_REPORT_S)

    def now(self) -> SourceNow:
        follower, flow, now = self._follower, self._flow.machine, time.time()
        changes, rates = self._changes, self._rates.per_second()
        doubt, oldest_us = changes.last_doubt, flow.oldest_us
        current_at = follower.current_at
        return SourceNow(
            name=self._job.name,
            app=self._job.app,
            state=follower.state,
            why=follower.why,
            pid=os.getpid(),
            started_at=self._began,
            written_at=now,
            position=None if changes.position is None else str(changes.position),
            ordinal=changes.ordinal,
            last=changes.last,
            changes=follower.changed,
            complaints=list(follower.complaints),
            doubts=follower.doubts,
            doubt=doubt.sentence if doubt else "",
            doubt_cause=doubt.cause if doubt else "",
            doubted_at=changes.doubted_at_us / 1e6,
            invisible=follower.alarm,
            lag_bytes=follower.lag_bytes,
            max_lag_bytes=self._job.source.max_lag_bytes,
            lag_seconds=None if current_at is None else _since(current_at, now),
            changes_per_second=rates.get("changes", 0.0),
            direct=self._job.source.direct,
            flow=flow.marker,
            flow_lag_seconds=0.0 if oldest_us is None else _since(oldest_us / 1e6, now),
            published=flow.published,
            published_per_second=rates.get("published", 0.0),
            superseded=flow.superseded,
        )


def _since(at: float, now: float) -> float:
    """Clocks of databases may be ahead of ours."""
    return round(max(0.0, now - at), 1)


def _row(most: int, table: str, row: msgspec.Raw) -> bytes | None:
    """What is too large is told without it."""
    content = bytes(row)
    return content if len(content) <= most else None


def run_source(job: SourceJob) -> None:
    """Until SIGTERM or SIGINT."""

    async def work() -> None:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        await RunningSource(job).run(stop)

    os.umask(0o077)
    gc.set_threshold(*_COLLECTOR)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(work())
