"""Counting what the prober does apart; writing traces down, until the node stops."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from roskva.disk import RealDisk
from roskva.errors import StorageUnavailable
from roskva.feed.base import Batch, Marker
from roskva.feed.reader import LogReader
from roskva.feed.trace import Trace
from roskva.model import PROBE_APP, PROBE_SLOW_APP, Update
from roskva.server import observers
from roskva.wire.messages import Notification


class SlowTrace(Trace):
    """Its first write lasts until somebody closes it meanwhile, or for a while."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, 1, 0)
        self.writing, self.closing = threading.Event(), threading.Event()
        self.closed_meanwhile: bool | None = None

    def write(self, entries: Sequence[Update], now_us: int) -> None:
        if not self.writing.is_set():
            self.writing.set()
            self.closed_meanwhile = self.closing.wait(0.3)
        super().write(entries, now_us)

    def close(self, now_us: int) -> None:
        self.closing.set()
        super().close(now_us)


class FullTrace(Trace):
    full = True

    def write(self, entries: Sequence[Update], now_us: int) -> None:
        if self.full:
            raise StorageUnavailable("no space left")
        super().write(entries, now_us)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observers, "_FLUSH_S", 0.001)


def test_a_node_that_stops_waits_for_what_is_being_written(tmp_path: Path) -> None:
    trace = SlowTrace(tmp_path)

    async def scenario() -> None:
        keeping = asyncio.create_task(observers.write_trace(trace))
        trace.note("published", "a/x", 1, 1)
        await asyncio.to_thread(trace.writing.wait)
        trace.note("appended", "a/x", 1, 2)
        await stop(keeping)

    asyncio.run(scenario())
    assert trace.closed_meanwhile is False
    assert written(tmp_path) == ["published", "appended"]


def test_a_full_disk_costs_the_trace_and_not_the_node(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trace = FullTrace(tmp_path, 1, 0)

    async def scenario() -> None:
        keeping = asyncio.create_task(observers.write_trace(trace))
        trace.note("published", "a/x", 1, 1)
        while "a part of the trace is lost: no space left" not in caplog.text:
            assert not keeping.done()
            await asyncio.sleep(0.001)
        trace.full = False
        trace.note("appended", "a/x", 1, 2)
        await stop(keeping)

    asyncio.run(scenario())
    assert written(tmp_path) == ["appended"]


def test_a_disk_that_stays_full_is_left_to_the_next(tmp_path: Path) -> None:
    trace = FullTrace(tmp_path, 1, 0)

    async def scenario() -> None:
        keeping = asyncio.create_task(observers.write_trace(trace))
        await asyncio.sleep(0)
        await stop(keeping)

    asyncio.run(scenario())
    Trace(tmp_path, 1, 0).close(0)


def test_what_the_prober_does_is_counted_apart() -> None:
    counters = observers.TrafficCounters()
    objects = ["a/x", f"{PROBE_APP}/x", "a/y", f"{PROBE_SLOW_APP}/x", "a/x"]
    counters.appended([(i, Update(key, 1)) for i, key in enumerate(objects, 1)])
    assert counters.published == {"users": 3, "probe": 2}
    counters.handed([Notification("a/x", 1, 1), Notification("a/y", None, 1)], 5)
    counters.handed([Notification(f"{PROBE_APP}/x", 1, 1)], 1)
    counts = counters.notifications
    assert {which: count for which, count in counts.items() if count} == {
        ("users", "version"): 5,
        ("users", "unknown"): 5,
        ("probe", "version"): 1,
    }


def test_updates_are_counted_by_the_way_by_which_they_came(
    caplog: pytest.LogCaptureFixture,
) -> None:
    counters = observers.TrafficCounters()
    caplog.set_level(logging.INFO)
    for way, updates in (("fast", 5), ("bridge", 3), ("bridge", 2), ("own", 1)):
        counters.applied(1, way, updates)  # type: ignore[arg-type]
    assert counters.ways == {1: {"fast": 5, "bridge": 5, "own": 1, "start": 0}}
    counters.reads_alone(1, True)
    assert counters.alone == {1}
    counters.reads_alone(1, False)
    assert counters.alone == set()
    first, second = (record.getMessage() for record in caplog.records)
    assert "shard 1 reads its feed by itself" in first
    assert "to the bridge again" in second


async def stop(keeping: "asyncio.Task[None]") -> None:
    keeping.cancel()
    await asyncio.wait([keeping])
    assert keeping.cancelled() or keeping.exception() is None


def written(directory: Path) -> list[str | None]:
    reader = LogReader(RealDisk(), str(directory))
    stages: list[str | None] = []
    while isinstance(read := reader.read(Marker(reader.lineage, len(stages))), Batch):
        stages += [update.source for _, update in read.entries()]
    return stages
