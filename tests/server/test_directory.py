"""The data directory: refused when it must be, with a sentence that helps."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from roskva.disk import RealDisk
from roskva.errors import BadConfig, Damaged
from roskva.feed.base import Locked
from roskva.feed.record import write_record
from roskva.server.directory import FORMAT, DataDirectory, ShardPlace
from roskva.store.base import Put
from roskva.store.rocksdb import RocksStore

ROOT = Path(__file__).parents[2]


@contextmanager
def owner(directory: Path, shard: int) -> Iterator["subprocess.Popen[str]"]:
    """Another process that owns a shard."""
    command = [sys.executable, "-m", "tests.server.owner", str(directory), str(shard)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "owned\n"
        yield process
        process.kill()


def test_a_new_directory_gets_four_shards_that_stay(tmp_path: Path) -> None:
    created = DataDirectory.open_or_create(tmp_path / "data")
    assert created.meta.shards == 4
    again = DataDirectory.open_or_create(tmp_path / "data")
    assert again.meta == created.meta
    assert DataDirectory.open_or_create(tmp_path / "other").meta.identity != created.meta.identity


def test_nobody_else_may_look_into_it(tmp_path: Path) -> None:
    (tmp_path / "mounted").mkdir(mode=0o755)
    for path in (tmp_path / "new" / "data", tmp_path / "mounted"):
        with DataDirectory.open_or_create(path).own(0) as shard:
            assert path.stat().st_mode & 0o777 == 0o700
            assert shard.path.stat().st_mode & 0o777 == 0o700


def test_c88_another_shard_count_is_refused_with_what_to_do(tmp_path: Path) -> None:
    DataDirectory.open_or_create(tmp_path / "data", 4)
    expected = "was created with 4 shards, and that cannot change: start with 4 shards"
    with pytest.raises(BadConfig, match=expected):
        DataDirectory.open_or_create(tmp_path / "data", 8)
    assert DataDirectory.open_or_create(tmp_path / "data", 4).meta.shards == 4


def test_c88_who_owns_which_shards_may_change_between_starts(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data", 4)
    for number in range(4):
        with data.own(number) as shard:
            store = RocksStore(shard.store_path)
            store.write([Put(b"row", b"", 1, b"%d" % number)], sync=True)
            store.close()
    with owner(tmp_path / "data", 0), owner(tmp_path / "data", 2):
        for number in (1, 3):
            with data.own(number) as shard:
                store = RocksStore(shard.store_path)
                assert store.read(b"row")[b""].value == b"%d" % number
                store.close()


@pytest.mark.parametrize("shards", [0, -1, 1025])
def test_an_impossible_shard_count_is_refused(tmp_path: Path, shards: int) -> None:
    with pytest.raises(BadConfig, match="1 to 1024 shards"):
        DataDirectory.open_or_create(tmp_path / "data", shards)
    assert not (tmp_path / "data").exists()


def test_a_shard_beyond_the_count_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match="shards 0 to 3; not 4"):
        DataDirectory.open_or_create(tmp_path / "data").own(4)


def test_a_newer_format_is_refused_with_what_to_do(tmp_path: Path) -> None:
    class Newer(msgspec.Struct):
        format: int
        what_we_cannot_know: str

    DataDirectory.open_or_create(tmp_path / "data")
    write_record(RealDisk(), str(tmp_path / "data" / "meta"), Newer(FORMAT + 1, "?"))
    with pytest.raises(BadConfig, match=r"made by a newer Roskva.*update it"):
        DataDirectory.open_or_create(tmp_path / "data")


def test_a_newer_format_of_one_shard_is_refused_too(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    with data.own(1) as shard:
        newer = msgspec.structs.replace(data.meta, format=FORMAT + 1)
        write_record(RealDisk(), str(shard.path / "meta"), newer)
    with pytest.raises(BadConfig, match="made by a newer Roskva"):
        data.own(1)
    data.own(0).close()


def test_a_directory_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(BadConfig, match="not empty: name an empty or a new one"):
        DataDirectory.open_or_create(tmp_path)
    with pytest.raises(BadConfig, match="is no data directory of Roskva"):
        DataDirectory.open(tmp_path)
    with pytest.raises(BadConfig, match="cannot be used"):
        DataDirectory.open_or_create(tmp_path / "thesis.txt" / "data")


def test_a_shard_from_elsewhere_is_refused(tmp_path: Path) -> None:
    ours = DataDirectory.open_or_create(tmp_path / "ours")
    ours.own(1).close()
    theirs = DataDirectory.open_or_create(tmp_path / "theirs")
    ShardPlace(ours, 1).path.rename(ShardPlace(theirs, 1).path)
    with pytest.raises(BadConfig, match="shard 1 of 4 of another data directory: move it back"):
        theirs.own(1)
    ShardPlace(theirs, 1).path.rename(ShardPlace(ours, 2).path)
    with pytest.raises(BadConfig, match="move it back"):
        ours.own(2)


def test_every_flipped_bit_of_a_meta_file_is_noticed(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    data.own(0).close()
    for path in (data.path / "meta", ShardPlace(data, 0).path / "meta"):
        good = path.read_bytes()
        for bit in range(len(good) * 8):
            bad = bytearray(good)
            bad[bit // 8] ^= 1 << bit % 8
            path.write_bytes(bad)
            with pytest.raises(Damaged, match="put it back from a backup"):
                DataDirectory.open(data.path).own(0)
        path.write_bytes(good)
    DataDirectory.open(data.path).own(0).close()


def test_a_shard_that_is_gone_is_created_empty(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    with data.own(3) as shard:
        assert not shard.store_path.exists()
        assert shard.checkpoints_path.is_dir()


def test_checkpoints_that_nobody_reads_any_more_are_cleared(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    with data.own(0) as shard:
        (shard.checkpoints_path / "old").mkdir()
    with data.own(0) as shard:
        assert list(shard.checkpoints_path.iterdir()) == []


def test_a_second_owner_in_another_process_is_refused_by_number(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    with owner(tmp_path / "data", 0) as process:
        with pytest.raises(Locked, match=rf"in use by another process \(number {process.pid}\)"):
            data.own(0)
        data.own(1).close()


def test_a_second_owner_in_the_same_process_is_refused_and_the_lock_survives_it(
    tmp_path: Path,
) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    with data.own(0):
        for _ in range(2):
            with pytest.raises(Locked, match=re.escape(f"(number {os.getpid()}): stop that one")):
                data.own(0)
    data.own(0).close()


def test_a_killed_owner_leaves_no_lock_behind(tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data")
    with owner(tmp_path / "data", 0) as process:
        process.kill()
        process.wait()
        data.own(0).close()
