"""What flows that are read for together need of the log of changes; without Spark."""

import pickle
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from tests.pipeline.changes import NOW_US, WrittenChanges, changed

from roskva.feed.upkeep import Retention
from roskva.pipeline import changes_reader
from roskva.pipeline.changes_reader import (
    SCHEMA,
    SHARD,
    CaravanReader,
    CaravanSource,
    Milestone,
    changes_in,
    changes_within,
    read_milestone,
)
from roskva.pipeline.feeds import BEAT, ChangesFeed
from roskva.pipeline.source import ShardRange

ALL = ReadMaxRows(1_000_000)


@pytest.fixture
def changes(tmp_path: Path) -> Iterator[WrittenChanges]:
    written = WrittenChanges(tmp_path / "data")
    yield written
    written.close()


def read(
    changes: WrittenChanges,
    after: int = 0,
    *,
    prefixes: Sequence[str] = (),
    last_only: bool = False,
) -> tuple[list[tuple[int, str]], Milestone]:
    """Offsets and objects, and the milestone."""
    wanted = ShardRange(SHARD, changes.log.lineage, after, changes.log.last)
    feed = ChangesFeed(str(changes.place))
    rows = [
        row
        for batch in changes_in(feed, wanted, prefixes, last_only)
        for row in zip(
            *(batch[n].to_pylist() for n in ("offset", "object", "payload")), strict=True
        )
    ]
    offset, none, payload = rows.pop()
    assert none is None
    assert offset == changes.log.last
    return [(offset, name) for offset, name, _ in rows], read_milestone(payload)


def test_it_has_the_changes_of_the_tables_that_are_wanted_and_no_doubts(
    changes: WrittenChanges,
) -> None:
    changes.add(changed(1, 1), changed(1, 1, table="orders"), changed(1, 1, table="prod"))
    changes.doubt()
    found, reach = read(changes)
    assert [name for _, name in found] == ["shop/products/1", "shop/orders/1", "shop/prod/1"]
    assert reach == Milestone(changes.log.lineage, 1, 5, [], {})
    assert read(changes, prefixes=["shop/prod/", "shop/orders/"])[0] == [
        (3, "shop/orders/1"),
        (4, "shop/prod/1"),
    ]


def test_where_the_last_change_of_a_row_says_it_all_the_others_are_counted(
    changes: WrittenChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_reader, "_PART", 7)
    changes.add(*(changed(i % 3, i) for i in range(30)))
    changes.add(*(changed(5, i, table="orders") for i in range(4)))
    found, reach = read(changes, last_only=True)
    assert found == [
        (29, "shop/products/0"),
        (30, "shop/products/1"),
        (31, "shop/products/2"),
        (35, "shop/orders/5"),
    ]
    assert reach.superseded == {"products": 27, "orders": 3}


def test_what_is_gone_is_said_in_the_milestone(tmp_path: Path) -> None:
    limit = Retention(max_age_us=None, last_resort_bytes=1 << 15)
    changes = WrittenChanges(tmp_path / "data", limit, segment_bytes=1 << 13)
    for key in range(300):
        changes.add(changed(key, 1))
    while changes.log.tidy(NOW_US):
        pass
    found, reach = read(changes, 3)
    first = found[0][0]
    assert first > 5
    assert list(reach.lost) == [(4, first - 1)]
    assert len(found) == changes.log.last - first + 1
    changes.close()


def test_a_stream_waits_for_growth_and_beats_now_and_then(
    changes: WrittenChanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes_reader, "_WAIT_S", 0.0)
    options = {"path": str(changes.place), "startingOffsets": '{"shard-00": 1}'}
    reader = CaravanSource(options).streamReader(SCHEMA)
    assert isinstance(reader, CaravanReader)
    reader = pickle.loads(pickle.dumps(reader))  # as Spark does
    start = reader.initialOffset()
    assert (start["shard-00"], start[BEAT]) == (1, 0)
    beat = reader.latestOffset(start, ALL)
    assert beat == {**start, BEAT: 1}
    [empty] = reader.partitions(start, beat)
    assert list(reader.read(empty)) == []
    assert reader.latestOffset(beat, ALL) == beat
    changes.add(*(changed(i, 1) for i in range(10)))
    assert reader.latestOffset(beat, ALL) == {**beat, "shard-00": 11}
    assert reader.latestOffset(beat, ReadMaxRows(4)) == {**beat, "shard-00": 5}


def test_a_range_is_bounded_in_bytes(tmp_path: Path) -> None:
    changes = WrittenChanges(tmp_path / "data", segment_bytes=1 << 13)
    for key in range(300):
        changes.add(changed(key, 1))
    feed = ChangesFeed(str(changes.place))
    within = changes_within(feed, feed.starts(), 1 << 14)
    assert 10 < within < 100
    assert changes_within(feed, feed.ends(), 1 << 14) == changes_reader.MOST_CHANGES
    changes.close()
