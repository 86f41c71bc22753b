"""A bridge that was away: how fast it reads what it has missed, and brings it to a matcher."""

import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from benchmarks.pipeline_node import SHARDS, serving
from benchmarks.result import Result, Settings
from roskva.disk import RealDisk
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.model import Update, shard_of
from roskva.server.directory import DataDirectory, ShardPlace

_OBJECTS: Final = 100_000
_FRAME: Final = 4096
_ONLY_BRIDGED: Final = (
    "from roskva.server.executor import ShardExecutor\n"
    # The bridge alone brings it what it lacks.
    "ShardExecutor._read_feed = lambda self, asked: None\n"
    "from roskva.cli.main import main\n"
    "main()"
)


def run(settings: Settings, scratch: Path) -> list[Result]:
    from roskva.pipeline.bridge import BridgeSource
    from roskva.pipeline.session import spark_session

    many, some = (10_000_000, 200_000) if settings.full else (1_000_000, 20_000)
    large, single = scratch / "large", scratch / "single"
    settings.progress("catching up: writing what will be missed")
    _write(large, many, _OBJECTS, _FRAME)
    _write(single, some, _OBJECTS, 1)
    settings.progress("catching up: a bridge reads it")
    spark = spark_session("benchmark")
    spark.dataSource.register(BridgeSource)
    try:
        cold = _read(spark, large, many)
        read, read_single = _read(spark, large, many), _read(spark, single, some)
        delivered = _deliver(spark, large, many)
        delivered_single = _deliver(spark, single, some)
    finally:
        spark.stop()
    what = f"{many:,} updates of {_OBJECTS:,} objects"
    return [
        Result(
            "catching up: read and coalesced",
            *(read, "updates/s", 1_000_000.0, "higher", f"{what}, warm; {cold:,.0f} cold"),
            peers={"Wormhole": 600_000},
        ),
        Result("… and durable in one matcher", delivered, "updates/s", better="higher"),
        Result(
            "one update per commit: read and coalesced",
            *(read_single, "updates/s", None, "higher", f"{some:,} updates"),
        ),
        Result("… and durable in one matcher", delivered_single, "updates/s", better="higher"),
    ]


def _read(spark: Any, data: Path, updates: int) -> float:
    """Per second, for a matcher that stands at the beginning and takes nothing."""
    from pyspark.sql import functions as F

    with serving(data, "--no-pipeline", program=_ONLY_BRIDGED):
        began = time.perf_counter()
        source = spark.read.format("roskva-bridge").option("path", str(data))
        [found] = source.option("maxUpdatesPerTrigger", updates).load().agg(F.count("*")).collect()
        took = time.perf_counter() - began
    assert found[0] == min(updates, _OBJECTS)
    return updates / took


def _deliver(spark: Any, data: Path, updates: int) -> float:
    """Per second, until everything is durable where it belongs."""
    from roskva.pipeline.bridge import SparkBridge
    from roskva.pipeline.feeds import Feeds
    from roskva.pipeline.node import MatcherLinks

    with serving(data, "--no-pipeline", program=_ONLY_BRIDGED):
        bridge = SparkBridge(spark, data)
        began = time.perf_counter()
        bridge.close_gaps()
        took = time.perf_counter() - began
        with closing(MatcherLinks(str(data))) as matchers:
            assert matchers.positions(range(SHARDS)) == Feeds(str(data)).ends()
        bridge.close()
    return updates / took


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
    data = DataDirectory.open_or_create(path, SHARDS)
    names: list[list[str]] = [[] for _ in range(SHARDS)]
    for number in range(objects):
        key = f"bench/object-{number}"
        names[shard_of(key, SHARDS)].append(key)
    for shard in range(SHARDS):
        feed = ShardPlace(data, shard).feed_path
        RealDisk().make_directory(str(feed.parent))
        config = LogConfig(retention=Retention(max_age_us=None))
        log = Log.open(_Unsynced(), str(feed), lineage=1 + shard, now_us=1, config=config)
        with closing(log):
            for first in range(0, updates // SHARDS, frame):
                mine = names[shard]
                log.append([Update(mine[i % len(mine)], i) for i in range(first, first + frame)])
                log.commit(time.time_ns() // 1000)
