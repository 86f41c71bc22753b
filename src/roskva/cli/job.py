"""`roskva job NAME`: batch jobs over the state of a node, on Spark."""

import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from roskva.cli.outcome import EXIT_CODES, FAILED, OK, sentences
from roskva.errors import BadInput
from roskva.pipeline.requirements import require_pipeline
from roskva.server.backup import MANIFEST
from roskva.server.checkpoints import checkpoints
from roskva.server.directory import DataDirectory

if TYPE_CHECKING:
    from roskva.pipeline.jobs.audit import Audit
    from roskva.pipeline.state import State

Spark = Any
"""A session. Only the pipeline knows what that is."""

_POLL_S: Final = 0.1
_SETTINGS: Final = {
    # Unlike the bridge, jobs shuffle, and are over when they are done.
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.shuffle.partitions": str(4 * (os.cpu_count() or 1)),
    "spark.driver.memory": "4g",
}

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

console = Console(markup=False, highlight=False)


def register(app: typer.Typer) -> None:
    jobs = typer.Typer(help="Batch jobs over the state of a node, on Spark.", no_args_is_help=True)
    jobs.command(
        epilog="Examples: roskva job audit\n\n"
        "roskva job audit --repair\n\n"
        "roskva job audit /mnt/backups/monday --out behind.csv\n\n"
        f"{EXIT_CODES}"
    )(audit)
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
    with sentences(), session("audit", master, conf) as spark:
        from roskva.pipeline import node
        from roskva.pipeline.jobs.audit import Look
        from roskva.pipeline.jobs.audit import audit as run
        from roskva.pipeline.output import writer

        if repair and is_backup(data):
            raise BadInput(f"{data} is a backup: only a node that runs can send anything")
        look = Look(lambda: state_of(data), lambda: node.online(data), lambda: node.recheck(data))
        found = run(
            spark, look, grace_s=grace, repair=repair, out=writer(out) if out is not None else None
        )
    if json:
        print_json(found)
    else:
        show_audit(found)
    raise typer.Exit(FAILED if found.states["stale"] else OK)


def show_audit(found: "Audit") -> None:
    table = _table("state", "registrations", "")
    for state, count in found.states.items():
        share = f"{count / max(1, found.registrations):.2%}"
        table.add_row(state, f"{count:,}", share)
    table.add_row("all", f"{found.registrations:,}", f"for {found.objects:,} objects")
    console.print(table)
    if found.worst:
        console.print(f"\nPending since {_moment(found.pending_since)}; most of it for:")
        table = _table("object", "due", "of", "published")
        for worst in found.worst:
            row = (worst.object, f"{worst.due:,}", f"{worst.registrations:,}")
            table.add_row(*row, _moment(worst.since))
        console.print(table)
    for key, client in found.stale:
        console.print(f"stale: {key} at client {client}", style="red")
    repaired = f", {found.repaired:,} repaired" if found.repaired else ""
    stale = found.states["stale"]
    console.print(f"\n{stale:,} stale{repaired}", style="bold red" if stale else "bold green")


# What jobs have in common.


@contextmanager
def session(name: str, master: str, conf: list[str] | None) -> Iterator[Spark]:
    """A Spark session with a bar on the terminal that says how far it is."""
    settings = dict(_SETTINGS)
    for setting in conf or ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--conf is written KEY=VALUE; got {setting!r}")
        settings[key] = value
    require_pipeline()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    terminal = Console(stderr=True)
    bar = Progress(
        *columns,
        TimeElapsedColumn(),
        console=terminal,
        transient=True,
        disable=not terminal.is_terminal,
    )
    with bar:
        task = bar.add_task("starting Spark", total=None)
        from roskva.pipeline.failing import spark_errors
        from roskva.pipeline.output import Tasks
        from roskva.pipeline.session import spark_session

        spark = spark_session(f"roskva job {name}", master, settings)
        try:
            tasks = Tasks(spark)

            def show() -> None:
                done, total = tasks.look()
                bar.update(task, description=name, completed=done, total=total or None)

            with _every(_POLL_S, show), spark_errors():
                yield spark
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


def is_backup(path: Path) -> bool:
    return (path / MANIFEST).exists()


def print_json(found: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def _moment(time: datetime | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S") if time is not None else "–"


def _table(*columns: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table
