"""The feed on this machine's disk: appending with a sync per group, and reading back into Arrow."""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.awaited import AwaitedCommit
from benchmarks.result import Result, Settings
from roskva.disk import RealDisk
from roskva.feed.base import START, Batch, Marker
from roskva.feed.commit import Committer
from roskva.feed.log import Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.upkeep import Retention
from roskva.model import Update

DISK = RealDisk()
BATCH = 100
KEEP_ALL = LogConfig(retention=Retention(max_age_us=None))


def run(settings: Settings, directory: Path) -> list[Result]:
    seconds = 2.0 if settings.full else 0.8

    def appended(name: str, publisher: Publisher, publishers: int) -> float:
        """In the middle of the repetitions."""
        settings.progress(f"appending: {name}")
        return statistics.median(
            asyncio.run(
                appended_per_s(f"{directory}/{name}-{turn}", publisher, publishers, seconds)
            )
            for turn in range(settings.repetitions)
        )

    sync_us = time_of_a_sync_us(f"{directory}")
    alone = appended("alone", publisher_of_batches, 1)
    batches = appended("batches", publisher_of_batches, 10)
    singles = appended("singles", publisher_of_singles, 100)
    settings.progress("reading")
    fresh = read_per_s(f"{directory}/singles-0")
    rows = 2_000_000 if settings.full else 500_000
    sealed, megabytes = sealed_read_per_s(f"{directory}/sealed", rows)
    note = f"one fdatasync: {sync_us:,.0f} µs"
    return [
        Result("append, one publisher of batches of 100", alone, "updates/s", better="higher"),
        Result(
            "append, 10 publishers of batches of 100", batches, "updates/s", 150_000, "higher", note
        ),
        Result("append, 100 publishers of one", singles, "updates/s", 20_000, "higher", note),
        Result(
            "read, sealed",
            *(sealed, "updates/s", 10e6, "higher"),
            peers={"Wormhole": 600_000},
        ),
        Result(
            "… in bytes",
            *(megabytes, "MB/s", None, "higher"),
            peers={"Wormhole": 350},
        ),
        Result("read, as written by 100 publishers of one", fresh, "updates/s", better="higher"),
    ]


def time_of_a_sync_us(directory: str) -> float:
    fd = os.open(f"{directory}/sync", os.O_RDWR | os.O_CREAT)
    try:
        times = []
        for i in range(200):
            os.pwrite(fd, bytes(4096), i * 4096)
            started = time.perf_counter()
            os.fdatasync(fd)
            times.append(time.perf_counter() - started)
        return sorted(times)[len(times) // 2] * 1e6
    finally:
        os.close(fd)


def new_log(directory: str) -> Log:
    return Log.open(DISK, directory, lineage=1, now_us=0, config=KEEP_ALL)


def some_updates(count: int) -> list[Update]:
    return [Update(f"bench/object-{i}", i, published_at=i) for i in range(count)]


Publisher = Callable[[AwaitedCommit, float], Awaitable[int]]


async def appended_per_s(
    directory: str, publisher: Publisher, publishers: int, seconds: float
) -> float:
    feed = AwaitedCommit(new_log(directory), Committer())
    started = time.perf_counter()
    counts = await asyncio.gather(*(publisher(feed, started + seconds) for _ in range(publishers)))
    elapsed = time.perf_counter() - started
    await feed.close()
    return sum(counts) / elapsed


async def publisher_of_batches(feed: AwaitedCommit, until: float) -> int:
    updates, count = some_updates(BATCH), 0
    while time.perf_counter() < until:
        await feed.publish(updates)
        count += BATCH
    return count


async def publisher_of_singles(feed: AwaitedCommit, until: float) -> int:
    updates, count = some_updates(1), 0
    while time.perf_counter() < until:
        await feed.publish(updates)
        count += 1
    return count


def read_per_s(directory: str) -> float:
    rows, _, elapsed = read_all(directory)
    return rows / elapsed


def sealed_read_per_s(directory: str, rows_to_read: int) -> tuple[float, float]:
    log = new_log(directory)
    for i in range(rows_to_read // BATCH // 10):
        log.append(some_updates(BATCH * 10))
        log.commit(i)
    log.close()
    log = new_log(directory)  # so that every segment with rows is a finished one
    while log.tidy(0):
        pass
    log.close()
    rows, size, elapsed = min((read_all(directory) for _ in range(3)), key=lambda run: run[2])
    return rows / elapsed, size / elapsed / 1e6


def read_all(directory: str) -> tuple[int, int, float]:
    """Rows, bytes, seconds."""
    started = time.perf_counter()
    reader = LogReader(DISK, directory)
    marker, rows, size = Marker(reader.lineage, START), 0, 0
    while isinstance(answer := reader.read(marker), Batch):
        rows += answer.rows.num_rows
        size += answer.rows.nbytes
        marker = Marker(reader.lineage, answer.last)
    return rows, size, time.perf_counter() - started
