"""The pipeline: how long the reliable path takes alone, how fast a bridge catches up, and what it
costs to have one that has nothing to do.

Everything runs as users run it, on this machine, and the figures mean little while others use it.
"""

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from benchmarks.result import NotMeasured, Result
from roskva.disk import RealDisk
from roskva.feed.log import Log, LogConfig
from roskva.feed.retention import Retention
from roskva.links.running import running
from roskva.model import Update, shard_of
from roskva.pipeline.requirements import what_is_missing
from roskva.server.directory import DataDirectory, ShardPlace

_SHARDS: Final = 4
_RATE: Final = 100.0
_OBJECTS: Final = 20
_WARM_S: Final = 30.0
_MEASURED_S: Final = 30.0
_START_S: Final = 300.0
_CATCH_UP: Final = 10_000_000
_CATCH_UP_OBJECTS: Final = 100_000
_SINGLE: Final = 200_000
_FRAME: Final = 4096
_ONLY_BRIDGED: Final = (
    "from roskva.server.shard import Shard\n"
    "Shard._read_feed = lambda self, asked: None\n"  # the bridge alone brings it what it lacks
    "from roskva.cli.main import main\n"
    "main()"
)


def run() -> list[Result]:
    missing = what_is_missing()
    if missing is not None:
        raise NotMeasured(missing)
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as scratch:
        return [*_latency(Path(scratch)), *_catching_up(Path(scratch))]


# The reliable path.


def _latency(scratch: Path) -> list[Result]:
    with _node(scratch / "latency", "--no-fast-path") as url:
        _await(lambda: _bridge(url).get("state") == "running", "the bridge does not start")
        time.sleep(10.0)  # what Spark does after its start is no cost of having it
        before = _pipeline(url)
        time.sleep(20.0)
        after = _pipeline(url)
        idle = (after["cpu_seconds"] - before["cpu_seconds"]) / 20.0
        waited = sorted(asyncio.run(_publish_and_wait(url)))
    return [
        Result(
            "publish to notify without the fast path, p50",
            1000 * statistics.median(waited),
            "ms",
            150.0,
            note=f"{len(waited):,} notifications at {_RATE:.0f} updates/s",
        ),
        Result("… p99", 1000 * waited[int(0.99 * len(waited))], "ms", 400.0),
        Result("an idle pipeline, processor", 100 * idle, "% of a core"),
        Result("an idle pipeline, memory", after["rss_bytes"] / (1 << 20), "MiB"),
    ]


async def _publish_and_wait(url: str) -> list[float]:
    """The version of an update is the time at which it was published."""
    names = [f"object-{i}" for i in range(_OBJECTS)]
    waited: list[tuple[float, float]] = []
    stop_at = time.monotonic() + _WARM_S + _MEASURED_S

    async def listen() -> None:
        objects = {"object": [f"bench/{name}" for name in names]}
        async with (
            httpx.AsyncClient(timeout=None) as client,
            client.stream("GET", f"{url}/v1/events", params=objects) as events,
        ):
            async for line in events.aiter_lines():
                if line.startswith("data:"):
                    version = msgspec.json.decode(line[5:]).get("version")
                    if version is not None:
                        waited.append((time.monotonic(), time.time() - int(version) / 1e6))

    async def publish() -> None:
        async with httpx.AsyncClient() as client:
            number, began = 0, time.monotonic()
            while time.monotonic() < stop_at:
                await asyncio.sleep(max(0.0, began + number / _RATE - time.monotonic()))
                update = {"app": "bench", "name": names[number % _OBJECTS]}
                await client.post(
                    f"{url}/v1/publish", json={**update, "version": time.time_ns() // 1000}
                )
                number += 1

    listening = asyncio.create_task(listen())
    await publish()
    await asyncio.sleep(2.0)
    listening.cancel()
    return [seconds for at, seconds in waited if at > stop_at - _MEASURED_S]


# Catching up.


def _catching_up(scratch: Path) -> list[Result]:
    from pyspark.sql import functions as F

    from roskva.pipeline.bridge import Bridge
    from roskva.pipeline.bridging import BridgeSource
    from roskva.pipeline.feeds import Feeds
    from roskva.pipeline.matchers import Matchers
    from roskva.pipeline.session import spark_session

    _write(scratch / "large", _CATCH_UP, _CATCH_UP_OBJECTS, _FRAME)
    _write(scratch / "single", _SINGLE, _CATCH_UP_OBJECTS, 1)
    spark = spark_session("benchmark")
    spark.dataSource.register(BridgeSource)
    rates: dict[str, float] = {}
    try:
        for name, updates in (("large", _CATCH_UP), ("large", _CATCH_UP), ("single", _SINGLE)):
            # Read and coalesced, for matchers that stand at the beginning and take nothing.
            with _node(scratch / name, "--no-pipeline", only_bridged=True):
                began = time.perf_counter()
                source = spark.read.format("roskva-bridge").option("path", str(scratch / name))
                rows = source.option("maxUpdatesPerTrigger", updates).load()
                [found] = rows.agg(F.count("*")).collect()
                rates[name] = updates / (time.perf_counter() - began)
                assert found[0] == min(updates, _CATCH_UP_OBJECTS)
        with _node(scratch / "large", "--no-pipeline", only_bridged=True):
            bridge = Bridge(spark, scratch / "large", fast_path=False)
            began = time.perf_counter()
            bridge.close_gaps()
            rates["delivered"] = _CATCH_UP / (time.perf_counter() - began)
            with closing(Matchers(str(scratch / "large"))) as matchers:
                ends = Feeds(str(scratch / "large")).ends()
                assert matchers.positions(range(_SHARDS)) == ends
            bridge.close()
    finally:
        spark.stop()
    return [
        Result(
            "catching up: read and coalesced",
            rates["large"],
            "updates/s",
            1_000_000.0,
            "higher",
            f"{_CATCH_UP:,} updates of {_CATCH_UP_OBJECTS:,} objects, warm",
        ),
        Result("… the same, one update per commit", rates["single"], "updates/s", better="higher"),
        Result("… and durable in one matcher", rates["delivered"], "updates/s", better="higher"),
    ]


class _Unsynced(RealDisk):
    """What is written for a benchmark need not survive a power cut."""

    def sync_directory(self, path: str) -> None:
        pass

    def create(self, path: str) -> Any:
        return _unsynced(super().create(path))

    def open(self, path: str) -> Any:
        return _unsynced(super().open(path))


def _unsynced(file: Any) -> Any:
    class Unsynced(type(file)):  # type: ignore[misc]
        __slots__ = ()

        def sync(self) -> None:
            pass

    file.__class__ = Unsynced
    return file


def _write(path: Path, updates: int, objects: int, frame: int) -> None:
    data = DataDirectory.open_or_create(path, _SHARDS)
    names: list[list[str]] = [[] for _ in range(_SHARDS)]
    for number in range(objects):
        key = f"bench/object-{number}"
        names[shard_of(key, _SHARDS)].append(key)
    for shard in range(_SHARDS):
        feed = ShardPlace(data, shard).feed_path
        RealDisk().make_directory(str(feed.parent))
        config = LogConfig(retention=Retention(max_age_us=None))
        log = Log.open(_Unsynced(), str(feed), lineage=1 + shard, now_us=1, config=config)
        with closing(log):
            for first in range(0, updates // _SHARDS, frame):
                mine = names[shard]
                log.append([Update(mine[i % len(mine)], i) for i in range(first, first + frame)])
                log.commit(time.time_ns() // 1000)


# Nodes.


@contextmanager
def _node(data: Path, *flags: str, only_bridged: bool = False) -> Iterator[str]:
    program = ["-c", _ONLY_BRIDGED] if only_bridged else ["-m", "roskva"]
    words = ["serve", "--data", str(data), "--port", "0", "--mqtt-port", "off"]
    (data / "node.json").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, *program, *words, *flags],
        stdout=subprocess.DEVNULL,
    )
    try:
        _await(lambda: running(data) is not None, "the node does not start")
        node = running(data)
        assert node is not None
        yield node.url
    finally:
        process.terminate()
        process.wait()


def _pipeline(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/v1/status", timeout=30.0).json()["pipeline"]
    return found


def _bridge(url: str) -> dict[str, Any]:
    parts = _pipeline(url).get("parts", [])
    return parts[0] if parts else {}


def _await(condition: Any, otherwise: str) -> None:
    give_up_at = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > give_up_at:
            raise NotMeasured(otherwise)
        time.sleep(0.1)
