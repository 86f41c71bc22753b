"""What jobs have in common: a Spark session with a bar, the state they look at, JSON."""

import os
import secrets
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from roskva.errors import BadInput
from roskva.pipeline.requirements import require_pipeline
from roskva.server.backup import MANIFEST
from roskva.server.checkpoints import checkpoints
from roskva.server.directory import DataDirectory

if TYPE_CHECKING:
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


def check_state(path: Path) -> None:
    """Raises `BadInput` if there is none: whoever mistyped it need not wait for Spark to start."""
    if not is_backup(path):
        DataDirectory.open(path)


def is_backup(path: Path) -> bool:
    return (path / MANIFEST).exists()


def print_json(found: msgspec.Struct) -> None:
    sys.stdout.buffer.write(msgspec.json.format(msgspec.json.encode(found)) + b"\n")


def feed_of(spark: Spark, data: Path) -> Any:
    from roskva.pipeline.source import NAME, FeedSource

    spark.dataSource.register(FeedSource)
    return spark.read.format(NAME).option("failOnDataLoss", False).load(str(data))
