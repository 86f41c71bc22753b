"""A disk that refuses: publishers are told to try again, and the feed stays whole."""

import errno

import pytest
from tests.feed.scenes import LINEAGE, contents, damage, open_log, publish, tidy, updates

from roskva.errors import RoskvaError, StorageUnavailable
from roskva.feed.base import Marker
from roskva.feed.log import Log
from roskva.feed.record import read_markers
from roskva.simulation.disk import Operation, SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def versions(log: Log) -> list[int]:
    assert not damage(log.reader())
    return [update.version for update in contents(log.reader()).values()]


def refused(log: Log, *numbers: int) -> RoskvaError:
    log.append(updates(*numbers))
    with pytest.raises(StorageUnavailable) as caught:
        log.commit(now_us=1)
    return caught.value


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_failed_write_or_sync_is_retriable_and_its_updates_are_nowhere(
    disk: SimulatedDisk, operation: Operation
) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    disk.fail(operation, errno.EIO)
    assert refused(log, 2).retriable
    publish(log, 3)
    assert versions(log) == [1, 3]


def test_a_disk_that_fails_for_good_fails_every_commit_until_it_heals(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    disk.fail("sync", errno.EIO, times=None)
    for number in range(2, 6):
        refused(log, number)
    disk.heal()
    publish(log, 6)
    assert versions(log) == [1, 6]


def test_a_full_disk_refuses_and_goes_on_when_there_is_room_again(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    disk.capacity = disk.used() + 50  # half of a frame fits
    for number in range(2, 6):
        assert "space" in str(refused(log, number))
    assert versions(log) == [1]
    disk.heal()
    publish(log, 6)
    log.close()
    assert versions(open_log(disk, "feed")) == [1, 6]


def test_no_file_handles_left_refuses_only_what_needs_one(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    disk.max_open = 0
    publish(log, 1)
    publish(log, 2)
    publish(log, 3)  # the segment is full now
    refused(log, 4)
    disk.heal()
    publish(log, 5)
    assert versions(log) == [1, 2, 3, 5]


def test_a_crash_after_a_failed_sync_never_shows_what_is_on_no_disk(disk: SimulatedDisk) -> None:
    """The system takes the pages for clean after the error; they would vanish at a power cut."""
    log = open_log(disk, "feed")
    publish(log, 1)
    disk.fail("sync", errno.EIO)
    refused(log, 2)
    log = open_log(disk, "feed", takeover=True)
    shown = versions(log)
    disk.crash("lost", "lost")
    assert versions(open_log(disk, "feed")) == shown


def test_an_end_word_that_cannot_be_written_delays_readers_and_loses_nothing(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    log.append(updates(2))
    disk.fail("write", errno.EIO, after=1)
    assert log.commit(now_us=1) is not None
    publish(log, 3)
    assert versions(log) == [1, 2, 3]


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_tidying_that_fails_is_taken_up_again_later(
    disk: SimulatedDisk, operation: Operation
) -> None:
    log = open_log(disk, "feed")
    for number in range(1, 9):
        publish(log, number)
    disk.fail(operation, errno.EIO)
    with pytest.raises(StorageUnavailable):
        tidy(log)
    assert versions(log) == list(range(1, 9))
    tidy(log)
    assert versions(log) == list(range(1, 9))
    assert all(segment.header.rewritten for segment in log.reader().segments()[:-1])


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_a_marker_that_cannot_be_written_stays_what_it_was(
    disk: SimulatedDisk, operation: Operation
) -> None:
    log = open_log(disk, "feed")
    publish(log, 1, 2)
    log.set_marker("bridge", Marker(LINEAGE, 1))
    disk.fail(operation, errno.ENOSPC)
    with pytest.raises(StorageUnavailable):
        log.set_marker("bridge", Marker(LINEAGE, 2))
    disk.crash("lost", "lost")
    open_log(disk, "feed")
    assert read_markers(disk, "feed") == ({"bridge": Marker(LINEAGE, 1)}, [])


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_directory"])
def test_opening_that_fails_changes_nothing(disk: SimulatedDisk, operation: Operation) -> None:
    log = open_log(disk, "feed")
    publish(log, 1)
    log.close()
    disk.fail(operation, errno.ENOSPC)
    with pytest.raises(StorageUnavailable):
        open_log(disk, "feed")
    assert versions(open_log(disk, "feed")) == [1]
