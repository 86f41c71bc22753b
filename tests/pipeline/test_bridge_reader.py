"""What a bridge has to do, and what it leaves alone."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.pipeline.feeds import WrittenData, updates
from tests.pipeline.scripted_matcher import ScriptedMatcher

from roskva.core.objects import coalesce
from roskva.model import Update
from roskva.pipeline import bridge
from roskva.pipeline.bridge import (
    BRIDGED,
    BridgeReader,
    BridgeSource,
    GapReader,
    Ranges,
    deliver,
)
from roskva.pipeline.feeds import passed
from roskva.pipeline.node import MatcherLinks, gaps_at, matchers_at

ALL = ReadMaxRows(1_000_000)
KEYS = ["app/a", "app/b", "app/c"]

pytestmark = pytest.mark.usefixtures("matchers_have_time")


class Scene:
    """One shard, its feed and its matcher."""

    def __init__(self, directory: Path) -> None:
        self.data = WrittenData(directory / "data", shards=1)
        self.matcher = ScriptedMatcher(self.data.path, directory / "state-0", [0], 1000)

    def options(self, **options: str) -> BridgeSource:
        return BridgeSource({"path": str(self.data.path), **options})

    def reader(self, **options: str) -> BridgeReader:
        reader = self.options(**options).streamReader(BRIDGED)
        assert isinstance(reader, BridgeReader)
        return reader

    def deliver(self, reader: BridgeReader | GapReader, partition: InputPartition) -> None:
        with closing(MatcherLinks(str(self.data.path))) as matchers:
            deliver(pa.Table.from_batches(reader.read(partition)), matchers)

    def close(self) -> None:
        matchers_at(str(self.data.path)).close()
        gaps_at(str(self.data.path)).close()
        self.matcher.stop()
        self.data.close()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    yield scene
    scene.close()


def ranges(partitions: object) -> list[tuple[int, int]]:
    assert isinstance(partitions, list)
    return [(r.after, r.last) for p in partitions if isinstance(p, Ranges) for r in p.ranges]


def at(offset: int, beat: int = 0) -> dict[str, int]:
    return {"shard-00": offset, "shard-00.lineage": 1000, "beat": beat}


def test_it_begins_where_the_matchers_stand(scene: Scene) -> None:
    scene.data.publish(*updates(KEYS, range(1, 4)))
    scene.matcher.position[0] = 6
    assert scene.reader().initialOffset() == at(6)


def test_a_range_is_coalesced_and_delivered_in_order(scene: Scene) -> None:
    published = [*updates(KEYS, range(1, 50)), Update("app/a", 5, reset=True), Update("app/a", 2)]
    scene.data.publish(*published)
    reader = scene.reader()
    end = reader.latestOffset(at(0), ALL)
    assert passed(end) == passed(at(len(published)))
    [partition] = reader.partitions(at(0), end)
    scene.deliver(reader, partition)
    [offer] = scene.matcher.offers
    assert (offer.first, offer.last) == (1, len(published))
    assert offer.updates == coalesce(enumerate(published, 1))
    assert len(offer.updates) == 4
    assert ranges(reader.partitions(at(0), end)) == []


def test_what_the_fast_path_has_brought_costs_nothing(scene: Scene) -> None:
    scene.data.publish(*updates(KEYS, range(1, 4)))
    scene.matcher.position[0] = 9
    reader = scene.reader()
    assert ranges(reader.partitions(at(0), at(9))) == []
    assert ranges(reader.partitions(at(0), at(5))) == []


def test_a_short_gap_is_closed_in_passing(scene: Scene) -> None:
    scene.data.publish(*updates(KEYS, range(1, 4)))
    scene.matcher.position[0] = 2
    assert ranges(scene.reader().partitions(at(6), at(9))) == [(2, 9)]


def test_a_long_gap_does_not_hold_up_what_is_new(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "SHORT_GAP", 3)
    scene.data.publish(*updates(KEYS, range(1, 4)))
    assert ranges(scene.reader().partitions(at(6), at(9))) == [(6, 9)]
    gap = scene.options().reader(BRIDGED)
    assert isinstance(gap, GapReader)
    [partition] = gap.partitions()
    assert ranges([partition]) == [(0, 9)]
    scene.deliver(gap, partition)
    assert scene.matcher.position[0] == 9


def test_a_matcher_that_is_down_has_no_range_and_stalls_nobody(scene: Scene) -> None:
    scene.data.publish(*updates(KEYS, range(1, 4)))
    scene.matcher.stop()
    reader = scene.reader()
    end = reader.latestOffset(at(0), ALL)
    assert passed(end) == passed(at(9))
    assert ranges(reader.partitions(at(0), end)) == []


def test_while_nothing_is_missing_there_is_no_micro_batch(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "_WAIT_S", 0.01)
    reader = scene.reader()
    start = reader.latestOffset(at(0), ALL)  # the first beat
    for version in range(1, 5):
        scene.data.publish(*updates(KEYS, range(version, version + 1)))
        scene.matcher.position[0] = scene.matcher.feed_end[0] = 3 * version
        assert reader.latestOffset(start, ALL) == start


def test_a_matcher_that_misses_something_says_so_and_nobody_looks(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "_WAIT_S", 60.0)
    monkeypatch.setattr(bridge, "BEAT_S", 3600.0)
    reader = scene.reader()
    start = reader.latestOffset(at(0), ALL)
    scene.data.publish(*updates(KEYS, range(1, 5)))
    scene.matcher.position[0] = 9
    scene.matcher.misses(0, 12)
    end = reader.latestOffset(start, ALL)
    assert passed(end) == passed(at(12))
    assert ranges(reader.partitions(start, end)) == [(9, 12)]


def test_what_the_query_has_passed_is_not_told_of_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matcher that does not take what it is brought would otherwise get it without end."""
    monkeypatch.setattr(bridge, "_WAIT_S", 0.01)
    scene.data.publish(*updates(KEYS, range(1, 5)))
    scene.matcher.misses(0, 12)
    reader = scene.reader()
    start = reader.latestOffset(at(0), ALL)
    if passed(start) != passed(at(12)):
        start = reader.latestOffset(start, ALL)
    assert reader.latestOffset(start, ALL) == start


def test_a_beat_keeps_the_workers_warm_and_moves_the_checkpoint_on(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = scene.reader()
    start = reader.latestOffset(at(0), ALL)
    scene.data.publish(*updates(KEYS, range(1, 4)))
    scene.matcher.position[0] = 9
    monkeypatch.setattr(reader, "_beat_at", 0.0)
    end = reader.latestOffset(start, ALL)
    assert end == at(9, start["beat"] + 1)
    [partition] = reader.partitions(start, end)
    assert list(reader.read(partition)) == []


def test_catching_up_is_cut_into_micro_batches(scene: Scene) -> None:
    scene.data.publish(*updates(KEYS, range(1, 11)))
    reader = scene.reader(maxUpdatesPerTrigger="10")
    end = reader.latestOffset(at(0), reader.getDefaultReadLimit())
    assert passed(end) == passed(at(10))


def test_a_hole_in_the_feed_is_left_to_the_matcher(scene: Scene) -> None:
    scene.data.publish(*updates(KEYS, range(1, 3)))
    scene.data.publish(*updates(KEYS, range(3, 5)))
    [log] = scene.data.feed_path(0).glob("*.log")
    content = bytearray(log.read_bytes())
    content[content.rindex(b"RKf1") + 60] ^= 1  # in the body of the second frame
    log.write_bytes(content)
    reader = scene.reader()
    [partition] = reader.partitions(at(0), at(12))
    scene.deliver(reader, partition)
    [offer] = scene.matcher.offers
    assert (offer.first, offer.last) == (1, 6)
