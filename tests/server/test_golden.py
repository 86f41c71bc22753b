"""Directories made by earlier versions open for ever. They are copied first, and never changed."""

import shutil
from pathlib import Path

import msgspec
import pytest
from tests.golden import make

from roskva.core.effects import ClientRow, ObjectRow, PutObject, PutShard
from roskva.disk import RealDisk
from roskva.feed.base import START, Batch, Marker
from roskva.feed.check import repair, verify
from roskva.feed.log import Log
from roskva.feed.reader import LogReader
from roskva.feed.record import read_markers
from roskva.model import Update
from roskva.server.directory import DataDirectory, OwnedShard
from roskva.store import rows
from roskva.store.base import Store
from roskva.store.rocksdb import RocksStore

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(params=["v1", "v2", "v3", "v4"])
def version(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def updates(version: str) -> list[Update]:
    of_apps = make.OF_APPS if version >= "v3" else []
    of_epochs = [make.RECORD] if version >= "v4" else []
    return [*make.UPDATES, *of_apps, *of_epochs]


@pytest.fixture
def data(version: str, tmp_path: Path) -> DataDirectory:
    shutil.copytree(GOLDEN / version, tmp_path / "data")
    return DataDirectory.open_or_create(tmp_path / "data", make.SHARDS)


def test_every_row_of_a_golden_directory_is_as_it_was_written(
    version: str, data: DataDirectory, updates: list[Update]
) -> None:
    objects, marker = make.OBJECTS, PutShard(make.EPOCH, make.LINEAGE, len(updates))
    if version >= "v3":
        objects = make.OBJECTS | make.OF_A_GENERATION
        marker = msgspec.structs.replace(marker, generations=make.GENERATIONS)
    if version >= "v4":
        marker = msgspec.structs.replace(marker, excused=make.LOSS.last, loss=make.LATER_LOSS)
    for number in range(make.SHARDS):
        with data.own(number) as shard:
            store = RocksStore(shard.store_path)
            check_rows(store, objects, marker)
            check_goes_on(store)
            store.close()


def check_rows(store: Store, objects: dict[str, ObjectRow], marker: PutShard) -> None:
    keys = list(objects)
    assert rows.object_rows(keys, store.read_cells(rows.object_cells(keys))) == objects
    expected = ClientRow(make.BOOT << 32, "app-1", make.REGISTERED)
    assert rows.client_row(store.read(rows.client_key(make.CLIENT))) == expected
    shard_row = store.read(rows.SHARD_ROW)
    assert rows.shard_row(shard_row) == marker
    assert rows.boot_of(shard_row) == make.BOOT
    assert len(list(store.scan())) == len(keys) + 2


def check_goes_on(store: Store) -> None:
    key = "contacts/alice"
    before = make.OBJECTS[key]
    for batch in rows.batches([PutObject(key, ObjectRow(before.version - 1))]):
        store.write(batch, sync=True)
    assert rows.object_rows([key], store.read_cells(rows.object_cells([key]))) == {key: before}


def test_every_update_of_a_golden_feed_can_be_read_and_more_appended(
    data: DataDirectory, updates: list[Update]
) -> None:
    for number in range(make.SHARDS):
        with data.own(number) as shard:
            assert updates_in(shard) == updates
            problems = verify(RealDisk(), str(shard.feed_path))
            assert [checked.problems for checked in problems if checked.problems] == []
            append(shard, Update("contacts/alice", 42))
            assert updates_in(shard) == [*updates, Update("contacts/alice", 42)]


def test_there_is_nothing_to_repair_in_a_golden_feed(data: DataDirectory) -> None:
    with data.own(0) as shard:
        before = {path: path.read_bytes() for path in shard.feed_path.glob("*.log")}
        assert repair(RealDisk(), str(shard.feed_path), make.NOW_US) == []
        assert {path: path.read_bytes() for path in before} == before


def updates_in(shard: OwnedShard) -> list[Update]:
    reader = LogReader(RealDisk(), str(shard.feed_path))
    assert reader.lineage == make.LINEAGE
    found: list[Update] = []
    after = START
    while isinstance(batch := reader.read(Marker(make.LINEAGE, after)), Batch):
        found += batch.updates()
        after = batch.last
    return found


def append(shard: OwnedShard, update: Update) -> None:
    log = Log.open(RealDisk(), str(shard.feed_path), lineage=1, now_us=make.NOW_US)
    assert read_markers(RealDisk(), str(shard.feed_path)) == ({"bridge": make.MARKER}, [])
    log.append([update])
    log.commit(make.NOW_US)
    log.close()
