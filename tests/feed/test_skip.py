"""A copy of a feed goes on where its original cannot have been, and says what it lacks."""

import itertools
from threading import Event, Thread, current_thread
from typing import get_args

import pytest
from tests.feed.scenes import (
    LINEAGE,
    SMALL,
    answers,
    contents,
    damage,
    missing,
    open_log,
    publish,
    tidy,
)

from roskva.feed.base import Batch, Idle, Marker, Missing
from roskva.feed.check import repair, verify
from roskva.feed.log import Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.record import write_record
from roskva.feed.recovery import DISTANCE, SKIP, skip_ahead
from roskva.feed.upkeep import Retention
from roskva.simulation.disk import Fate, PowerCut, SimulatedDisk, SimulatedFile

END = 3
LOST = (END + 1, END + DISTANCE)
FATES: tuple[Fate, ...] = get_args(Fate)
FATES_OF_NAMES = [fate for fate in FATES if fate != "zeroed"]


def copied(disk: SimulatedDisk | None = None) -> SimulatedDisk:
    """A feed of three updates that is the copy of a longer one."""
    disk = disk or SimulatedDisk()
    log = open_log(disk, "feed")
    publish(log, 1, 2)
    publish(log, 3)
    log.close()
    skip_ahead(disk, "feed")
    return disk


def check_skipped(log: Log) -> None:
    """Once, the whole range, and everything around it is there."""
    assert LOST[1] < publish(log, 4) < LOST[1] + DISTANCE
    reader = log.reader()
    assert missing(reader, "restore") == [LOST]
    assert damage(reader) == []
    assert [update.version for update in contents(reader).values()] == [1, 2, 3, 4]
    assert isinstance(reader.read(Marker(LINEAGE, LOST[1])), Batch)


def test_the_history_goes_on_far_away_and_what_lies_between_is_missing() -> None:
    log = open_log(copied(), "feed")
    assert list(answers(log.reader(), after=END)) == [Missing(*LOST, "restore")]
    check_skipped(log)


def test_until_a_writer_takes_it_up_readers_see_the_copy_as_it_is() -> None:
    assert LogReader(copied(), "feed").read(Marker(LINEAGE, END)) == Idle(END)


def test_what_is_left_out_is_no_problem_and_damage_before_it_still_is() -> None:
    disk = copied()
    open_log(disk, "feed").close()
    (oldest,) = [name for name in disk.list("feed") if name.startswith(f"{1:019d}-")]
    checked = [file for file in verify(disk, "feed") if file.file == oldest]
    assert [(file.problems, file.left_out) for file in checked] == [((), Missing(*LOST, "restore"))]
    disk.flip(f"feed/{oldest}", (disk.size(f"feed/{oldest}") - 1) * 8)
    checked = [file for file in verify(disk, "feed") if file.file == oldest]
    assert [[problem.lost for problem in file.problems] for file in checked] == [[(END, END)]]
    assert checked[0].left_out == Missing(*LOST, "restore")
    reader = LogReader(disk, "feed")
    assert (damage(reader), missing(reader, "restore")) == ([(END, END)], [LOST])


def test_nothing_is_damaged_where_the_last_writer_before_the_copy_wrote_nothing() -> None:
    disk = SimulatedDisk()
    publish(open_log(disk, "feed"), 1, 2, 3)
    disk.crash("kept", "kept")
    open_log(disk, "feed").close()
    skip_ahead(disk, "feed")
    log = open_log(disk, "feed")
    publish(log, 4)
    assert damage(log.reader()) == []
    assert [first for first, _ in missing(log.reader(), "restore")] == [END + 1]


def test_it_is_said_that_it_is_a_restored_one_by_the_writer_that_takes_it_up() -> None:
    disk = copied()
    for restored in (True, False):
        log = open_log(disk, "feed")
        assert log.recovered.restored == restored
        log.close()


def test_it_is_taken_up_once() -> None:
    disk = copied()
    open_log(disk, "feed").close()
    assert not disk.exists(f"feed/{SKIP}")
    log = open_log(disk, "feed")
    assert publish(log, 4) == LOST[1] + 1
    assert missing(log.reader(), "restore") == [LOST]


def test_retention_goes_on_behind_it() -> None:
    retention = Retention(max_age_us=None, max_bytes=0)
    log = open_log(copied(), "feed", LogConfig(SMALL.segment_bytes, retention))
    for number in range(4, 14):
        publish(log, number)
    tidy(log)
    assert log.reader().start() > LOST[1] + 1
    assert log.reader().read(Marker(LINEAGE, END)) == Missing(
        END + 1, log.reader().start() - 1, "retention"
    )


def test_a_marker_from_before_it_still_holds_what_its_reader_has_to_be_told() -> None:
    retention = Retention(max_age_us=None, max_bytes=0)
    log = open_log(copied(), "feed", LogConfig(SMALL.segment_bytes, retention))
    log.set_marker("bridge", Marker(LINEAGE, 2))
    for number in range(4, 14):
        publish(log, number)
    tidy(log)
    assert missing(log.reader(), "restore", after=2) == [LOST]
    assert [update.version for update in contents(log.reader(), after=2).values()] == [
        *range(3, 14)
    ]
    log.set_marker("bridge", Marker(LINEAGE, log.reader().end()))
    tidy(log)
    assert log.reader().start() > LOST[1]


@pytest.mark.parametrize("names", FATES_OF_NAMES)
@pytest.mark.parametrize("data", FATES)
def test_a_power_cut_at_any_step_of_taking_it_up_changes_nothing(data: Fate, names: Fate) -> None:
    taken_up = False
    for step in itertools.count():
        disk = copied()
        disk.cut_before_step = disk.steps + step
        try:
            open_log(disk, "feed")
            taken_up = True
        except PowerCut:
            pass
        disk.crash(data, names)
        check_skipped(open_log(disk, "feed"))
        if taken_up:
            break
    assert step > 5


@pytest.mark.parametrize("names", FATES_OF_NAMES)
def test_a_power_cut_that_brings_it_back_changes_nothing(names: Fate) -> None:
    disk = copied()
    log = open_log(disk, "feed")
    first = publish(log, 4)
    disk.crash("kept", names)
    log = open_log(disk, "feed")
    assert LOST[1] < first < publish(log, 5) < LOST[1] + DISTANCE
    assert missing(log.reader(), "restore") == [LOST]
    assert len(contents(log.reader())) == 5


def test_a_power_cut_while_it_is_put_down_leaves_it_or_the_feed_as_it_was() -> None:
    whole = copied()
    for step, names in itertools.product(range(5), FATES_OF_NAMES):
        disk = whole.copy()
        disk.remove(f"feed/{SKIP}")
        disk.sync_directory("feed")
        disk.cut_before_step = disk.steps + step
        with pytest.raises(PowerCut):
            skip_ahead(disk, "feed")
        disk.crash("torn", names)
        if disk.exists(f"feed/{SKIP}"):
            check_skipped(open_log(disk, "feed"))
        else:
            assert publish(open_log(disk, "feed"), 4) == END + 1


def test_with_any_bit_of_it_flipped_it_is_still_taken_up() -> None:
    whole = copied()
    for bit in range(whole.size(f"feed/{SKIP}") * 8):
        disk = whole.copy()
        disk.flip(f"feed/{SKIP}", bit)
        (problem,) = (found for checked in verify(disk, "feed") for found in checked.problems)
        assert problem.file == SKIP
        check_skipped(open_log(disk, "feed"))


def test_repairing_a_damaged_one_is_taking_it_up() -> None:
    disk = copied()
    disk.flip(f"feed/{SKIP}", 30)
    assert repair(disk, "feed", now_us=1) == [f"skip: taken up; it goes on after offset {LOST[1]}"]
    assert not disk.exists(f"feed/{SKIP}")
    check_skipped(open_log(disk, "feed"))


def test_a_copy_of_a_copy_uses_no_offset_that_the_first_may_have_used() -> None:
    first = copied()
    second = first.copy()
    skip_ahead(second, "feed")
    offset = publish(open_log(second, "feed"), 4)
    assert offset > publish(open_log(first, "feed"), 4) + DISTANCE // 2


def test_one_of_another_history_is_ignored_and_removed() -> None:
    disk = copied()
    write_record(disk, f"feed/{SKIP}", Marker(LINEAGE + 1, LOST[1]))
    log = open_log(disk, "feed")
    assert publish(log, 4) == END + 1
    assert not disk.exists(f"feed/{SKIP}")


class TwoWriters(SimulatedDisk):
    """The first pauses just before it starts its segment, and goes on before a chosen look of the
    second at the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.paused = Event()
        self.go_on = Event()
        self.first = Thread(target=open_log, args=(self, "feed"), daemon=True)
        self.looks: int | None = None

    def create(self, path: str) -> SimulatedFile:
        if current_thread() is self.first and path.endswith(".log.tmp"):
            self.paused.set()
            self.go_on.wait()
        return super().create(path)

    def read(self, path: str, position: int, size: int) -> bytes:
        self._look()
        return super().read(path, position, size)

    def list(self, directory: str) -> list[str]:
        self._look()
        return super().list(directory)

    def _look(self) -> None:
        if current_thread() is self.first or self.looks is None:
            return
        if self.looks == 0:
            self.go_on.set()
            self.first.join()
        self.looks -= 1


def test_two_writers_that_take_it_up_at_the_same_time_do_not_lose_it_between_them() -> None:
    for looks in itertools.count():
        disk = TwoWriters()
        copied(disk)
        disk.first.start()
        disk.paused.wait()
        disk.looks = looks
        log = open_log(disk, "feed", takeover=True)
        passed, disk.looks = disk.looks < 0, None
        disk.go_on.set()
        disk.first.join()
        check_skipped(log)
        log.close()
        assert missing(open_log(disk, "feed").reader(), "restore") == [LOST]
        if not passed:
            break
    assert looks > 5
