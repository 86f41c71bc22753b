"""`roskva bench`: measures, shows tables, and writes raw results and the report.

`python -m benchmarks` is the same.
"""

import importlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from benchmarks import report
from benchmarks.machine import machine, versions
from benchmarks.record import Record
from benchmarks.result import NotMeasured, Settings
from benchmarks.serving.servers import tree

BENCHMARKS: Final = {
    "coldnotify": "one hot object, arriving clients, recovery: as in ColdNotify",
    "thialfi": "more users, more notifications, latency and its stages: as in Thialfi",
    "wormhole": "the feed: appended, read, caught up with, and by many readers at once",
    "serving": "fan-out and memory of a node, beside Mosquitto",
    "switches": "real-time priority, prober and pipeline, each on and off",
    "brokers.fanout": "Mosquitto, NATS and Redis: one object with 1,000 subscribers",
    "brokers.subscribers": "… by subscribers of each update, from 1 to 3,000",
    "brokers.own_objects": "… 1,000 subscribers, each on an object of its own",
    "brokers.hot": "… many updates of one object at once",
    "brokers.offline": "… clients that were away return",
    "brokers.idle": "… memory of clients that hear nothing",
    "brokers.killed": "… kill -9 of the server under load",
    "limits": "how many connected clients fit, and how long they take to come back",
    "core": "the protocol's machines alone",
    "store": "the rows",
    "collection": "clients that were away for too long, collected while others are served",
    "pipeline": "Spark: the reliable path, and what it takes at rest and at work",
    "sources.backlog": "databases that publish: what a reader has missed, beside Debezium",
    "sources.told": "… from a commit to the client, and how many changes/s",
    "sources.flows": "… several flows of one database, most of them on Spark",
    "sources.behind": "… a flow that is a million changes behind",
    "audit": "the audit of many clients",
}
"""Each is a module of this package; the report has them in this order."""


def measure(
    names: Sequence[str],
    *,
    full: bool = False,
    repetitions: int | None = None,
    json: Path | None = None,
    into: Path | None = None,
) -> Record:
    """`json`: where to write the raw results; `into`: the directory of the report."""
    console = Console()
    repetitions = repetitions or (5 if full else 3)
    record = Record(datetime.now(UTC), machine(), versions(), full, repetitions)
    with _no_process_left(), _bars(console) as bars:
        all_of_them = bars.add_task("all", total=len(names), now="")
        for name in names:

            def progress(text: str, name: str = name) -> None:
                bars.update(all_of_them, now=escape(f"{name}: {text}"))

            progress("…")
            began = time.monotonic()
            try:
                found = module(name).run(Settings(repetitions, full, progress))
            except NotMeasured as missing:
                record.left_out[name] = str(missing)
                console.print(f"[bold]{name}[/] is not measured: {missing}")
            except Exception as error:  # the others are not to be lost with it
                record.failed[name] = f"{type(error).__name__}: {error}"
                console.print_exception()
            else:
                record.results[name] = found
                console.print(report.on_terminal(name, found))
            record.seconds[name] = time.monotonic() - began
            if json is not None:
                record.save(json)  # so far: whoever interrupts an hour keeps what was measured
            bars.update(all_of_them, advance=1)
    if into is not None:
        record.save(into / "results.json")
        write_report(record, into)
        console.print(f"The report is in {into / 'README.md'}.")
    return record


def write_report(record: Record, into: Path) -> None:
    report.write(record, {name: module(name) for name in BENCHMARKS}, into)


def module(name: str) -> ModuleType:
    return importlib.import_module(f"benchmarks.{name}")


def _bars(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[now]}"),
        console=console,
        transient=True,
    )


@contextmanager
def _no_process_left() -> Iterator[None]:
    """Benchmarks stop what they start; this is for one that was interrupted while it did so."""
    before = set(tree(os.getpid()))
    try:
        yield
    finally:
        for pid in set(tree(os.getpid())) - before:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue


if __name__ == "__main__":
    from roskva.cli.main import main

    sys.argv.insert(1, "bench")
    main()
