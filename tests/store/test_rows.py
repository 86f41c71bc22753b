"""The layout of rows: what is written comes back, and keys spread evenly."""

import secrets
import subprocess
import sys
from collections import Counter

import pytest

from roskva.core.effects import (
    ClientRow,
    DropClient,
    DropRegistered,
    ObjectRow,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    Write,
)
from roskva.model import MAX_VERSION, NO_VERSION, shard_of
from roskva.store import rows
from roskva.store.base import MAX_BATCH, Store
from roskva.wire.links import Registered

ALICE = "contacts/alice"
CLIENT = bytes(range(16))


def persist(store: Store, *writes: Write) -> None:
    for batch in rows.batches(writes):
        store.write(batch)


def load(store: Store, *keys: str) -> list[ObjectRow]:
    cells = store.read_cells(rows.object_cells(keys))
    found = rows.object_rows(keys, cells)
    assert list(found) == list(keys)
    return list(found.values())


def load_client(store: Store) -> ClientRow | None:
    return rows.client_row(store.read(rows.client_key(CLIENT)))


def test_an_object_comes_back_as_it_was_persisted(store: Store) -> None:
    full = ObjectRow(MAX_VERSION, 0, "app-1", b"\0payload", 1_700_000_000_000_000)
    persist(store, PutObject(ALICE, full), PutObject("contacts/böb/ß", ObjectRow(0)))
    unknown = ObjectRow()
    assert load(store, ALICE, "contacts/nobody", "contacts/böb/ß") == [full, unknown, ObjectRow(0)]


def test_an_older_version_never_replaces_a_newer_one(store: Store) -> None:
    persist(store, PutObject(ALICE, ObjectRow(41, source="new")))
    persist(store, PutObject(ALICE, ObjectRow(40, source="old")))
    assert load(store, ALICE) == [ObjectRow(41, source="new")]


def test_a_reset_forgets_the_version_and_its_mark_outlives_later_versions(store: Store) -> None:
    persist(store, PutObject(ALICE, ObjectRow(MAX_VERSION)))
    persist(store, PutObject(ALICE, ObjectRow(mark=77), replace=True))
    assert load(store, ALICE) == [ObjectRow(NO_VERSION, 77)]
    persist(store, PutObject(ALICE, ObjectRow(3)))
    assert load(store, ALICE) == [ObjectRow(3, 77)]
    persist(store, PutObject(ALICE, ObjectRow(1, mark=5), replace=True))
    assert load(store, ALICE) == [ObjectRow(1, 5)]


def test_a_client_row_has_its_session_its_application_and_its_registrations(store: Store) -> None:
    cells = [Registered(ALICE, 41, 2**60 - 1), Registered("contacts/bob", NO_VERSION, 0)]
    persist(store, PutClient(CLIENT, 1 << 32, 1_000, "app-1"))
    persist(store, *(PutRegistered(CLIENT, 1 << 32, cell) for cell in cells))
    persist(store, PutClient(CLIENT, (1 << 32) + 1, 2_000))
    assert load_client(store) == ClientRow((1 << 32) + 1, "app-1", cells)

    persist(store, DropRegistered(CLIENT, ALICE))
    assert load_client(store) == ClientRow((1 << 32) + 1, "app-1", cells[1:])
    persist(store, DropClient(CLIENT))
    assert load_client(store) is None


def test_c78_a_delayed_write_of_a_fenced_session_changes_nothing(store: Store) -> None:
    persist(store, PutClient(CLIENT, 2, 1_000, "app-1"))
    persist(store, PutRegistered(CLIENT, 2, Registered(ALICE, 41, 9)))
    persist(store, PutClient(CLIENT, 1, 5_000), PutRegistered(CLIENT, 1, Registered(ALICE, 7, 9)))
    assert load_client(store) == ClientRow(2, "app-1", [Registered(ALICE, 41, 9)])


def test_a_client_that_was_never_created_has_no_row(store: Store) -> None:
    persist(store, PutRegistered(CLIENT, 1, Registered(ALICE, 41, 9)))
    assert load_client(store) is None


def test_the_shard_row_keeps_the_marker_beside_the_number_of_starts(store: Store) -> None:
    assert rows.shard_row(store.read(rows.SHARD_ROW)) is None
    assert rows.boot_of(store.read(rows.SHARD_ROW)) == 0
    store.write([rows.put_boot(3)])
    persist(store, PutShard(2**40 - 1, 2**64 - 1, 12))
    persist(store, PutShard(5, 6, 4))
    assert rows.shard_row(store.read(rows.SHARD_ROW)) == PutShard(5, 6, 4)
    assert rows.boot_of(store.read(rows.SHARD_ROW)) == 3


def test_many_writes_become_batches_in_their_order_with_the_marker_last() -> None:
    writes: list[Write] = [
        PutObject(f"a/{number}", ObjectRow(mark=1), replace=True) for number in range(5_000)
    ]
    made = list(rows.batches([*writes, PutShard(1, 2, 3)]))
    assert all(len(batch) <= MAX_BATCH for batch in made)
    assert [operation for batch in made for operation in batch] == [
        operation
        for write in [*writes, PutShard(1, 2, 3)]
        for operation in rows.operations_of(write)
    ]
    thousand: list[Write] = [PutObject(f"a/{number}", ObjectRow(1)) for number in range(1_000)]
    assert len(list(rows.batches([*thousand, PutShard(1, 2, 3)]))) == 1


def test_kind_and_identity_are_in_the_key() -> None:
    assert rows.object_of(rows.object_key("contacts/böb/ß")) == "contacts/böb/ß"
    assert rows.client_of(rows.client_key(CLIENT)) == CLIENT
    assert rows.object_key(ALICE).startswith(rows.OBJECT)
    assert rows.client_key(CLIENT).startswith(rows.CLIENT)


@pytest.mark.parametrize("pattern", ["a/{}", "contacts/user-{:09}", "maps/{}/tile/0", "x/{:x}"])
@pytest.mark.parametrize("shards", [1, 4, 12])
def test_names_spread_evenly_over_shards_and_over_ranges_in_a_shard(
    pattern: str, shards: int
) -> None:
    names = [pattern.format(number) for number in range(24_000)]
    per_shard = Counter(shard_of(name, shards) for name in names)
    assert _even(per_shard, shards, len(names))
    cuts = rows.ranges(rows.OBJECT, 8)
    keys = [rows.object_key(name) for name in names if shard_of(name, shards) == shards - 1]
    per_range = Counter(_range_of(key, cuts) for key in keys)
    assert _even(per_range, 8, len(keys))


def test_client_ids_spread_evenly_too() -> None:
    ids = [secrets.token_bytes(16) for _ in range(24_000)]
    assert _even(Counter(shard_of(client, 4) for client in ids), 4, len(ids))


def _even(counts: Counter[int], parts: int, total: int) -> bool:
    return all(0.8 * total / parts < counts[part] < 1.2 * total / parts for part in range(parts))


def _range_of(key: bytes, cuts: list[tuple[bytes, bytes]]) -> int:
    (found,) = (part for part, (start, end) in enumerate(cuts) if start <= key < end)
    return found


def test_ranges_cover_every_row_of_their_kind_once_and_no_other(store: Store) -> None:
    names = [f"a/{number}" for number in range(500)]
    persist(store, PutShard(1, 2, 3), PutClient(CLIENT, 1, 1, "app-1"))
    persist(store, *(PutObject(name, ObjectRow(1)) for name in names))
    for parts in (1, 3, 16):
        scanned = [row for cut in rows.ranges(rows.OBJECT, parts) for row, _ in store.scan(*cut)]
        assert sorted(map(rows.object_of, scanned)) == sorted(names)
    (client,) = (row for cut in rows.ranges(rows.CLIENT, 5) for row, _ in store.scan(*cut))
    assert rows.client_of(client) == CLIENT


def test_the_shard_of_a_key_is_the_same_for_ever() -> None:
    known = {"contacts/alice": 571, "contacts/bob": 148, "maps/région-1/tile": 825}
    assert {key: shard_of(key, 1000) for key in known} == known
    assert shard_of(CLIENT, 1000) == 904
    script = "from roskva.model import shard_of; print(shard_of('contacts/alice', 1000))"
    answers = {
        subprocess.check_output([sys.executable, "-c", script], env={"PYTHONHASHSEED": seed})
        for seed in ("0", "1")
    }
    assert answers == {b"%d\n" % shard_of("contacts/alice", 1000)}


def test_how_many_rows_there_are_is_counted_where_they_are_few(store: Store) -> None:
    assert rows.estimated_rows(store) == {"objects": 0, "clients": 0, "registrations": 0}
    persist(store, PutObject(ALICE, ObjectRow(1)), PutClient(CLIENT, 1, 1_000, "app-1"))
    persist(store, *(PutRegistered(CLIENT, 1, Registered(f"a/{n}", 1, 1)) for n in range(3)))
    assert rows.estimated_rows(store) == {"objects": 1, "clients": 1, "registrations": 3}


def test_how_many_rows_there_are_is_estimated_where_they_are_many(store: Store) -> None:
    count = 10 * rows.SAMPLE_CELLS
    persist(store, *(PutObject(f"app/{number}", ObjectRow(1)) for number in range(count)))
    found = rows.estimated_rows(store)["objects"]
    assert 0.9 * count < found < 1.1 * count
    assert found != count


def test_clients_are_found_by_their_application_a_page_at_a_time(store: Store) -> None:
    """And not by what is left of a row that was half forgotten."""
    clients = [bytes([number]) * 16 for number in range(10)]
    for number, client in enumerate(clients):
        application = f"phone-{number % 2}"
        persist(store, PutClient(client, 1, number, application))
        persist(store, PutRegistered(client, 1, Registered(ALICE, 1, 1)))
    persist(store, PutClient(b"h" * 16, 1, 99), PutObject(ALICE, ObjectRow(41)))
    found, after, looked_at = list[bytes](), b"", 0
    while True:
        page = rows.find_application(store, "phone-1", after, 4)
        found += [client for client, _ in page.found]
        looked_at += page.looked_at
        after = page.after
        if not after:
            break
        assert page.looked_at == 4
    assert sorted(found) == clients[1::2]
    assert looked_at == 11
