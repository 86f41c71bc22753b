"""`roskva-state`: the tables are what is in the stores."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from benchmarks.population import write_population
from pyspark.sql import SparkSession

from roskva.core.effects import ObjectRow, PutClient, PutObject, PutRegistered, PutShard, Write
from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.log import Log
from roskva.model import Loss, Update, epoch_record, object_epoch
from roskva.pipeline.state import State, StateSource
from roskva.server.backup import checkpoints
from roskva.server.directory import DataDirectory, ShardPlace
from roskva.store import rows
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import Registered

CLIENT, ORPHAN = bytes(15) + b"\1", bytes(15) + b"\2"
EPOCH = object_epoch(77, 0)
AT = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
AT_US = int(AT.timestamp() * 10**6)

STATE: list[Write] = [
    PutObject("app/a", ObjectRow(5, 0, "phone", b"\0payload", AT_US, 77)),
    PutObject("app/b", ObjectRow(mark=9), replace=True),
    PutClient(CLIENT, 3, AT_US, "phone"),
    PutRegistered(CLIENT, 3, Registered("app/a", 5, EPOCH)),
    PutRegistered(CLIENT, 3, Registered("app/b", -1, 0)),
    PutRegistered(ORPHAN, 2, Registered("app/a", 4, EPOCH)),
    PutShard(77, 1, 0),
]


@pytest.fixture
def data(tmp_path: Path) -> DataDirectory:
    """One shard with this state."""
    directory = DataDirectory.open_or_create(tmp_path / "data", 1)
    with directory.own(0) as owned:
        store = RocksStore(owned.store_path)
        for batch in rows.batches(STATE):
            store.write(batch, sync=True)
        store.close()
    return directory


def read(state: State, name: str, parts: int = 3) -> list[tuple[object, ...]]:
    """As Spark does, without it."""
    source = StateSource({"path": str(state.path), "table": name, "parts": str(parts)})
    if state.checkpoint:
        source.options["checkpoint"] = state.checkpoint
    reader = source.reader(source.schema())
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    return sorted((tuple(row.values()) for batch in batches for row in batch.to_pylist()), key=repr)


def test_every_table_says_what_is_in_the_store(data: DataDirectory) -> None:
    with checkpoints(data, "test"):
        state = State(data.path, "test")
        assert read(state, "clients") == [
            (0, CLIENT, "phone", AT, AT, 3, 2, False, None, "app"),
            (0, ORPHAN, None, None, None, 2, 1, False, None, "app"),
        ]
        assert read(state, "registrations") == [
            (0, CLIENT, True, AT, "app/a", 5, EPOCH),
            (0, CLIENT, True, AT, "app/b", None, None),
            (0, ORPHAN, False, None, "app/a", 4, EPOCH),
        ]
        assert read(state, "objects") == [
            (0, "app/a", 5, 0, 77, 0, "phone", b"\0payload", AT),
            (0, "app/b", None, 9, None, None, None, None, None),
        ]
        assert read(state, "shards") == [(0, 77, 1, 0, 0, 77)]
        assert read(state, "tail") == []
    assert list(ShardPlace(data, 0).checkpoints_path.iterdir()) == []


def test_spark_reads_the_same(spark: SparkSession, data: DataDirectory) -> None:
    objects = State(data.path).table(spark, "objects").orderBy("object").collect()
    at = AT.replace(tzinfo=None)
    assert [tuple(row) for row in objects] == [
        (0, "app/a", 5, 0, 77, 0, "phone", b"\0payload", at),
        (0, "app/b", None, 9, None, None, None, None, None),
    ]


def test_the_tail_is_what_the_feed_has_beyond_the_marker(data: DataDirectory) -> None:
    with data.own(0) as owned:
        log = Log.open(RealDisk(), str(owned.feed_path), lineage=1, now_us=0)
        log.append([Update("app/a", 6), Update("app/b", 1), Update("app/b", 7, reset=True)])
        log.append([Update("app/a", 8, published_at=AT_US), Update("app/a", 7)])
        log.commit(0)
        log.close()
    assert read(State(data.path), "tail") == [
        (0, "app/a", 8, None, 77, 0, AT),
        (0, "app/b", None, 7, None, None, None),
    ]
    assert read(State(data.path), "apps") == []


def test_an_app_is_reset_in_the_tail_too(data: DataDirectory) -> None:
    with data.own(0) as owned:
        log = Log.open(RealDisk(), str(owned.feed_path), lineage=1, now_us=0)
        log.append([Update("app/a", 9), Update("app/", 3, reset=True), Update("app/b", 1)])
        log.append([Update("app/", 2, reset=True), Update("app/a", 2)])
        log.commit(0)
        log.close()
    assert read(State(data.path), "apps") == [(0, "app", 3)]
    tail = [row[1:6] for row in read(State(data.path), "tail")]
    assert tail == [("app/a", 2, None, 77, 3), ("app/b", 1, None, 77, 3)]


def test_an_epoch_begins_in_the_tail_too(data: DataDirectory) -> None:
    loss = Loss(1, 0, "damage")
    with data.own(0) as owned:
        log = Log.open(RealDisk(), str(owned.feed_path), lineage=1, now_us=0)
        log.append([Update("app/a", 9), epoch_record(78, loss, 0), epoch_record(79, loss, 0)])
        log.append([Update("app/b", 1)])
        log.commit(0)
        log.close()
    tail = [row[1:6] for row in read(State(data.path), "tail")]
    assert tail == [("app/a", 9, None, 77, 0), ("app/b", 1, None, 78, 0)]
    assert read(State(data.path), "shards") == [(0, 78, 1, 0, 0, 78)]


def test_the_ranges_of_all_shards_together_hold_every_row_once(tmp_path: Path) -> None:
    write_population(tmp_path, clients=500, each=3, objects=100, shards=2)
    clients = read(State(tmp_path), "clients", parts=7)
    assert len(clients) == len({client[1] for client in clients}) == 500
    assert len(read(State(tmp_path), "objects", parts=1)) == 98


@pytest.mark.parametrize("name", ["object", ""])
def test_a_wrong_table_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        BadInput, match="is one of clients, registrations, objects, shards, tail, apps"
    ):
        read(State(tmp_path), name)


def test_a_path_that_holds_no_state_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no data directory and no backup"):
        read(State(tmp_path), "objects")


def test_a_checkpoint_that_is_gone_is_named(data: DataDirectory) -> None:
    with pytest.raises(BadInput, match="checkpoints/gone is not there"):
        read(State(data.path, "gone"), "objects")
