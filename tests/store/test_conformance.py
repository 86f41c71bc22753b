"""What every store promises, run on each of them."""

from pathlib import Path

import pytest
from tests.store.conformance import Kind

from roskva.store.base import MAX_BATCH, MAX_TIMESTAMP, Cell, DeleteCell, DeleteRow, Put, Row, Store


def rows(store: Store, start: bytes = b"", end: bytes | None = None) -> dict[bytes, Row]:
    return dict(store.scan(start, end))


def test_a_cell_that_was_put_can_be_read(store: Store) -> None:
    store.write([Put(b"row", b"column", 7, b"value")])
    assert store.read(b"row") == {b"column": Cell(7, b"value")}
    assert store.read_cells([(b"row", b"column")]) == [Cell(7, b"value")]


def test_a_row_that_was_never_written_has_no_cells(store: Store) -> None:
    assert store.read(b"row") == {}
    assert store.read_cells([(b"row", b"column")]) == [None]


def test_an_older_timestamp_never_replaces_a_newer_one(store: Store) -> None:
    store.write([Put(b"row", b"c", 300, b"new")])
    store.write([Put(b"row", b"c", 299, b"old")])
    assert store.read(b"row")[b"c"] == Cell(300, b"new")


def test_a_later_generation_is_newer_whatever_its_timestamp(store: Store) -> None:
    store.write([Put(b"row", b"c", MAX_TIMESTAMP, b"old")])
    for generation, timestamp, kept in (
        (1, 3, Cell(3, b"", 1)),
        (0, MAX_TIMESTAMP, Cell(3, b"", 1)),
        (1, 2, Cell(3, b"", 1)),
        (1, 4, Cell(4, b"", 1)),
        (MAX_TIMESTAMP, 0, Cell(0, b"", MAX_TIMESTAMP)),
    ):
        store.write([Put(b"row", b"c", timestamp, b"", generation)])
        assert store.read(b"row") == {b"c": kept}
        assert store.read_cells([(b"row", b"c")]) == [kept]
        assert rows(store) == {b"row": {b"c": kept}}


def test_a_newer_and_an_equal_timestamp_replace(store: Store) -> None:
    store.write([Put(b"row", b"c", 255, b"first")])
    store.write([Put(b"row", b"c", 255, b"second")])
    assert store.read(b"row")[b"c"] == Cell(255, b"second")
    store.write([Put(b"row", b"c", 256, b"third")])
    assert store.read(b"row")[b"c"] == Cell(256, b"third")


def test_within_a_batch_the_newest_timestamp_wins_and_of_equal_ones_the_last(store: Store) -> None:
    store.write(
        [
            Put(b"row", b"c", 5, b"five"),
            Put(b"row", b"c", 9, b"nine"),
            Put(b"row", b"c", 9, b"nine again"),
            Put(b"row", b"c", 8, b"eight"),
        ]
    )
    assert store.read(b"row")[b"c"] == Cell(9, b"nine again")


@pytest.mark.parametrize("timestamp", [0, 1, 2**31, 2**53 + 1, MAX_TIMESTAMP])
def test_the_whole_range_of_timestamps_is_kept(store: Store, timestamp: int) -> None:
    store.write([Put(b"row", b"c", timestamp, b"")])
    assert store.read(b"row")[b"c"] == Cell(timestamp, b"")


@pytest.mark.parametrize("timestamp", [-1, MAX_TIMESTAMP + 1])
def test_a_timestamp_outside_the_range_is_refused_and_nothing_is_written(
    store: Store, timestamp: int
) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        store.write([Put(b"row", b"a", 1, b""), Put(b"row", b"b", timestamp, b"")])
    assert store.read(b"row") == {}


def test_a_batch_that_is_too_long_is_refused_and_nothing_is_written(store: Store) -> None:
    longest = [Put(b"row", b"%d" % number, 1, b"") for number in range(MAX_BATCH)]
    with pytest.raises(ValueError, match="at most"):
        store.write([*longest, Put(b"other", b"", 1, b"")])
    assert store.read(b"row") == {}
    store.write(longest)
    assert len(store.read(b"row")) == MAX_BATCH


def test_after_a_delete_a_put_of_any_timestamp_wins(store: Store) -> None:
    store.write([Put(b"row", b"a", 100, b""), Put(b"row", b"b", 100, b"")])
    store.write([DeleteCell(b"row", b"a")])
    store.write([Put(b"row", b"a", 1, b"again")])
    assert store.read(b"row") == {b"a": Cell(1, b"again"), b"b": Cell(100, b"")}


def test_a_row_can_start_anew_within_one_batch(store: Store) -> None:
    store.write([Put(b"row", b"a", 100, b""), Put(b"row", b"b", 100, b"")])
    store.write([DeleteRow(b"row"), Put(b"row", b"a", 3, b"anew")])
    assert store.read(b"row") == {b"a": Cell(3, b"anew")}


def test_operations_of_a_batch_take_effect_in_their_order(store: Store) -> None:
    store.write(
        [
            Put(b"row", b"a", 9, b"gone"),
            Put(b"row", b"b", 9, b"gone"),
            DeleteRow(b"row"),
            Put(b"row", b"a", 1, b"kept"),
            Put(b"row", b"c", 1, b"gone"),
            DeleteCell(b"row", b"c"),
        ]
    )
    assert store.read(b"row") == {b"a": Cell(1, b"kept")}


@pytest.mark.parametrize("size", [10, 200])
def test_operations_around_a_deletion_keep_their_order_in_a_row_of_any_size(
    store: Store, size: int
) -> None:
    store.write([Put(b"row", b"%03d" % number, 5, b"old") for number in range(size)])
    store.write(
        [
            Put(b"row", b"000", 9, b"gone"),
            Put(b"row", b"new", 9, b"gone"),
            DeleteRow(b"row"),
            Put(b"row", b"001", 1, b"kept"),
            Put(b"row", b"002", 1, b"gone"),
            DeleteCell(b"row", b"002"),
            Put(b"row", b"new", 2, b"kept"),
            Put(b"row", b"new", 1, b"older"),
        ]
    )
    assert store.read(b"row") == {b"001": Cell(1, b"kept"), b"new": Cell(2, b"kept")}
    store.write([DeleteRow(b"row"), Put(b"row", b"001", 0, b"again"), DeleteRow(b"row")])
    assert store.read(b"row") == {}


def test_deleting_what_does_not_exist_changes_nothing(store: Store) -> None:
    store.write([Put(b"row", b"a", 1, b"")])
    store.write([DeleteCell(b"row", b"b"), DeleteRow(b"ro"), DeleteRow(b"row2")])
    assert rows(store) == {b"row": {b"a": Cell(1, b"")}}


@pytest.mark.parametrize("size", [1, 64, 65, 500])
def test_a_row_of_any_size_can_be_deleted_and_its_neighbours_stay(store: Store, size: int) -> None:
    store.write([Put(b"row", b"%05d" % number, 5, b"old") for number in range(size)])
    store.write([Put(b"row\0", b"", 5, b""), Put(b"ro", b"", 5, b""), Put(b"rox", b"", 5, b"")])
    store.write([DeleteRow(b"row"), Put(b"row", b"00000", 1, b"new")])
    assert rows(store) == {
        b"ro": {b"": Cell(5, b"")},
        b"row": {b"00000": Cell(1, b"new")},
        b"row\0": {b"": Cell(5, b"")},
        b"rox": {b"": Cell(5, b"")},
    }


def test_any_bytes_can_be_a_row_or_a_column(store: Store) -> None:
    odd = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\xff",
        b"\0\1",
        b"\xff",
        b"\xff\0",
        b"a",
        b"a\0",
        b"a\0b",
        b"ab",
    ]
    store.write([Put(row, column, 1, row + b"|" + column) for row in odd for column in odd])
    found = rows(store)
    assert list(found) == sorted(odd)
    for row, cells in found.items():
        assert list(cells) == sorted(odd)
        assert cells == {column: Cell(1, row + b"|" + column) for column in odd}
        assert store.read(row) == cells


def test_cells_of_many_rows_are_read_at_once_in_the_order_asked(store: Store) -> None:
    store.write([Put(b"%d" % number, b"v", number, b"") for number in range(1_000)])
    names = [(b"%d" % number, b"v") for number in reversed(range(1_010))]
    stamps = [None if cell is None else cell.timestamp for cell in store.read_cells(names)]
    assert stamps == [None] * 10 + list(reversed(range(1_000)))
    assert store.read_cells([]) == []


def test_a_scan_covers_its_range_in_the_order_of_the_keys(store: Store) -> None:
    store.write([Put(b"%02d" % number, b"v", 1, b"") for number in reversed(range(20))])
    assert list(rows(store, b"05", b"09")) == [b"05", b"06", b"07", b"08"]
    assert list(rows(store, b"17")) == [b"17", b"18", b"19"]
    assert list(rows(store, b"", b"02")) == [b"00", b"01"]
    assert list(rows(store, b"3")) == []


def test_a_scan_does_not_see_what_is_written_after_it_began(store: Store) -> None:
    store.write([Put(b"%02d" % number, b"v", 1, b"before") for number in range(20)])
    scan = store.scan()
    store.write([Put(b"05", b"v", 2, b"after"), DeleteRow(b"06"), Put(b"99", b"v", 1, b"after")])
    seen = dict(scan)
    assert list(seen) == [b"%02d" % number for number in range(20)]
    assert {cell.value for cells in seen.values() for cell in cells.values()} == {b"before"}


def test_a_synced_write_and_a_later_sync_change_nothing_that_is_read(store: Store) -> None:
    store.write([Put(b"row", b"a", 1, b"")], sync=True)
    store.write([Put(b"row", b"b", 1, b"")])
    store.sync()
    assert list(store.read(b"row")) == [b"a", b"b"]


def test_an_empty_batch_is_fine(store: Store) -> None:
    store.write([], sync=True)
    assert rows(store) == {}


def test_what_is_read_can_be_changed_without_changing_the_store(store: Store) -> None:
    store.write([Put(b"row", b"a", 1, b"")])
    store.read(b"row").clear()
    assert store.read(b"row") == {b"a": Cell(1, b"")}


def test_a_checkpoint_has_everything_written_and_nothing_later(
    kind: Kind, store: Store, tmp_path: Path
) -> None:
    store.write([Put(b"%d" % number, b"v", 1, b"before") for number in range(100)])
    before = rows(store)
    store.checkpoint(tmp_path / "checkpoint")
    store.write([Put(b"1", b"v", 2, b"after"), DeleteRow(b"2"), Put(b"new", b"v", 1, b"after")])
    copy = kind.open_checkpoint(tmp_path / "checkpoint")
    assert rows(copy) == before
    copy.write([DeleteRow(b"3")])
    copy.close()
    assert store.read(b"3") == before[b"3"]


def test_a_checkpoint_never_overwrites(store: Store, tmp_path: Path) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(Exception, match="exists"):
        store.checkpoint(tmp_path / "taken")
