"""What only the store on disk can show: reopening, damage, and other owners."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.store.full_disk import CELLS

from roskva.errors import Damaged, StorageUnavailable
from roskva.store.base import Cell, DeleteRow, Put
from roskva.store.rocksdb import RocksStore


def test_a_store_that_was_closed_opens_with_everything_written(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write([Put(b"row", b"a", 1, b"one"), Put(b"row", b"b", 2, b"two")])
    store.close()
    store = RocksStore(tmp_path)
    assert store.read(b"row") == {b"a": Cell(1, b"one"), b"b": Cell(2, b"two")}
    store.close()


def test_rows_are_the_same_from_memory_and_from_tables(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "store")
    store.write([Put(b"%d" % number, b"c", 5, b"old") for number in range(200)])
    store.checkpoint(tmp_path / "flushes")
    store.write([Put(b"%d" % number, b"c", 4, b"older") for number in range(100)])
    store.write([Put(b"%d" % number, b"c", 6, b"newer") for number in range(100, 150)])
    store.write([DeleteRow(b"%d" % number) for number in range(150, 200)])
    expected = {b"%d" % number: Cell(5, b"old") for number in range(100)}
    expected |= {b"%d" % number: Cell(6, b"newer") for number in range(100, 150)}
    assert {row: cells[b"c"] for row, cells in store.scan()} == expected
    assert [store.read(b"%d" % number) for number in range(150, 200)] == [{}] * 50
    store.close()


def test_damage_is_an_error_and_never_a_shorter_answer(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "store")
    for first in range(0, 10_000, 1_000):
        numbers = range(first, first + 1_000)
        store.write([Put(b"%05d" % number, b"", 1, b"%d" % number**9) for number in numbers])
    store.checkpoint(tmp_path / "copy")
    store.close()
    (table,) = (tmp_path / "copy").glob("*.sst")
    content = bytearray(table.read_bytes())
    content[len(content) // 3] ^= 1
    table.write_bytes(content)

    copy = RocksStore(tmp_path / "copy")
    with pytest.raises(Damaged):
        list(copy.scan())
    with pytest.raises(Damaged):
        copy.read_cells([(b"%05d" % number, b"") for number in range(10_000)])
    with pytest.raises(Damaged):
        [copy.read(b"%05d" % number) for number in range(10_000)]
    copy.close()


def test_damage_in_the_log_leaves_whole_batches_up_to_it_and_the_marker_of_the_last(
    tmp_path: Path,
) -> None:
    store = RocksStore(tmp_path / "store")
    for number in range(50):
        versions = [Put(b"%02d/%d" % (number, cell), b"", 1, b"") for cell in range(5)]
        store.write([*versions, Put(b"marker", b"", number, b"")], sync=True)
    shutil.copytree(tmp_path / "store", tmp_path / "copy")  # as a crash would leave it
    store.close()
    (log,) = (path for path in (tmp_path / "copy").glob("*.log") if path.stat().st_size)
    content = log.read_bytes()
    for position in range(100, len(content), 211):
        damaged = tmp_path / str(position)
        shutil.copytree(tmp_path / "copy", damaged)
        flipped = bytes([content[position] ^ 4])
        (damaged / log.name).write_bytes(content[:position] + flipped + content[position + 1 :])
        opened = RocksStore(damaged)
        rows = dict(opened.scan())
        opened.close()
        marker = rows.pop(b"marker", {b"": Cell(-1, b"")})[b""].timestamp
        assert marker < 49
        assert list(rows) == [
            b"%02d/%d" % (n, cell) for n in range(marker + 1) for cell in range(5)
        ]


def test_a_scan_may_end_anywhere_and_outlive_what_it_was_asked_with(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    store.write([Put(b"%04d" % number, b"", 1, b"") for number in range(1_000)])
    scans = [store.scan(b"%04d" % (number * 10), b"%04d" % 900) for number in range(50)]
    assert [len(list(scan)) for scan in scans] == [900 - number * 10 for number in range(50)]
    abandoned = store.scan()
    assert next(abandoned)[0] == b"0000"
    store.close()


def test_a_second_owner_is_refused(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    with pytest.raises(StorageUnavailable, match="lock"):
        RocksStore(tmp_path)
    store.close()
    RocksStore(tmp_path).close()


def test_a_checkpoint_can_be_read_without_changing_it(tmp_path: Path) -> None:
    store = RocksStore(tmp_path / "store")
    store.write([Put(b"row", b"a", 1, b"one")])
    store.checkpoint(tmp_path / "checkpoint")
    store.close()
    before = sorted(path.name for path in (tmp_path / "checkpoint").glob("*.sst"))
    readers = [RocksStore(tmp_path / "checkpoint", read_only=True) for _ in range(2)]
    assert [dict(reader.scan()) for reader in readers] == [{b"row": {b"a": Cell(1, b"one")}}] * 2
    with pytest.raises(StorageUnavailable):
        readers[0].write([DeleteRow(b"row")])
    for reader in readers:
        reader.close()
    assert sorted(path.name for path in (tmp_path / "checkpoint").glob("*.sst")) == before


def test_a_full_disk_refuses_writes_until_there_is_space_and_reads_go_on(tmp_path: Path) -> None:
    answer = on_a_full_disk("while", tmp_path / "store")
    acknowledged, refused, read_meanwhile, afterwards, found = answer
    assert len(acknowledged) > 10
    assert refused == [False] * 3
    assert read_meanwhile == len(acknowledged) * CELLS
    assert afterwards
    batches = [*acknowledged, 30_000]
    assert found == sorted(f"{number}/{cell}" for number in batches for cell in range(CELLS))
    reopened = RocksStore(tmp_path / "store")
    assert sorted(row.decode() for row, _ in reopened.scan()) == found
    reopened.close()


def test_a_sync_after_a_failure_does_not_vouch_for_what_came_before_it(tmp_path: Path) -> None:
    written, first_sync, second_sync = on_a_full_disk("sync", tmp_path / "store")
    assert written > 10
    assert (first_sync, second_sync) == (False, True)


def on_a_full_disk(scenario: str, directory: Path) -> Any:
    command = [sys.executable, "-m", "tests.store.full_disk", scenario, str(directory)]
    return json.loads(subprocess.check_output(command, cwd=Path(__file__).parents[2]))
