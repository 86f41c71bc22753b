"""Backups of what change sources have read: whole, and a doubt unless nothing was published."""

import time
from pathlib import Path

import pytest
from tests.server.history import NOW_US, apply_in, open_feed, publish

from roskva.core.effects import PutShard
from roskva.disk import RealDisk
from roskva.model import next_generation
from roskva.server.backup import ORDINALS_AHEAD, back_up, restore
from roskva.server.directory import DataDirectory
from roskva.sources.change import NULL, Change
from roskva.sources.changes import DIRECTORY, ChangesLog, Slice
from roskva.sources.position import Doubt, PostgresPosition
from roskva.store import rows
from roskva.store.rocksdb import RocksStore

ATTACHED = Doubt("attached", "the source begins")
AHEAD_OF_THE_CLOCK = next_generation([], time.time()) + 5000


def at(lsn: int) -> PostgresPosition:
    return PostgresPosition("7", 1, lsn)


def opened(data: Path) -> ChangesLog:
    directory = str(data / DIRECTORY / "shop-db")
    return ChangesLog.open(RealDisk(), directory, "shop", lineage=2, now_us=0)


@pytest.fixture
def backup(tmp_path: Path) -> Path:
    """Of two shards, and of a source whose log has a doubt and a change."""
    data = DataDirectory.open_or_create(tmp_path / "data", 2)
    for number in range(2):
        with data.own(number) as shard:
            log = open_feed(shard.path)
            publish(log, 10)
            log.close()
            apply_in(shard.path, 10, 1)
    (data.path / DIRECTORY).mkdir()
    changes = opened(data.path)
    changes.doubt(ATTACHED, AHEAD_OF_THE_CLOCK, at(10), 0)
    change = Change("products", "delete", ("17",), NULL, NULL, 1)
    changes.append([Slice("99", [change], at(20))], 1)
    changes.set_marker("direct", 2)
    back_up(data, tmp_path / "backup", NOW_US)
    changes.close(1)
    return tmp_path / "backup"


def generations(data: Path) -> list[dict[str, int]]:
    found = []
    for place in DataDirectory.open(data).places():
        store = RocksStore(place.store_path, read_only=True)
        row = rows.shard_row(store.read(rows.SHARD_ROW))
        store.close()
        assert isinstance(row, PutShard)
        found.append(dict(row.generations))
    return found


def test_a_log_of_changes_that_moves_goes_on_where_it_was(backup: Path, tmp_path: Path) -> None:
    restore(backup, tmp_path / "new", nothing_published_since=True)
    changes = opened(tmp_path / "new")
    assert (changes.ordinal, changes.position, changes.lost) == (AHEAD_OF_THE_CLOCK, at(20), "")
    assert (changes.last, changes.marker("direct")) == (2, 2)
    assert generations(tmp_path / "new") == [{}, {}]


def test_a_restored_source_begins_a_log_under_an_ordinal_that_all_shards_have(
    backup: Path, tmp_path: Path
) -> None:
    restore(backup, tmp_path / "new")
    changes = opened(tmp_path / "new")
    assert changes.ordinal == AHEAD_OF_THE_CLOCK + 1 + ORDINALS_AHEAD
    assert generations(tmp_path / "new") == [{"shop": changes.ordinal}] * 2
    assert (changes.last, changes.marker("direct")) == (0, 0)
    assert "backup" in changes.lost
    changes.close(0)
    again = opened(tmp_path / "new")
    assert "backup" in again.lost, "as long as nobody was told"
    again.doubt(ATTACHED, again.ordinal, at(30), 0)
    again.close(0)
    assert not opened(tmp_path / "new").lost


def test_a_source_that_has_read_nothing_is_left_out(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data", 1)
    (data.path / DIRECTORY / "shop-db" / "changes").mkdir(parents=True)
    with data.own(0) as shard:
        apply_in(shard.path, 10, 1)
    back_up(data, tmp_path / "backup", NOW_US)
    restore(tmp_path / "backup", tmp_path / "new")
    assert not (tmp_path / "new" / DIRECTORY).exists()
