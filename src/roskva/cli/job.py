"""`roskva job NAME`: batch jobs over the state of a node, on Spark."""

import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import typer

from roskva.cli import job_report as report
from roskva.cli.job_session import check_state, feed_of, is_backup, print_json, session, state_of
from roskva.cli.outcome import EXIT_CODES, FAILED, OK, sentences
from roskva.errors import BadInput
from roskva.pipeline.output import writer
from roskva.server.admin.pipeline import keep, keep_objects
from roskva.server.directory import DataDirectory

DataArgument = Annotated[
    Path, typer.Argument(metavar="DATA", help="A data directory, of a node that runs or not.")
]
StateArgument = Annotated[
    Path,
    typer.Argument(metavar="DATA", help="A data directory, of a node that runs or not; a backup."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="As JSON, for programs.")]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write all rows here: FILE.parquet or FILE.csv."),
]
MasterOption = Annotated[
    str, typer.Option("--master", help="Where Spark runs: local[N], spark://HOST:PORT, …")
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
_DATA: Final = Path("roskva-data")
_LOCAL: Final = "local[*]"


def register(app: typer.Typer) -> None:
    jobs = typer.Typer(help="Batch jobs over the state of a node, on Spark.", no_args_is_help=True)
    jobs.command(
        epilog="Examples: roskva job audit\n\n"
        "roskva job audit --repair\n\n"
        "roskva job audit /mnt/backups/monday --out behind.csv\n\n"
        f"{EXIT_CODES}"
    )(audit)
    jobs.command(
        epilog="Examples: roskva job gc --days 90 --dry-run\n\n"
        "roskva job gc --days 90\n\n"
        f"{EXIT_CODES}"
    )(gc)
    jobs.command(
        epilog="Examples: roskva job latency\n\n"
        "roskva job latency /var/lib/roskva --plots reports/\n\n"
        f"{EXIT_CODES}"
    )(latency)
    jobs.command(epilog=f"Example: roskva job replay --shard 2\n\n{EXIT_CODES}")(replay)
    jobs.command(
        epilog="Examples: roskva job plan --registrars 4 --matchers 2\n\n"
        "roskva job plan --clients 1000000 --each 5 --objects 100000 --rate 2000\n\n"
        f"{EXIT_CODES}"
    )(plan)
    app.add_typer(jobs, name="job")


def audit(
    data: StateArgument = _DATA,
    grace: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds that an online client has to ack what it is due."),
    ] = 10.0,
    repair: Annotated[
        bool, typer.Option("--repair", help="Have the node check stale clients, and send again.")
    ] = False,
    json: JsonOption = False,
    out: OutOption = None,
    master: MasterOption = _LOCAL,
    conf: ConfOption = None,
) -> None:
    """Compare every registration with what its object stands at: who has not heard, and why?

    The exit code is 1 if clients are stale: online, and not told what they should have been.
    """
    began = time.time()
    with sentences():
        if repair and is_backup(data):
            raise BadInput(f"{data} is a backup: only a node that runs can send anything")
        check_state(data)
        write = writer(out)
        with session("audit", master, conf) as spark:
            from roskva.pipeline import node
            from roskva.pipeline.jobs.audit import Look
            from roskva.pipeline.jobs.audit import audit as run

            look = Look(
                lambda: state_of(data), lambda: node.online(data), lambda: node.recheck(data)
            )
            kept = None if is_backup(data) else partial(keep_objects, data)
            found = run(spark, look, grace_s=grace, repair=repair, out=write, per_object=kept)
        if not is_backup(data):
            keep(data, "audit", began, found)
    if json:
        print_json(found)
    else:
        report.show_audit(found)
    raise typer.Exit(FAILED if found.states["stale"] else OK)


def gc(
    data: DataArgument = _DATA,
    days: Annotated[
        float, typer.Option(min=0.0, help="Forget clients that were not seen for so many days.")
    ] = 90.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be forgotten.")
    ] = False,
    json: JsonOption = False,
    out: OutOption = None,
    master: MasterOption = _LOCAL,
    conf: ConfOption = None,
) -> None:
    """Forget clients that have been away for long, and rows that belong to nobody.

    The node that runs drops the rows, and keeps those of clients that are back. A client that
    comes back later keeps its identity, registers again by itself, and is told everything once.
    """
    began = time.time()
    with sentences():
        check_state(data)
        write = writer(out)
        with session("gc", master, conf) as spark, state_of(data) as state:
            from roskva.pipeline import node
            from roskva.pipeline.jobs.gc import gc as run

            found = run(
                spark,
                state,
                online=node.online(data),
                away_since=datetime.now(UTC) - timedelta(days=days),
                forget=None if dry_run else partial(node.forget, data),
                out=write,
            )
        keep(data, "gc", began, found)
    print_json(found) if json else report.show_gc(found)


def latency(
    data: DataArgument = _DATA,
    plots: Annotated[
        Path,
        typer.Option(exists=True, file_okay=False, help="The directory for the two pictures."),
    ] = Path("."),
    json: JsonOption = False,
    out: OutOption = None,
    master: MasterOption = _LOCAL,
    conf: ConfOption = None,
) -> None:
    """Say how long notifications take from publish to ack, and where the time goes.

    From the times that a node notes for sampled updates. Draws latency-cdf and latency-stages, as
    SVG and as PNG. `--out` has one row per delivery.
    """
    began = time.time()
    with sentences():
        write = writer(out)
        with session("latency", master, conf) as spark:
            from roskva.pipeline.jobs.latency import deliveries, stage_times
            from roskva.pipeline.jobs.latency import latency as run
            from roskva.pipeline.jobs.plots import draw
            from roskva.pipeline.traces import traces

            noted = traces(spark, data)
            if write is not None:
                write(stage_times(deliveries(noted)))
            found = run(noted)
            made = draw(found, plots)
        draw(found, keep(data, "latency", began, found))
    print_json(found) if json else report.show_latency(found, made)


def replay(
    data: DataArgument = _DATA,
    shard: Annotated[int, typer.Option(min=0, help="Whose store was lost.")] = 0,
    json: JsonOption = False,
    out: OutOption = None,
    master: MasterOption = _LOCAL,
    conf: ConfOption = None,
) -> None:
    """Rebuild a shard's object rows from its feed, after its store was lost.

    The node must be stopped, and the store deleted. The shard begins a new epoch; where the feed
    reaches back, clients are told versions.
    """
    began = time.time()
    with sentences(), DataDirectory.open(data).own(shard) as owned:
        write = writer(out)
        with session("replay", master, conf) as spark:
            from roskva.pipeline.jobs.replay import replay as run

            found = run(spark, owned.feed_path, owned.store_path, out=write)
        keep(data, "replay", began, found)
    print_json(found) if json else report.show_replay(shard, found)


def plan(
    data: Annotated[
        Path | None,
        typer.Argument(metavar="DATA", help="Whose registrations and rates. None: made up."),
    ] = None,
    registrars: Annotated[int, typer.Option(min=1, help="Processes that serve clients.")] = 1,
    matchers: Annotated[int, typer.Option(min=1, help="Processes that share the shards.")] = 1,
    shards: Annotated[int, typer.Option(min=1, help="If made up.")] = 4,
    clients: Annotated[int, typer.Option(min=1, help="If made up.")] = 100_000,
    each: Annotated[int, typer.Option(min=1, help="Registrations of a client, if made up.")] = 5,
    objects: Annotated[int, typer.Option(min=1, help="If made up.")] = 10_000,
    rate: Annotated[float, typer.Option(min=0.0, help="Updates per second, if made up.")] = 100.0,
    hours: Annotated[float, typer.Option(min=0.01, help="Of the feed, to count updates in.")] = 1.0,
    json: JsonOption = False,
    out: OutOption = None,
    master: MasterOption = _LOCAL,
    conf: ConfOption = None,
) -> None:
    """Say how load and memory would spread over processes, and what more clients would need."""
    began = time.time()
    with sentences():
        if data is not None:
            check_state(data)
        write = writer(out)
        with session("plan", master, conf) as spark:
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
    print_json(found) if json else report.show_plan(found)
