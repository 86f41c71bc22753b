"""`roskva backup` and `roskva restore`."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from rich.progress import BarColumn, DownloadColumn, TextColumn
from typer import Argument

from roskva.cli.options import command
from roskva.cli.outcome import progress
from roskva.server.backup import RestoredShard, back_up, read_manifest
from roskva.server.backup import restore as restore_backup
from roskva.server.directory import DataDirectory

DataArgument = Annotated[Path, Argument(metavar="DATA", help="The data directory.")]
BackupArgument = Annotated[Path, Argument(metavar="DIR", help="The backup.")]


@command("roskva backup data/ /mnt/backups/monday")
def backup(data: DataArgument, target: BackupArgument) -> None:
    """Copy a data directory, consistently, to an empty or new one; also while a node serves it."""
    with progress_bar("backing up") as report:
        directory, now_us = DataDirectory.open(data), time.time_ns() // 1000
        made = back_up(directory, target, now_us, report)
    size = sum(file.size for file in made.files)
    print(f"{made.shards} shards, {len(made.files)} files, {size:,} bytes in {target}")


@command("roskva restore /mnt/backups/monday data/")
def restore(
    source: BackupArgument,
    data: DataArgument,
    nothing_published_since: Annotated[
        bool,
        "The node was stopped before the backup was made and has not run since: clients "
        "need not be told to look again.",
    ] = False,
) -> None:
    """Make a data directory, empty or new, from a backup; every byte is checked.

    What was published after the backup is gone, so every shard begins a new epoch, and clients are
    told once, for each object they registered for, to look again.
    """
    made_at = time.gmtime(read_manifest(source).made_at / 1e6)
    with progress_bar("restoring") as report:
        shards = restore_backup(
            source,
            data,
            nothing_published_since=nothing_published_since,
            progress=report,
        )
    print(f"{data} is as it was at {time.strftime('%Y-%m-%d %H:%M:%S', made_at)} UTC")
    for shard in shards:
        print(sentence_about(shard))


def sentence_about(shard: RestoredShard) -> str:
    parts = [f"shard {shard.number}: {shard.behind:,} updates to catch up with from the feed"]
    parts += [f"offsets {first} to {last} are damaged" for first, last in shard.unreadable]
    parts.append("a new epoch" if shard.new_epoch else "its epoch goes on")
    return "; ".join(parts)


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[int, int], None]]:
    with progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn()) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
