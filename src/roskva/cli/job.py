"""`roskva job NAME`: batch jobs over the state of a node, on Spark."""

import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from typer import Argument, Option

from roskva.cli.options import ConfigOption, command
from roskva.cli.outcome import FAILED, OK, progress, table_of
from roskva.config import load
from roskva.core.expiry import DAY_S, Keep
from roskva.errors import BadInput
from roskva.pipeline.machine import require_pipeline, spark_settings
from roskva.server.admin.pipeline import keep, keep_objects
from roskva.server.backup import MANIFEST, checkpoints
from roskva.server.directory import DataDirectory

if TYPE_CHECKING:
    from roskva.pipeline.jobs.audit import Audit
    from roskva.pipeline.jobs.gc import Collected
    from roskva.pipeline.jobs.latency import Latency
    from roskva.pipeline.jobs.plan import Plan
    from roskva.pipeline.jobs.replay import Replayed
    from roskva.pipeline.state import State

Found = TypeVar("Found")
Spark = Any
"""A session. Only the pipeline knows what that is."""

Write = Callable[[Any], None] | None
"""Of a DataFrame, if a file is wanted."""

_SUFFIXES: Final = {".parquet": "parquet", ".csv": "csv"}
_POLL_S: Final = 0.1
_MIB: Final = 1 << 20
_SETTINGS: Final = {
    # Unlike the bridge, jobs shuffle, and are over when they are done.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    "spark.driver.memory": "4g",
}

console = Console(markup=False, highlight=False)
app = typer.Typer(help="Batch jobs over the state of a node, on Spark.", no_args_is_help=True)

DataArgument = Annotated[
    Path, Argument(metavar="DATA", help="A data directory, of a node that runs or not.")
]
StateArgument = Annotated[
    Path, Argument(metavar="DATA", help="A data directory, of a node that runs or not; a backup.")
]
_DATA: Final = Path("roskva-data")


@dataclass(frozen=True)
class JobOptions:
    json: Annotated[bool, "As JSON, for programs."] = False
    out: Annotated[
        Path | None,
        Option("--out", metavar="FILE", help="Write all rows here: FILE.parquet or FILE.csv."),
    ] = None
    master: Annotated[str, "Where Spark runs: local[N], spark://HOST:PORT, …"] = "local[*]"
    conf: Annotated[
        list[str] | None,
        Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
    ] = None

    def show(self, found: Found, as_tables: Callable[[Found], None]) -> None:
        if self.json:
            sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        else:
            as_tables(found)


@command(
    "roskva job audit",
    "roskva job audit --repair",
    "roskva job audit /mnt/backups/monday --out behind.csv",
    of=app,
)
def audit(
    data: StateArgument = _DATA,
    grace: Annotated[
        float, Option(min=0.0, help="Seconds that an online client has to ack what it is due.")
    ] = 10.0,
    repair: Annotated[bool, "Have the node check stale clients, and send again."] = False,
    options: JobOptions = JobOptions(),
) -> None:
    """Compare every registration with what its object stands at: who has not heard, and why?

    The exit code is 1 if clients are stale: online, and not told what they should have been.
    """
    began = time.time()
    if repair and is_backup(data):
        raise BadInput(f"{data} is a backup: only a node that runs can send anything")
    check_state(data)
    with session("audit", options) as (spark, write):
        from roskva.pipeline import node
        from roskva.pipeline.jobs.audit import Look
        from roskva.pipeline.jobs.audit import audit as run

        look = Look(lambda: state_of(data), lambda: node.online(data), lambda: node.recheck(data))
        kept = None if is_backup(data) else partial(keep_objects, data)
        found = run(spark, look, grace_s=grace, repair=repair, out=write, per_object=kept)
    if not is_backup(data):
        keep(data, "audit", began, found)
    options.show(found, _show_audit)
    raise typer.Exit(FAILED if found.states["stale"] else OK)


@command("roskva job gc --dry-run", "roskva job gc --days 90", of=app)
def gc(
    data: DataArgument = _DATA,
    config: ConfigOption = None,
    days: Annotated[
        float | None,
        Option(
            min=0.0, help="Instead of keep_clients_days of every app. A session's own end counts."
        ),
    ] = None,
    dry_run: Annotated[bool, "Only say what would be forgotten."] = False,
    options: JobOptions = JobOptions(),
) -> None:
    """Forget clients that have been away for long, and rows that belong to nobody.

    A node does this by itself, little by little, by the same rule; this is for whole populations
    at once. The node that runs drops the rows, and keeps those of clients that are back. A client
    that comes back later keeps its identity, registers again by itself, and is told everything
    once.
    """
    began = time.time()
    check_state(data)
    keep_of = load(config).keep if days is None else partial(_keep_for, days)
    with session("gc", options) as (spark, write), state_of(data) as state:
        from roskva.pipeline import node
        from roskva.pipeline.jobs.gc import gc as run

        found = run(
            spark,
            state,
            online=list(node.online(data)),
            keep_of=keep_of,
            now=datetime.now(UTC),
            forget=None if dry_run else partial(node.forget, data),
            out=write,
        )
    keep(data, "gc", began, found)
    options.show(found, _show_gc)


def _keep_for(days: float, app: str) -> Keep:
    return Keep(days * DAY_S)


@command("roskva job latency", "roskva job latency /var/lib/roskva --plots reports/", of=app)
def latency(
    data: DataArgument = _DATA,
    plots: Annotated[
        Path, Option(exists=True, file_okay=False, help="The directory for the two pictures.")
    ] = Path("."),
    options: JobOptions = JobOptions(),
) -> None:
    """Say how long notifications take from publish to ack, and where the time goes.

    From the times that a node notes for sampled updates. Draws latency-cdf and latency-stages, as
    SVG and as PNG. `--out` has one row per delivery.
    """
    began = time.time()
    with session("latency", options) as (spark, write):
        from roskva.pipeline.history import traces
        from roskva.pipeline.jobs.latency import deliveries, stage_times
        from roskva.pipeline.jobs.latency import latency as run
        from roskva.pipeline.jobs.plots import draw

        noted = traces(spark, data)
        if write is not None:
            write(stage_times(deliveries(noted)))
        found = run(noted)
        made = draw(found, plots)
    draw(found, keep(data, "latency", began, found))
    options.show(found, partial(_show_latency, made))


@command("roskva job replay --shard 2", of=app)
def replay(
    data: DataArgument = _DATA,
    shard: Annotated[int, Option(min=0, help="Whose store was lost.")] = 0,
    options: JobOptions = JobOptions(),
) -> None:
    """Rebuild a shard's object rows from its feed, after its store was lost.

    The node must be stopped, and the store deleted. Where the feed reaches back, clients are told
    versions; if it does not reach back to its beginning, the shard begins a new epoch.
    """
    began = time.time()
    with DataDirectory.open(data).own(shard) as owned:
        with session("replay", options) as (spark, write):
            from roskva.pipeline.jobs.replay import replay as run

            found = run(spark, owned.feed_path, owned.store_path, out=write)
        keep(data, "replay", began, found)
    options.show(found, partial(_show_replay, shard))


@command(
    "roskva job plan --registrars 4 --matchers 2",
    "roskva job plan --clients 1000000 --each 5 --objects 100000 --rate 2000",
    of=app,
)
def plan(
    data: Annotated[
        Path | None, Argument(metavar="DATA", help="Whose registrations and rates. None: made up.")
    ] = None,
    registrars: Annotated[int, Option(min=1, help="Processes that serve clients.")] = 1,
    matchers: Annotated[int, Option(min=1, help="Processes that share the shards.")] = 1,
    shards: Annotated[int, Option(min=1, help="If made up.")] = 4,
    clients: Annotated[int, Option(min=1, help="If made up.")] = 100_000,
    each: Annotated[int, Option(min=1, help="Registrations of a client, if made up.")] = 5,
    objects: Annotated[int, Option(min=1, help="If made up.")] = 10_000,
    rate: Annotated[float, Option(min=0.0, help="Updates per second, if made up.")] = 100.0,
    hours: Annotated[float, Option(min=0.01, help="Of the feed, to count updates in.")] = 1.0,
    options: JobOptions = JobOptions(),
) -> None:
    """Say how load and memory would spread over processes, and what more clients would need."""
    began = time.time()
    if data is not None:
        check_state(data)
    with session("plan", options) as (spark, write):
        from roskva.pipeline.jobs.plan import Layout, as_rows, rates_of, synthetic
        from roskva.pipeline.jobs.plan import plan as run

        if data is None:
            layout = Layout(registrars, matchers, shards)
            found = run(*synthetic(spark, clients, each, objects, rate), layout)
        else:
            with state_of(data) as state:
                layout = Layout(registrars, matchers, len(state.shards()))
                registrations = state.table(spark, "registrations").filter("created")
                found = run(registrations, rates_of(feed_of(spark, data), hours), layout)
        if write is not None:
            write(as_rows(spark, found))
    if data is not None:
        keep(data, "plan", began, found)
    options.show(found, _show_plan)


# What jobs have in common: a file for all rows, a Spark session with a bar, the state they look at.


def writer(path: Path | None) -> Write:
    """Of one file, Parquet or CSV by its suffix; the directory must be there."""
    if path is None:
        return None
    if path.suffix not in _SUFFIXES:
        raise BadInput(f"{path}: the suffix says what is written, {' or '.join(_SUFFIXES)}")
    if not path.parent.is_dir():
        raise BadInput(f"{path.parent} is no directory")
    return lambda table: _write_table(table, path)


def _write_table(table: Any, path: Path) -> None:
    kind = _SUFFIXES[path.suffix]
    with tempfile.TemporaryDirectory(prefix=f".{path.name}-", dir=path.parent) as parts:
        target = f"{parts}/{kind}"
        table.coalesce(1).write.format(kind).option("header", True).save(
            f"file://{Path(target).resolve()}"
        )
        [made] = Path(target).glob(f"part-*.{kind}")
        shutil.move(made, path)


@contextmanager
def session(name: str, options: JobOptions) -> Iterator[tuple[Spark, Write]]:
    """With a bar on the terminal that says how far it is."""
    write = writer(options.out)
    settings = {**_SETTINGS, **spark_settings(options.conf)}
    require_pipeline()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with progress(*columns, TimeElapsedColumn()) as bar:
        task = bar.add_task("starting Spark", total=None)
        from roskva.pipeline.session import Tasks, spark_errors, spark_session

        spark = spark_session(f"roskva job {name}", options.master, settings)
        try:
            tasks = Tasks(spark)

            def show() -> None:
                done, total = tasks.look()
                bar.update(task, description=name, completed=done, total=total or None)

            with _every(_POLL_S, show), spark_errors():
                yield spark, write
        finally:
            spark.stop()


@contextmanager
def _every(seconds: float, do: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def loop() -> None:
        while not ended.wait(seconds):
            do()

    thread = threading.Thread(target=loop, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def state_of(path: Path) -> Iterator["State"]:
    """A backup as it is, or a checkpoint of a data directory for as long as this lasts."""
    from roskva.pipeline.state import State

    if is_backup(path):
        yield State(path)
        return
    name = f"job-{secrets.token_hex(4)}"
    with checkpoints(DataDirectory.open(path), name):
        yield State(path, name)


def check_state(path: Path) -> None:
    """Raises `BadInput` if there is none: whoever mistyped it need not wait for Spark to start."""
    if not is_backup(path):
        DataDirectory.open(path)


def is_backup(path: Path) -> bool:
    return (path / MANIFEST).exists()


def feed_of(spark: Spark, data: Path) -> Any:
    from roskva.pipeline.source import NAME, FeedSource

    spark.dataSource.register(FeedSource)
    return spark.read.format(NAME).option("failOnDataLoss", False).load(str(data))


# What they found, as tables.


def _show_audit(found: "Audit") -> None:
    table = table_of("state", "registrations", "")
    for state, count in found.states.items():
        share = f"{count / max(1, found.registrations):.2%}"
        table.add_row(state, f"{count:,}", share)
    table.add_row("all", f"{found.registrations:,}", f"for {found.objects:,} objects")
    console.print(table)
    if found.worst:
        console.print(f"\nPending since {_moment(found.pending_since)}; most of it for:")
        table = table_of("object", "due", "of", "published")
        for worst in found.worst:
            row = (worst.object, f"{worst.due:,}", f"{worst.registrations:,}")
            table.add_row(*row, _moment(worst.since))
        console.print(table)
    for key, client in found.stale:
        console.print(f"stale: {key} at client {client}", style="red")
    repaired = f", {found.repaired:,} repaired" if found.repaired else ""
    stale = found.states["stale"]
    console.print(f"\n{stale:,} stale{repaired}", style="bold red" if stale else "bold green")


def _show_gc(found: "Collected") -> None:
    table = table_of("clients", "", "")
    table.add_row("all", f"{found.clients:,}", "")
    table.add_row("away for long", f"{found.away:,}", f"since {_moment(found.seen_at)}")
    table.add_row("rows of nobody", f"{found.orphaned:,}", "")
    console.print(table)
    if found.forgotten is None:
        doomed = found.away + found.orphaned
        words = f"{doomed:,} would be forgotten, with {found.registrations:,} registrations"
    else:
        kept = found.away + found.orphaned - found.forgotten
        words = f"{found.forgotten:,} forgotten"
        words += f", {kept:,} kept: they were back" if kept else ""
    console.print(f"\n{words}", style="bold")


def _show_latency(made: Sequence[Path], found: "Latency") -> None:
    table = table_of("milliseconds", "mean", "p50", "p90", "p99", "p99.9", "share")
    for stage in found.stages:
        times = (stage.mean, *stage.percentiles)
        table.add_row(stage.stage, *(f"{time:,.2f}" for time in times), f"{stage.share:.0%}")
    for name, whole in (("publish to sent", found.sent), ("publish to ack", found.acked)):
        times = (whole.mean, *whole.percentiles)
        share = f"{whole.mean / found.acked.mean:.0%}" if found.acked.mean else ""
        table.add_row(name, *(f"{time:,.2f}" for time in times), share, style="bold")
    console.print(table)
    console.print(
        f"\n{found.deliveries:,} deliveries of {found.updates:,} updates, "
        f"{_moment(found.first)} to {_moment(found.last)}; "
        f"the longest took {found.acked.longest:,.1f} ms"
    )
    console.print(f"drawn: {', '.join(map(str, made))}")


def _show_replay(shard: int, found: "Replayed") -> None:
    console.print(
        f"shard {shard}: {found.objects:,} objects up to offset {found.last:,}; the versions of "
        f"{found.known:,} are known",
        style="bold",
    )
    if found.lost_up_to:
        console.print(f"the feed does not reach back, or is damaged, up to {found.lost_up_to:,}")
    console.print(f"in epoch {found.epoch}: start the node")


def _show_plan(found: "Plan") -> None:
    console.print(
        f"{found.clients:,} clients, {found.registrations:,} registrations for "
        f"{found.objects:,} objects, {found.updates_per_second:,.1f} updates/s\n",
        style="bold",
    )
    columns = ("sessions", "registrations", "objects", "sent/s", "cores", "memory")
    table = table_of("process", *columns)
    for process in found.processes:
        table.add_row(
            process.process,
            f"{process.sessions:,}" if process.sessions else "",
            f"{process.registrations:,}" if process.registrations else "",
            f"{process.objects:,}",
            f"{process.per_second:,.0f}",
            f"{process.busy:.2f}",
            f"{process.bytes / _MIB:,.0f} MiB",
        )
    console.print(table, "")
    table = table_of("clients", "registrars", "matchers", "memory")
    for factor, registrars, matchers, memory in found.growth:
        size = f"{memory / _MIB:,.0f} MiB"
        table.add_row(f"{factor * found.clients:,}", f"{registrars:,}", f"{matchers:,}", size)
    console.print(table)


def _moment(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S") if time is not None else "–"
