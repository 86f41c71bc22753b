"""The faults a store in memory can show on demand."""

import pickle

import pytest

from roskva.errors import StorageUnavailable
from roskva.store.base import Cell, DeleteRow, Put
from roskva.store.memory import MemoryStore


def values(store: MemoryStore) -> dict[bytes, bytes]:
    return {row: cells[b""].value for row, cells in store.scan()}


def put(row: bytes, value: bytes = b"", timestamp: int = 1) -> Put:
    return Put(row, b"", timestamp, value)


def test_a_crash_loses_what_is_not_synced_and_nothing_else() -> None:
    store = MemoryStore()
    store.write([put(b"a", b"old"), put(b"b")], sync=True)
    store.write([put(b"a", b"new", 2), DeleteRow(b"b"), put(b"c")])
    assert values(store) == {b"a": b"new", b"c": b""}
    store.crash()
    assert values(store) == {b"a": b"old", b"b": b""}


def test_a_crash_may_keep_the_first_unsynced_batches() -> None:
    store = MemoryStore()
    for row in (b"a", b"b", b"c"):
        store.write([put(row), put(row + b"2")])
    assert store.unsynced == 3
    store.crash(keep=2)
    assert list(values(store)) == [b"a", b"a2", b"b", b"b2"]
    store.crash()
    assert list(values(store)) == [b"a", b"a2", b"b", b"b2"]


def test_rows_can_be_refused_for_a_while() -> None:
    store = MemoryStore()
    store.write([put(b"a"), put(b"b")])
    store.refused_prefixes = (b"a", b"x")
    with pytest.raises(StorageUnavailable):
        store.read(b"a")
    with pytest.raises(StorageUnavailable):
        store.read_cells([(b"b", b""), (b"a", b"")])
    with pytest.raises(StorageUnavailable):
        store.write([put(b"b", b"new"), put(b"xyz")])
    assert store.read(b"b") == {b"": Cell(1, b"")}
    store.refused_prefixes = ()
    assert list(values(store)) == [b"a", b"b"]


def test_a_write_that_fails_changes_nothing_and_the_next_succeeds() -> None:
    store = MemoryStore()
    store.failing_writes = 1
    with pytest.raises(StorageUnavailable):
        store.write([put(b"a")])
    assert values(store) == {}
    store.write([put(b"a")])
    assert values(store) == {b"a": b""}


def test_an_old_snapshot_can_come_back() -> None:
    store = MemoryStore()
    store.write([put(b"a", b"old")], sync=True)
    snapshot = store.snapshot()
    store.write([put(b"a", b"new", 2), put(b"b")])
    store.restore(snapshot)
    assert values(store) == {b"a": b"old"}
    store.write([put(b"c")])
    assert list(snapshot) == [b"a"]


def test_a_store_can_be_pickled_with_what_it_could_still_lose() -> None:
    store = MemoryStore()
    store.write([put(b"a")], sync=True)
    store.write([put(b"b")])
    copy: MemoryStore = pickle.loads(pickle.dumps(store))
    assert values(copy) == values(store)
    copy.crash()
    assert (values(copy), values(store)) == ({b"a": b""}, {b"a": b"", b"b": b""})
