"""The feed as a source of Spark: offsets, limits, and what was lost."""

import json
import pickle
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from tests.pipeline.feeds import WrittenData, updates

from roskva.errors import BadInput
from roskva.feed.log import LogConfig
from roskva.feed.segment import RESERVED
from roskva.feed.upkeep import Retention
from roskva.model import Update, shard_of
from roskva.pipeline import source
from roskva.pipeline.source import DataLoss, FeedSource, FeedStreamReader, ShardRange

KEYS = [f"app/object-{i}" for i in range(10)]
Rows = list[tuple[Any, ...]]


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenData]:
    data = WrittenData(tmp_path / "data")
    yield data
    data.close()


@pytest.fixture(scope="module")
def registered(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(FeedSource)
    return spark


def made(**options: str) -> FeedSource:
    return FeedSource(options)


def stream_reader(data: WrittenData, **options: str) -> FeedStreamReader:
    reader = made(path=str(data.path), **options).streamReader(source.SCHEMA)
    assert isinstance(reader, FeedStreamReader)
    # Spark copies readers into other processes.
    return pickle.loads(pickle.dumps(reader))  # type: ignore[no-any-return]


def rows(reader: FeedStreamReader, start: dict[str, int], end: dict[str, int]) -> Rows:
    planned = [pickle.loads(pickle.dumps(p)) for p in reader.partitions(start, end)]
    found: Rows = []
    for part in planned:
        for batch in reader.read(part):
            found += zip(*(batch[name].to_pylist() for name in ("object", "version")), strict=True)
    return found


def pairs(found: DataFrame) -> set[tuple[str, int]]:
    return {(row.object, row.version) for row in found.collect()}


# Without Spark.


def test_offsets_are_integers_with_their_keys_in_order(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 3)))
    reader = stream_reader(written)
    start = reader.initialOffset()
    assert start == {
        "shard-00": 0,
        "shard-00.lineage": 1000,
        "shard-01": 0,
        "shard-01.lineage": 1001,
    }
    end = reader.latestOffset(start, ReadAllAvailable())
    assert list(json.loads(json.dumps(end))) == list(start)
    assert end["shard-00"] + end["shard-01"] == 20
    assert sorted(rows(reader, start, end)) == sorted(
        (u.object, u.version) for u in updates(KEYS, range(1, 3))
    )
    assert reader.latestOffset(end, ReadAllAvailable()) == end
    assert reader.partitions(end, end) == []


def test_a_partition_is_a_shard_and_keeps_its_order(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 5)))
    reader = stream_reader(written)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for part in reader.partitions(reader.initialOffset(), end):
        assert isinstance(part, ShardRange)
        [batch] = reader.read(part)
        assert batch["offset"].to_pylist() == list(range(1, part.last + 1))
        assert {shard_of(key, 2) for key in batch["object"].to_pylist()} == {part.shard}


def test_a_limit_is_shared_and_what_is_left_over_goes_to_the_others(written: WrittenData) -> None:
    few, many = (next(k for k in KEYS if shard_of(k, 2) == shard) for shard in (0, 1))
    written.publish(*updates([few], range(3)), *updates([many], range(100)))
    reader = stream_reader(written, maxUpdatesPerTrigger="20")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    start = reader.initialOffset()
    end = reader.latestOffset(start, limit)
    assert (end["shard-00"], end["shard-01"]) == (3, 17)
    seen = rows(reader, start, end)
    while end != start:
        start, end = end, reader.latestOffset(end, limit)
        seen += rows(reader, start, end)
    assert len(seen) == 103


def test_limits_step_over_what_a_crash_left_void(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 4)))
    written.crash()
    written.publish(*updates(KEYS, range(4, 7)))
    reader = stream_reader(written)
    offset = reader.initialOffset()
    seen: Rows = []
    for _ in range(9):
        end = reader.latestOffset(offset, ReadMaxRows(7))
        seen += rows(reader, offset, end)
        offset = end
    assert len(seen) == 60
    assert offset["shard-00"] > RESERVED


def test_available_now_means_what_was_there_when_it_began(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 3)))
    reader = stream_reader(written)
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    written.publish(*updates(KEYS, range(3, 9)))
    end = reader.latestOffset(start, ReadAllAvailable())
    assert len(rows(reader, start, end)) == 20
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_may_begin_at_the_end_or_anywhere(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 3)))
    latest = stream_reader(written, startingOffsets="latest").initialOffset()
    assert latest == stream_reader(written).reportLatestOffset()
    chosen = stream_reader(written, startingOffsets='{"shard-01": 2}').initialOffset()
    assert (chosen["shard-00"], chosen["shard-01"]) == (0, 2)
    assert chosen["shard-01.lineage"] == 1001


def test_what_retention_took_is_loss_unless_one_says_otherwise(tmp_path: Path) -> None:
    small = LogConfig(segment_bytes=400, retention=Retention(max_age_us=None, last_resort_bytes=1))
    data = WrittenData(tmp_path / "data", 1, small)
    for version in range(1, 30):
        data.publish(Update("app/a", version))
    while data.logs[0].tidy(10**18):
        pass
    start = {"shard-00": 0, "shard-00.lineage": 1000}
    strict = stream_reader(data)
    end = strict.latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLoss, match="failOnDataLoss"):
        rows(strict, start, end)
    found = rows(stream_reader(data, failOnDataLoss="false"), start, end)
    assert 0 < len(found) < 29
    assert found[-1] == ("app/a", 29)
    data.close()


def test_another_feed_in_the_same_place_is_loss(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 3)))
    reader = stream_reader(written)
    before = {**reader.reportLatestOffset(), "shard-00.lineage": 7}
    end = reader.latestOffset(before, ReadAllAvailable())
    with pytest.raises(DataLoss, match="another one than before"):
        reader.partitions(before, end)
    [part] = stream_reader(written, failOnDataLoss="false").partitions(before, end)
    assert isinstance(part, ShardRange)
    assert (part.shard, part.after) == (0, 0)


def test_an_end_that_is_out_of_date_never_takes_a_stream_back(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 3)))
    reader = stream_reader(written)
    ahead = {**reader.reportLatestOffset(), "shard-00": 1000}
    assert reader.latestOffset(ahead, ReadAllAvailable()) == ahead


def test_a_shard_that_was_never_opened_is_empty(written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 3)))
    written.close()
    shutil.rmtree(written.path / "shard-01")
    assert list(stream_reader(written).initialOffset()) == ["shard-00", "shard-00.lineage"]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOfsets": "latest"}, "did you mean startingOffsets"),
        ({"startingOffsets": "yesterday"}, "startingOffsets is earliest, latest, or offsets"),
        ({"startingOffsets": '{"partition-0": 3}'}, "offsets are given by shard"),
        ({"startingOffsets": '{"shard-07": 3}'}, "has shards 0 to 1; not 7"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss is true or false"),
        ({"maxUpdatesPerTrigger": "0"}, "maxUpdatesPerTrigger is a whole number from 1 on"),
    ],
)
def test_wrong_options_are_told_in_a_sentence(
    written: WrittenData, options: dict[str, str], sentence: str
) -> None:
    with pytest.raises(BadInput, match=sentence):
        stream_reader(written, **options).initialOffset()


def test_a_path_without_data_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no data directory of Roskva"):
        made(path=str(tmp_path)).schema()
    with pytest.raises(BadInput, match="needs the option path"):
        made().schema()


# With Spark.


def test_a_batch_has_every_update_with_its_place(
    registered: SparkSession, written: WrittenData
) -> None:
    written.publish(
        Update(KEYS[0], 7, "phone", b"\x00\xff", 1_600_000_000_000_001),
        Update(KEYS[1], 3, reset=True),
    )
    found = registered.read.format("roskva-feed").load(str(written.path))
    row = found.where(f"object = '{KEYS[0]}'").selectExpr(
        "shard",
        "offset",
        "version",
        "source",
        "payload",
        "unix_micros(published_at) as published",
        "unix_micros(appended_at) as appended",
        "reset",
    )
    expected = (shard_of(KEYS[0], 2), 1, 7, "phone", b"\x00\xff", 1_600_000_000_000_001)
    assert row.first() == (*expected, 1_700_000_000_000_000, False)
    assert found.where("reset").select("object").first() == (KEYS[1],)


def test_an_empty_feed_is_an_empty_table(registered: SparkSession, written: WrittenData) -> None:
    assert registered.read.format("roskva-feed").load(str(written.path)).count() == 0


def test_a_batch_may_end_early(registered: SparkSession, written: WrittenData) -> None:
    written.publish(*updates(KEYS, range(1, 4)))
    found = registered.read.format("roskva-feed").options(
        startingOffsets='{"shard-00": 1, "shard-01": 1}',
        endingOffsets='{"shard-00": 3, "shard-01": 2}',
    )
    assert found.load(str(written.path)).count() == 3


def test_a_stream_goes_on_where_its_checkpoint_is(
    registered: SparkSession, written: WrittenData, tmp_path: Path
) -> None:
    def run() -> set[tuple[str, int]]:
        stream = registered.readStream.format("roskva-feed").option("maxUpdatesPerTrigger", 15)
        query = (
            stream.load(str(written.path))
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "table"))
        )
        assert query.awaitTermination(180)
        return pairs(registered.read.parquet(str(tmp_path / "table")))

    expected = updates(KEYS, range(1, 5))
    written.publish(*expected)
    assert run() == {(u.object, u.version) for u in expected}
    more = updates(KEYS, range(5, 7))
    written.publish(*more)
    assert run() == {(u.object, u.version) for u in expected + more}
    table = registered.read.parquet(str(tmp_path / "table"))
    assert table.count() == len(expected + more)  # and none of them twice


def test_spark_tells_what_is_wrong_in_our_words(registered: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PySparkException, match="no data directory of Roskva"):
        registered.read.format("roskva-feed").load(str(tmp_path)).count()
