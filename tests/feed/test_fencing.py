"""One writer at a time, whatever the others believe."""

import pytest
from tests.feed.scenes import contents, damage, open_log, publish, tidy, updates

from roskva.errors import Fenced
from roskva.feed.base import Locked
from roskva.feed.claim import is_claimed
from roskva.feed.log import LogConfig
from roskva.feed.segment import FRAMES_AT, End, end_in
from roskva.simulation.disk import SimulatedDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_a_second_writer_is_refused(disk: SimulatedDisk) -> None:
    log = open_log(disk, "feed")
    with pytest.raises(Locked):
        open_log(disk, "feed")
    publish(log, 1)


def test_a_writer_that_closed_leaves_the_feed_to_the_next_without_a_void(
    disk: SimulatedDisk,
) -> None:
    log = open_log(disk, "feed")
    publish(log, 1, 2)
    log.close()
    assert not is_claimed(disk, "feed")
    assert publish(open_log(disk, "feed"), 3) == 3


def test_a_writer_that_was_taken_over_from_cannot_commit(disk: SimulatedDisk) -> None:
    old = open_log(disk, "feed")
    publish(old, 1)
    new = open_log(disk, "feed", takeover=True)
    old.append(updates(2))
    with pytest.raises(Fenced):
        old.commit(now_us=1)
    publish(new, 3)
    assert [update.version for update in contents(new.reader()).values()] == [1, 3]
    assert not damage(new.reader())


def test_nothing_the_loser_writes_is_ever_found_again(disk: SimulatedDisk) -> None:
    old = open_log(disk, "feed")
    publish(old, 1)
    new = open_log(disk, "feed", takeover=True)
    for number in (2, 3, 4):  # it does not give up, and would even start segments
        old.append(updates(number))
        with pytest.raises(Fenced):
            old.commit(now_us=1)
    publish(new, 5)
    old.close()
    new.close()
    third = open_log(disk, "feed")
    tidy(third)
    assert [update.version for update in contents(third.reader()).values()] == [1, 5]
    assert not damage(third.reader())


def test_of_two_writers_that_take_over_one_after_the_other_the_last_one_stays(
    disk: SimulatedDisk,
) -> None:
    first = open_log(disk, "feed")
    second = open_log(disk, "feed", takeover=True)
    third = open_log(disk, "feed", takeover=True)
    for loser in (first, second):
        loser.append(updates(1))
        with pytest.raises(Fenced):
            loser.commit(now_us=1)
    publish(third, 2)
    assert [update.version for update in contents(third.reader()).values()] == [2]


def test_a_frame_that_was_synced_before_the_takeover_belongs_to_the_history(
    disk: SimulatedDisk,
) -> None:
    """The loser may have answered its publisher just before it was paused."""
    old = open_log(disk, "feed")
    publish(old, 1)
    publish(old, 2)
    disk.crash("lost", "kept")  # its end word was not synced
    new = open_log(disk, "feed", takeover=True)
    assert [update.version for update in contents(new.reader()).values()] == [1, 2]


def test_a_loser_replaces_and_removes_nothing(disk: SimulatedDisk) -> None:
    old = open_log(disk, "feed", LogConfig(segment_bytes=40_000))
    for number in range(1, 600):
        publish(old, number)
    assert old.tidy(now_us=1)  # it has paused in the middle of rewriting the first segment
    new = open_log(disk, "feed", takeover=True)
    before = {name: disk.read(f"feed/{name}", 0, 200_000) for name in segments(disk)}
    with pytest.raises(Fenced):
        tidy(old)
    assert before == {name: disk.read(f"feed/{name}", 0, 200_000) for name in segments(disk)}
    assert len(contents(new.reader())) == 599


def test_what_a_loser_wrote_is_neither_read_nor_rewritten(disk: SimulatedDisk) -> None:
    old = open_log(disk, "feed")
    publish(old, 1)
    new = open_log(disk, "feed", takeover=True)
    old.append(updates(2))
    with pytest.raises(Fenced):
        old.commit(now_us=1)
    publish(new, 3)
    for _ in ("as written", "rewritten"):
        assert [update.version for update in contents(new.reader()).values()] == [1, 3]
        tidy(new)
    first = new.reader().segments()[0]
    assert first.header.rewritten
    assert end_in(disk.read(first.path, 0, FRAMES_AT)) == End(1, disk.size(first.path), closed=True)


def segments(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list("feed") if name.endswith(".log")]
