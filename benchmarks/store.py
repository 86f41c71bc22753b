"""The store: what a cell costs when it is durable, and what the event loop notices of it."""

import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path

from benchmarks.result import Result, Settings
from roskva.store import rows
from roskva.store.base import Put
from roskva.store.rocksdb import RocksStore
from roskva.store.worker import SWITCH_INTERVAL_S, StoreWorker

CELLS = 300_000
BATCH = 1_000
WRITERS = 4
PROBE_S = 0.0005


def run(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as directory:
        stored = 1_000_000 if settings.full else 200_000
        return [
            *asyncio.run(write_results(Path(directory) / "written")),
            *reopen_results(Path(directory) / "large", stored),
        ]


def batches(first: int, count: int, timestamp: int) -> Iterator[list[Put]]:
    for start in range(first, first + count, BATCH):
        yield [
            Put(rows.object_key(f"contacts/user-{number:09}"), b"v", timestamp, bytes(24))
            for number in range(start, start + BATCH)
        ]


async def write_results(directory: Path) -> list[Result]:
    sys.setswitchinterval(SWITCH_INTERVAL_S)  # as a node does
    worker = StoreWorker(RocksStore(directory))
    new, new_pause = await cells_per_second(worker, list(batches(0, CELLS, 1)))
    newer, newer_pause = await cells_per_second(worker, list(batches(0, CELLS, 2)))
    read_ms = await read_milliseconds(worker)
    await worker.close()
    return [
        Result("new cells, synced", new, "cells/s", 300_000, "higher", f"batches of {BATCH}"),
        Result("longest pause of the loop meanwhile", new_pause * 1e3, "ms", 10),
        Result("newer cells over older, synced", newer, "cells/s", note="each is read first"),
        Result("longest pause of the loop meanwhile", newer_pause * 1e3, "ms", 10),
        Result("read 1,000 objects in one call", read_ms, "ms"),
    ]


async def cells_per_second(worker: StoreWorker, work: list[list[Put]]) -> tuple[float, float]:
    """And the longest pause of the loop in seconds."""
    probe = asyncio.create_task(longest_pause())
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for some in range(WRITERS):
            tasks.create_task(write_all(worker, work[some::WRITERS]))
    took = time.perf_counter() - began
    probe.cancel()
    return len(work) * BATCH / took, await probe


async def longest_pause() -> float:
    """How late a short timer comes, at worst, until it is cancelled."""
    worst_s = 0.0
    while True:
        due = time.perf_counter() + PROBE_S
        try:
            await asyncio.sleep(PROBE_S)
        except asyncio.CancelledError:
            return worst_s
        worst_s = max(worst_s, time.perf_counter() - due)


async def write_all(worker: StoreWorker, work: list[list[Put]]) -> None:
    for batch in work:
        await worker.write(batch)


async def read_milliseconds(worker: StoreWorker) -> float:
    began = time.perf_counter()
    rounds = 50
    for first in range(rounds):
        keys = [
            f"contacts/user-{number:09}" for number in range(first * 5_000, first * 5_000 + 1_000)
        ]
        found = await worker.run(methodcaller("read_cells", rows.object_cells(keys)))
        assert sum(cell is not None for cell in found) == 1_000
    return (time.perf_counter() - began) / rounds * 1e3


def reopen_results(directory: Path, stored: int) -> list[Result]:
    store = RocksStore(directory)
    for batch in batches(0, stored, 1):
        store.write(batch)
    store.sync()
    store.close()
    began = time.perf_counter()
    store = RocksStore(directory)
    assert store.read(rows.object_key("contacts/user-000000001"))
    took = time.perf_counter() - began
    store.close()
    return [Result(f"reopen a store of {stored:,} rows", took * 1e3, "ms")]
