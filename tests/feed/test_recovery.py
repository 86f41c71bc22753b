"""What a writer makes of the end that its predecessor left. (Crashes: test_crashes.py.)"""

import pytest
from tests.feed.scenes import LINEAGE, contents, damage, open_log, publish, updates

from roskva.errors import BadInput
from roskva.feed.base import Foreign, Idle, Marker
from roskva.feed.log import Log
from roskva.feed.reader import LogReader
from roskva.feed.segment import END_AT, FRAMES_AT, RESERVED
from roskva.model import Update
from roskva.simulated_disk import SimulatedDisk


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


def test_a_reader_is_told_that_a_void_is_accounted_for(disk: SimulatedDisk) -> None:
    publish(open_log(disk, "feed"), 1, 2)
    disk.crash("kept", "kept")
    reader = open_log(disk, "feed").reader()
    assert reader.read(Marker(LINEAGE, 2)) == Idle(RESERVED)
    assert reader.read(Marker(LINEAGE, 1000)) == Idle(RESERVED)
    assert reader.read(Marker(LINEAGE, RESERVED)) == Idle(RESERVED)


def test_a_marker_at_the_end_of_a_void_is_no_proof_of_loss(disk: SimulatedDisk) -> None:
    publish(open_log(disk, "feed"), 1, 2)
    disk.crash("kept", "kept")
    open_log(disk, "feed").set_marker("bridge", Marker(LINEAGE, RESERVED))
    disk.crash("kept", "kept")
    log = open_log(disk, "feed")
    assert not damage(log.reader())
    publish(log, 3)
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
