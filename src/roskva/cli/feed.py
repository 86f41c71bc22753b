"""`roskva feed`: look into the feed, check it, mend it."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TextColumn
from rich.table import Table
from typer import Argument, Option

from roskva.cli.options import command
from roskva.cli.outcome import EXIT_CODES, FAILED, LATER, OK, complain, progress
from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.base import Batch, Foreign, Idle, Marker, Missing
from roskva.feed.check import Checked, repair, verify
from roskva.feed.claim import is_claimed
from roskva.feed.reader import LogReader, wait_for_growth
from roskva.feed.record import MARKERS, read_markers
from roskva.feed.recovery import skip_in
from roskva.model import WHOLE_SHARD
from roskva.sources.changes import DIRECTORY as SOURCES
from roskva.sources.changes import LOG as CHANGES

_LOOK_AGAIN_S = 0.5

app = typer.Typer(
    help="Look into the feed, check it, mend it.",
    epilog=f"Exit code 1 is damage; 3 a torn tail and nothing worse, which the next start steps "
    f"over, or a writer that is alive. {EXIT_CODES}",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Where = Annotated[
    Path, Argument(metavar="DIR", help="A data directory, one of its shards, or a feed.")
]


@command("roskva feed ls data/", of=app, codes="", name="ls")
def list_feeds(where: Where) -> None:
    """List segments and markers."""
    console = Console()
    for directory in feeds_in(where):
        console.print(f"[bold]{directory}[/]", soft_wrap=True, highlight=False)
        show_feed(console, str(directory))


@command(
    "roskva feed cat data/shard-00 --from 1000",
    "roskva feed cat data/shard-00 --follow --json | jq .version",
    of=app,
    codes="",
)
def cat(
    where: Where,
    start: Annotated[int | None, Option("--from", min=1, help="Begin at this offset.")] = None,
    follow: Annotated[bool, Option("--follow", "-f", help="Wait for more.")] = False,
    json: Annotated[bool, "One JSON object per line."] = False,
) -> None:
    """Print updates, one per line. Ranges that cannot be read are named on stderr (exit code 1)."""
    reader = LogReader(RealDisk(), str(the_feed_in(where)))
    after = max(start or 1, reader.start()) - 1
    if start is not None and after >= start:
        complain(f"offsets {start} to {after} are gone: retention has passed them")
    damaged = print_updates(reader, after, follow, json)
    raise typer.Exit(FAILED if damaged else OK)


@command("roskva feed verify data/ && echo sound", of=app, codes="", name="verify")
def verify_feeds(where: Where) -> None:
    """Check every frame, marker and header; name what is damaged. Safe beside a running server."""
    found = [verify_feed(directory) for directory in feeds_in(where)]
    raise typer.Exit(max(found, key=[OK, LATER, FAILED].index))


@command("roskva feed repair data/shard-00", of=app, codes="", name="repair")
def repair_feeds(where: Where) -> None:
    """Cut a torn tail and restore what is kept twice. No readable frame is ever deleted.

    Refuses while a writer is alive. What stays damaged is named, and the exit code is then 1.
    """
    found = []
    for directory in feeds_in(where):
        done = repair(RealDisk(), str(directory), time.time_ns() // 1000)
        for sentence in done or ["nothing to repair"]:
            print(f"{directory}: {sentence}")
        found.append(verify_feed(directory))
    raise typer.Exit(max(found, key=[OK, LATER, FAILED].index))


def feeds_in(where: Path) -> list[Path]:
    if (where / MARKERS).is_dir():
        return [where]
    found = sorted(path.parent for path in where.glob(f"feed/{MARKERS}"))
    found += sorted(path.parent for path in where.glob(f"shard-*/feed/{MARKERS}"))
    found += sorted(path.parent for path in where.glob(f"{SOURCES}/*/{CHANGES}/{MARKERS}"))
    if not found:
        raise BadInput(f"there is no feed in {where}")
    return found


def the_feed_in(where: Path) -> Path:
    found = feeds_in(where)
    if len(found) > 1:
        raise BadInput(f"{where} has {len(found)} feeds; name one of them, such as {found[0]}")
    return found[0]


def show_feed(console: Console, directory: str) -> None:
    disk = RealDisk()
    reader = LogReader(disk, directory)
    writer = "a writer is alive" if is_claimed(disk, directory) else "no writer"
    console.print(
        f"lineage {reader.lineage:016x}, offsets {reader.start()} to {reader.end()}, {writer}"
    )
    table = Table("first", "last", "bytes", "writer", "rewritten", box=None, header_style="dim")
    for segment in reader.segments():
        last = reader.end() if segment.last is None else segment.last
        size = f"{disk.size(segment.path):,}"
        rewritten = "yes" if segment.header.rewritten else ""
        table.add_row(str(segment.first), str(last), size, str(segment.header.writer), rewritten)
    console.print(table)
    markers, damaged = read_markers(disk, directory)
    for name, marker in markers.items():
        console.print(f"marker {name}: {marker.offset}", highlight=False)
    for name in damaged:
        console.print(f"marker {name}: damaged", style="red")
    if skip := skip_in(disk, directory):
        console.print(f"the next writer goes on after {skip.offset}", highlight=False)


def print_updates(reader: LogReader, after: int, follow: bool, json: bool) -> bool:
    """Whether something was damaged."""
    damaged = False
    while True:
        match reader.read(Marker(reader.lineage, after)):
            case Batch() as batch:
                print_batch(batch, json)
                after = batch.last
            case Missing(first=first, last=after, why="restore"):
                complain(f"offsets {first} to {after} were left out when it was restored")
            case Missing(first=first, last=after):
                complain(f"offsets {first} to {after} cannot be read")
                damaged = True
            case Foreign(last=last):
                raise BadInput(f"the feed ends at offset {last}")
            case Idle(last=after):
                sys.stdout.flush()
                if not follow:
                    return damaged
                while not wait_for_growth(reader, after, _LOOK_AGAIN_S):
                    pass


def print_batch(batch: Batch, json: bool) -> None:
    for offset, update in batch.entries():
        if json:
            fields = msgspec.structs.asdict(update)
            row = {"offset": offset, **fields, "appended_at": batch.appended_at}
            print(msgspec.json.encode(row).decode())
        else:
            kind = "epoch " if update.object == WHOLE_SHARD else "reset " if update.reset else ""
            version = f"{kind}{update.version}"
            payload = "" if update.payload is None else repr(update.payload)[1:]
            print(offset, update.object, version, update.source or "-", payload, sep="\t")


def verify_feed(directory: Path) -> int:
    checked = list(with_progress(directory))
    problems = [problem for file in checked for problem in file.problems]
    for problem in problems:
        kind = "torn tail" if problem.torn_tail else "damaged"
        print(f"{directory}/{problem.file}: {kind}: {problem.what}")
    for left_out in (file.left_out for file in checked if file.left_out is not None):
        print(
            f"{directory}: restored from a backup; what was published after it, offsets "
            f"{left_out.first} to {left_out.last}, was left out"
        )
    frames, updates = sum(file.frames for file in checked), sum(file.updates for file in checked)
    print(f"{directory}: {updates} updates in {frames} sound frames, {len(problems)} problems")
    if not problems:
        return OK
    return LATER if all(problem.torn_tail for problem in problems) else FAILED


def with_progress(directory: Path) -> Iterator[Checked]:
    with progress(TextColumn("checking"), BarColumn(), DownloadColumn()) as bar:
        total = sum(path.stat().st_size for path in directory.glob("*.log"))
        task = bar.add_task("checking", total=total)
        for checked in verify(RealDisk(), str(directory)):
            bar.advance(task, checked.size)
            yield checked
