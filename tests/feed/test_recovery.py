"""What a writer makes of the end that its predecessor left. (Crashes: test_crashes.py.)"""

import pytest
from tests.feed.scenes import LINEAGE, contents, damage, open_log, publish, updates

from roskva.errors import BadInput
from roskva.feed.base import Batch, Foreign, Idle, Marker, Missing
from roskva.feed.log import Log
from roskva.feed.reader import LogReader
from roskva.feed.segment import END_AT, FRAMES_AT, RESERVED
from roskva.model import Update
from roskva.simulation.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_after_a_crash_offsets_go_on_beyond_all_that_could_have_been_used(
    disk: SimulatedDisk,
) -> None:
    publish(open_log(disk, "feed"), 1, 2)
    disk.crash("kept", "kept")
    log = open_log(disk, "feed")
    assert log.append(updates(3)) == 1 + RESERVED
    committed = log.commit(now_us=1)
    assert committed is not None
    assert (committed.first, committed.base) == (3, 1 + RESERVED)


def test_a_void_is_behind_the_end_until_something_comes_after_it(disk: SimulatedDisk) -> None:
    publish(open_log(disk, "feed"), 1, 2)
    disk.crash("kept", "kept")
    log = open_log(disk, "feed")
    reader = log.reader()
    assert reader.read(Marker(LINEAGE, 2)) == Idle(2)
    assert reader.read(Marker(LINEAGE, 3)) == Foreign(LINEAGE, 2)
    publish(log, 3)
    batch = reader.read(Marker(LINEAGE, 2))
    assert isinstance(batch, Batch)
    assert (batch.first, batch.base, batch.last) == (3, 1 + RESERVED, 1 + RESERVED)


def test_a_marker_inside_a_void_has_seen_what_was_lost(disk: SimulatedDisk) -> None:
    publish(open_log(disk, "feed"), 1, 2)
    disk.crash("kept", "kept")
    log = open_log(disk, "feed")
    publish(log, 3)
    reader = log.reader()
    assert reader.read(Marker(LINEAGE, 3)) == Missing(4, RESERVED, "damage")
    assert isinstance(reader.read(Marker(LINEAGE, RESERVED)), Batch)


def test_crashes_in_a_row_leave_one_void(disk: SimulatedDisk) -> None:
    publish(open_log(disk, "feed"), 1, 2)
    for _ in range(3):
        disk.crash("kept", "kept")
        log = open_log(disk, "feed")
        assert log.reader().read(Marker(LINEAGE, 2)) == Idle(2)
    assert publish(log, 3) == 1 + 3 * RESERVED
    assert not damage(log.reader())
    assert len(contents(log.reader())) == 3


def test_a_tail_that_a_marker_has_seen_is_damage_and_not_void(disk: SimulatedDisk) -> None:
    """Both copies of the end word are lost with the last frame; only the marker remembers it."""
    log = open_log(disk, "feed")
    publish(log, 1)
    publish(log, 2)
    log.set_marker("bridge", Marker(LINEAGE, 2))
    path = log.reader().segments()[-1].path
    disk.crash("kept", "kept")
    for byte in (END_AT + 8, END_AT + 40, disk.size(path) - 1):
        disk.flip(path, byte * 8)
    log = open_log(disk, "feed")
    assert damage(log.reader()) == [(2, 2)]
    assert publish(log, 3) > 2


def test_a_damaged_frame_before_the_end_word_is_damage_and_not_a_torn_tail(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    path = log.reader().segments()[-1].path
    disk.crash("kept", "kept")
    disk.flip(path, (FRAMES_AT + 60) * 8)
    assert damage(open_log(disk, "feed").reader()) == [(1, 1)]


def test_updates_that_cannot_be_encoded_fail_alone_and_leave_no_hole(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    log.append([Update("app/x", 2**63)])
    with pytest.raises(OverflowError):
        log.commit(now_us=1)
    publish(log, 2)
    assert not damage(log.reader())
    assert [update.version for update in contents(log.reader()).values()] == [1, 2]


def test_a_marker_of_another_history_is_refused(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    log.append(updates(2))
    for marker in (Marker(LINEAGE, 2), Marker(LINEAGE + 1, 1)):
        with pytest.raises(BadInput):
            log.set_marker("bridge", marker)


def test_a_feed_whose_segments_are_all_gone_is_another_history(disk: SimulatedDisk) -> None:
    """Its offsets begin anew, so that its lineage must too."""
    log = open_log(disk, "feed")
    publish(log, 1)
    log.close()
    for segment in log.reader().segments():
        disk.remove(segment.path)
    assert Log.open(disk, "feed", lineage=99, now_us=1).lineage == 99


def test_an_open_reader_notices_that_the_feed_was_recreated(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    publish(log, 1, 2)
    reader = LogReader(disk, "feed")
    log.close()
    for name in disk.list("feed"):
        if name != "markers":
            disk.remove(f"feed/{name}")
    Log.open(disk, "feed", lineage=99, now_us=1)
    assert reader.read(Marker(LINEAGE, 2)) == Foreign(99, 0)
