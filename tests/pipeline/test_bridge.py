"""The bridge's query on Spark, from a written feed to a scripted matcher."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.pipeline.feeds import WrittenData, updates
from tests.pipeline.scripted_matcher import ScriptedMatcher

from roskva.pipeline.bridge import SparkBridge
from roskva.pipeline.feeds import BEAT, passed

KEYS = [f"app/object-{i}" for i in range(20)]

pytestmark = pytest.mark.usefixtures("matchers_have_time")


def await_that(condition: Callable[[], bool], within_s: float = 180.0) -> None:
    give_up_at = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


class Scene:
    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self.data = WrittenData(directory / "data", shards=1)
        self.matcher = ScriptedMatcher(self.data.path, directory / "state-0", [0], 1000)
        self.bridge = SparkBridge(spark, self.data.path)
        self.checkpoint = directory / "checkpoint"

    def publish(self, versions: range) -> None:
        self.data.publish(*updates(KEYS, versions))
        self.matcher.misses(0, self.end())

    def end(self) -> int:
        return self.data.logs[0].reader().end()

    def delivered(self) -> bool:
        return self.matcher.position[0] == self.end()


@pytest.fixture
def scene(spark: SparkSession, tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(spark, tmp_path)
    yield scene
    for query in spark.streams.active:
        query.stop()
    scene.bridge.close()
    scene.matcher.stop()
    scene.data.close()


def test_everything_arrives_and_after_a_restart_it_goes_on(scene: Scene) -> None:
    scene.publish(range(1, 4))
    query = scene.bridge.start(scene.checkpoint)
    await_that(scene.delivered)
    scene.publish(range(4, 6))
    await_that(scene.delivered)
    query.stop()
    scene.publish(range(6, 8))
    query = scene.bridge.start(scene.checkpoint)
    await_that(scene.delivered)
    # In order and without holes: each offer began where the last had ended.
    last = 0
    for offer in scene.matcher.offers:
        assert offer.first <= last + 1
        last = max(last, offer.last)
    assert query.exception() is None


def test_a_gap_of_a_matcher_that_was_away_is_closed_beside_the_query(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What is behind lies before the query's checkpoint, and there is nothing new to carry it along.
    scene.publish(range(1, 4))
    scene.matcher.position[0] = scene.end()
    query = scene.bridge.start(scene.checkpoint)
    await_that(lambda: query.lastProgress is not None)
    query.stop()  # its next beat would close the gap in passing
    scene.matcher.position[0] = 7  # it is back, from an old copy of its disk
    lags = scene.bridge.lags()
    assert lags[0].updates == scene.end() - 7
    assert lags[0].seconds > 0
    monkeypatch.setattr("roskva.pipeline.bridge._GAP_S", 0.0)
    been = passed({"shard-00": scene.end(), "shard-00.lineage": 1000, BEAT: 0})
    assert scene.bridge.gaps(lags, been) == []
    await_that(lambda: scene.bridge.gaps(scene.bridge.lags(), been) == [0])
    # It asks in a worker of Spark, which does without a matcher that does not answer at once.
    await_that(lambda: scene.bridge.close_gaps() == 1)
    assert scene.delivered()
    assert scene.bridge.lags() == {}
