"""The changes log: what it knows after a start, whatever was lost."""

import msgspec
import pytest

from roskva.errors import StorageUnavailable
from roskva.feed.base import Batch, Marker
from roskva.feed.reader import LogReader
from roskva.model import Update
from roskva.simulation.disk import PowerCut, SimulatedDisk
from roskva.sources.change import NULL, Change, body_of, doubt_of, version_of
from roskva.sources.changes import ChangesLog, Slice, forget_flows
from roskva.sources.position import Doubt, PostgresPosition

ATTACHED = Doubt("attached", "the source begins")


def at(lsn: int) -> PostgresPosition:
    return PostgresPosition("7", 1, lsn)


def change(key: str) -> Change:
    return Change("products", "update", (key,), msgspec.Raw(b'{"id":1}'), NULL, 99)


def opened(disk: SimulatedDisk, lineage: int = 1) -> ChangesLog:
    return ChangesLog.open(disk, "shop", "shop", lineage=lineage, now_us=0)


def attached(disk: SimulatedDisk) -> ChangesLog:
    log = opened(disk)
    assert (log.ordinal, log.position) == (0, None)
    log.doubt(ATTACHED, 5, at(10), 0)
    return log


def records(disk: SimulatedDisk) -> list[Update]:
    reader = LogReader(disk, "shop/changes")
    found: list[Update] = []
    after = 0
    while isinstance(read := reader.read(Marker(reader.lineage, after)), Batch):
        found += read.updates()
        after = read.last
    return found


def test_a_change_is_an_update_with_a_version_of_its_ordinal_and_its_offset() -> None:
    disk = SimulatedDisk()
    log = attached(disk)
    log.append([Slice("731", [change("17"), change("18")], at(20))], 0)
    doubt, first, second = records(disk)
    assert (doubt.object, doubt.version, doubt.reset) == ("shop/", 5, True)
    assert doubt_of(doubt) == ATTACHED
    assert (first.object, first.version) == ("shop/products/17", version_of(5, 2))
    assert (second.object, second.version) == ("shop/products/18", version_of(5, 3))
    assert first.source is None
    assert second.source is not None
    body = body_of(first)
    assert (body.table, body.op, body.key, body.transaction) == (
        "products",
        "update",
        ("17",),
        "731",
    )
    assert bytes(body.row) == b'{"id":1}'


def test_position_and_ordinal_are_those_of_the_last_whole_transaction() -> None:
    disk = SimulatedDisk()
    log = attached(disk)
    log.append([Slice("731", [change("17")], at(20)), Slice("732", [change("18")], None)], 0)
    disk.crash()
    again = opened(disk)
    assert (again.ordinal, again.position) == (5, at(20))
    again.append([Slice("732", [change("18")], at(30))], 0)
    versions = [update.version for update in records(disk)[1:]]
    assert versions == sorted(set(versions))


def test_a_position_that_moves_without_changes_is_kept() -> None:
    disk = SimulatedDisk()
    attached(disk).append([Slice("731", [], at(20))], 0)
    disk.crash()
    assert opened(disk).position == at(20)


def test_a_log_that_was_lost_has_no_position_but_its_ordinal() -> None:
    disk = SimulatedDisk()
    attached(disk).append([Slice("731", [change("17")], at(20))], 0)
    disk.crash("kept", "kept")
    for name in disk.list("shop/changes"):
        if name.endswith(".log") or name == "meta":
            disk.remove(f"shop/changes/{name}")
    again = opened(disk, lineage=2)
    assert (again.ordinal, bool(again.lost)) == (5, True)


def test_a_state_that_was_lost_has_nothing() -> None:
    """The shards know the ordinal, too: whoever begins anew asks them."""
    disk = SimulatedDisk()
    attached(disk).append([Slice("731", [change("17")], at(20))], 0)
    disk.crash("kept", "kept")
    disk.remove("shop/state")
    assert opened(disk).position is None


def test_a_log_that_is_older_than_its_state_has_no_position() -> None:
    disk = SimulatedDisk()
    log = attached(disk)
    old = disk.copy()
    for end in range(20, 40):
        log.append([Slice(str(end), [change("17")], at(end))], 10**6 * end)
    old.crash("kept", "kept")
    disk.crash("kept", "kept")
    state = disk.read("shop/state", 0, 4096)
    file = old.open("shop/state")
    file.write_at(state, 0)
    file.sync()
    assert opened(old).lost


def test_the_markers_of_ingests_that_are_no_more_hold_nothing() -> None:
    disk = SimulatedDisk()
    log = attached(disk)
    for name in ("direct", "ingest-cheap", "ingest-gone"):
        log.set_marker(name, 1)
    assert forget_flows(disk, "shop", {"cheap"}) == ["gone"]
    assert sorted(disk.list("shop/changes/markers")) == ["direct", "ingest-cheap"]
    assert forget_flows(disk, "elsewhere", {"cheap"}) == []


def test_a_transaction_of_which_a_part_survived_a_power_cut_comes_again() -> None:
    """The position is in its last record, and not in its first."""
    disk = SimulatedDisk()
    log = attached(disk)
    disk.cut_before_step = disk.steps + 1  # written, and not synced
    with pytest.raises(PowerCut):
        log.append([Slice("731", [change(str(i)) for i in range(10_000)], at(20))], 0)
    disk.crash("torn", "kept")
    again = opened(disk)
    assert 1 < again.last < 10_000
    assert again.position == at(10)


def test_a_disk_that_does_not_take_the_position_fails_as_one() -> None:
    disk = SimulatedDisk()
    log = attached(disk)
    disk.capacity = disk.used()
    with pytest.raises(StorageUnavailable):
        log.keep(0)
