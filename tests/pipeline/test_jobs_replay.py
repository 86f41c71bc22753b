"""A store rebuilt from the feed is the store that a matcher would have made of it."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from roskva.core.effects import Apply, FeedEnd, FeedMissing, ObjectRow, Persist, Persisted, PutShard
from roskva.core.matcher import Matcher, MatcherConfig, from_nothing
from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.base import Batch, Marker, Missing
from roskva.feed.log import Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.model import NOTHING_LOST, Loss, Update, epoch_record
from roskva.pipeline.jobs.replay import apart, begun, object_rows, reigns, replay
from roskva.store import rows
from roskva.store.memory import MemoryStore
from roskva.store.rocksdb import RocksStore

LINEAGE = 7
_SCHEMA = (
    "offset long, object string, version long, source string, payload binary, "
    "published_at long, reset boolean"
)
Rows = dict[str, tuple[int, int, int, bool]]
"""Version, mark, generation, and is the version of this epoch?"""

updates = st.builds(
    Update,
    st.sampled_from(["a/x", "a/y", "b/z"]),
    st.integers(1, 6),
    reset=st.sampled_from([False, False, False, True]),
) | st.builds(Update, st.sampled_from(["a/", "b/"]), st.integers(1, 3), reset=st.just(True))


def rebuilt(spark: SparkSession, feed: list[Update], lost_up_to: int) -> Rows:
    read = [
        (offset, update.object, update.version, None, update.payload, 0, update.reset)
        for offset, update in enumerate(feed, 1)
        if offset != lost_up_to
    ]
    of_epochs, of_apps, of_objects = apart(spark.createDataFrame(read, _SCHEMA))
    shard, since = begun(of_epochs, LINEAGE, lost_up_to)
    found = object_rows(of_objects, reigns(spark, of_apps), since, shard.epoch).collect()
    return {
        row.object: (
            -1 if row.version is None else row.version,
            row.mark or 0,
            row.generation or 0,
            row.version is not None and row.epoch == shard.epoch,
        )
        for row in found
    }


def matched(feed: list[Update], lost: int) -> Rows:
    """By a matcher that starts with nothing; the update at `lost` cannot be read any more."""
    matcher = Matcher(MatcherConfig(0, 1), from_nothing(LINEAGE, 1))
    store = MemoryStore()

    def step(event: object) -> None:
        for effect in matcher.step(event, 0.0):  # type: ignore[arg-type]
            if isinstance(effect, Persist):
                for batch in rows.batches(effect.writes):
                    store.write(batch)
                step(Persisted(effect.id))

    step(FeedEnd(LINEAGE, len(feed), 1))
    entries = list(enumerate(feed, 1))
    for first, last in ((1, lost - 1), (lost + 1, len(feed))):
        if first <= last:
            step(Apply(LINEAGE, first, last, entries[first - 1 : last]))
        if last == lost - 1 and lost:
            step(FeedMissing(LINEAGE, lost, 5))
    found: Rows = {}
    for key, cells in store.scan(*rows.ranges(rows.OBJECT, 1)[0]):
        row: ObjectRow = rows.stored_object(cells)
        known = row.version >= 0 and row.epoch == matcher.epoch
        found[rows.object_of(key)] = (row.version, row.mark, row.generation, known)
    return found


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(feed=st.lists(updates, min_size=1, max_size=30), data=st.data())
def test_the_rows_are_what_a_matcher_makes_of_the_same_feed(
    spark: SparkSession, feed: list[Update], data: st.DataObject
) -> None:
    lost = data.draw(st.integers(0, len(feed)))
    for at in data.draw(st.sets(st.integers(0, len(feed) - 1), max_size=3)):
        up_to = data.draw(st.integers(0, at))
        feed[at] = epoch_record(1000 + at, Loss(LINEAGE, up_to, "damage"), 0)
    assert rebuilt(spark, feed, lost) == matched(feed, lost)


def write_feed(path: Path, *commits: list[Update]) -> None:
    log = Log.open(
        RealDisk(), str(path), lineage=LINEAGE, now_us=0, config=LogConfig(segment_bytes=250)
    )
    for commit in commits:
        log.append(commit)
        log.commit(0)
    log.close()


def test_a_lost_store_is_rebuilt_and_its_marker_stands_at_the_end(
    spark: SparkSession, tmp_path: Path
) -> None:
    feed, store = tmp_path / "feed", tmp_path / "store"
    write_feed(
        feed,
        [Update("a/x", 1, "phone", b"\0payload", 5), Update("a/y", 9)],
        [Update("a/y", 3, reset=True), Update("a/x", 2, "phone", b"newer", 6)],
        [Update("a/y", 4, published_at=8), Update("a/z", 5, reset=True)],
    )
    found = replay(spark, feed, store)
    assert (found.objects, found.known, found.lost_up_to, found.last) == (3, 2, 0, 6)
    opened = RocksStore(store, read_only=True)
    shard = rows.shard_row(opened.read(rows.SHARD_ROW))
    epoch = int(found.epoch)
    loss = Loss(LINEAGE, 0, "begun")
    assert shard == PutShard(epoch, LINEAGE, 6, (), NOTHING_LOST, loss), "the node begins it"
    stored = {
        key: rows.stored_object(opened.read(rows.object_key(key))) for key in ("a/x", "a/y", "a/z")
    }
    opened.close()
    assert stored == {
        "a/x": ObjectRow(2, 0, stored["a/x"].source, b"newer", 6, epoch),
        "a/y": ObjectRow(4, 3, None, None, 8, epoch),
        "a/z": ObjectRow(mark=5),
    }
    assert isinstance(LogReader(RealDisk(), str(feed)).read(Marker(LINEAGE, 5)), Batch)
    with pytest.raises(BadInput, match="is not lost"):
        replay(spark, feed, store)


def test_a_feed_that_is_whole_goes_on_in_its_epoch(spark: SparkSession, tmp_path: Path) -> None:
    feed, store = tmp_path / "feed", tmp_path / "store"
    record = epoch_record(1000, Loss(LINEAGE, 0, "begun"), 0)
    write_feed(feed, [record], [Update("a/x", 1)])
    found = replay(spark, feed, store)
    assert (found.objects, found.known, found.epoch) == (1, 1, "1000")
    opened = RocksStore(store, read_only=True)
    assert rows.shard_row(opened.read(rows.SHARD_ROW)) == PutShard(1000, LINEAGE, 2, (), 0)
    opened.close()


def test_what_retention_took_is_said(spark: SparkSession, tmp_path: Path) -> None:
    feed, store = tmp_path / "feed", tmp_path / "store"
    write_feed(feed, *([Update("a/x", version)] for version in range(1, 8)))
    oldest = min(feed.glob("*.log"))
    oldest.unlink()
    missing = LogReader(RealDisk(), str(feed)).read(Marker(LINEAGE, 0))
    assert isinstance(missing, Missing)
    found = replay(spark, feed, store)
    assert (found.objects, found.known, found.lost_up_to) == (1, 1, missing.last)


def test_without_a_feed_there_is_nothing_to_replay(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="nothing to replay"):
        replay(spark, tmp_path / "feed", tmp_path / "store")
