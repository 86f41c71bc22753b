"""What every feed does, on every disk it can live on."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.feed.scenes import (
    LINEAGE,
    SMALL,
    answers,
    contents,
    open_log,
    publish,
    tidy,
    update,
    updates,
)

from roskva.disk import Disk, RealDisk
from roskva.errors import BadInput, Overloaded
from roskva.feed.base import START, Batch, Foreign, Idle, Marker, Missing
from roskva.feed.check import verify
from roskva.feed.log import MAX_GROUP_ROWS, Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.record import read_markers
from roskva.feed.segment import RESERVED
from roskva.feed.upkeep import Retention
from roskva.model import Update
from roskva.simulation.disk import SimulatedDisk


class Place:
    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory
        self._logs: list[Log] = []

    def open(self, config: LogConfig = SMALL) -> Log:
        log = open_log(self.disk, self.directory, config)
        self._logs.append(log)
        return log

    def close(self) -> None:
        for log in self._logs:
            log.close()

    def reader(self) -> LogReader:
        return LogReader(self.disk, self.directory)


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "real":
        place = Place(RealDisk(), str(tmp_path / "feed"))
    else:
        place = Place(SimulatedDisk(), "feed")
    yield place
    place.close()


def versions(reader: LogReader, after: int = START) -> list[int]:
    return [found.version for found in contents(reader, after).values()]


def test_what_was_committed_is_read_back_field_by_field(place: Place) -> None:
    log = place.open()
    strange = Update("app/ü/☃", 2**63 - 1, "", b"\x00\xff", -1, True)
    log.append([*updates(*range(10)), strange])
    log.commit(now_us=17)
    assert list(contents(log.reader()).values()) == [*updates(*range(10)), strange]


def test_offsets_start_at_one_and_count_every_update(place: Place) -> None:
    log = place.open()
    assert [publish(log, 1, 2, 3), publish(log, 4), publish(log, 5, 6)] == [1, 4, 5]
    assert log.reader().end() == 6


def test_a_commit_says_which_range_it_accounts_for(place: Place) -> None:
    log = place.open()
    log.append(updates(1, 2))
    log.append(updates(3))
    committed = log.commit(now_us=17)
    assert committed is not None
    assert (committed.first, committed.base, committed.last) == (1, 1, 3)
    assert list(committed.updates) == updates(1, 2, 3)
    assert log.commit(now_us=18) is None


def test_nothing_is_visible_before_its_commit(place: Place) -> None:
    log = place.open()
    reader = place.reader()
    log.append(updates(1))
    assert reader.read(Marker(LINEAGE, START)) == Idle(0)
    log.commit(now_us=1)
    assert versions(reader) == [1]


def test_a_reader_goes_on_where_its_marker_stands(place: Place) -> None:
    log = place.open()
    publish(log, *range(1, 11))
    publish(log, *range(11, 21))
    for after in range(20):
        assert versions(log.reader(), after) == list(range(after + 1, 21))


def test_a_reader_that_stays_open_sees_what_is_committed_later(place: Place) -> None:
    log = place.open()
    reader = place.reader()
    for number in range(1, 15):  # through several segments
        publish(log, number)
        assert versions(reader, number - 1) == [number]
        tidy(log)


def test_no_batch_has_more_rows_than_asked_for(place: Place) -> None:
    log = place.open()
    publish(log, *range(1, 11))
    reader = log.reader()
    sizes = []
    after = START
    while isinstance(answer := reader.read(Marker(LINEAGE, after), max_rows=4), Batch):
        assert [u.version for u in answer.updates()] == list(range(answer.base, answer.last + 1))
        sizes.append(answer.rows.num_rows)
        after = answer.last
    assert sizes == [4, 4, 2]


def test_a_marker_beyond_the_end_or_of_another_lineage_is_foreign(place: Place) -> None:
    log = place.open()
    publish(log, 1, 2)
    reader = log.reader()
    assert reader.read(Marker(LINEAGE, 3)) == Foreign(LINEAGE, 2)
    assert reader.read(Marker(LINEAGE + 1, 1)) == Foreign(LINEAGE, 2)
    assert reader.read(Marker(LINEAGE, 2)) == Idle(2)


def test_the_lineage_is_drawn_once(place: Place) -> None:
    place.open().close()
    log = Log.open(place.disk, place.directory, lineage=99, now_us=1)
    assert log.lineage == LINEAGE == place.reader().lineage
    log.close()


def test_a_feed_goes_on_after_it_was_closed(place: Place) -> None:
    for number in range(1, 6):
        log = place.open()
        assert publish(log, number) == number
        log.close()
    assert versions(place.reader()) == [1, 2, 3, 4, 5]


def test_opening_and_closing_leaves_no_files_behind(place: Place) -> None:
    for _ in range(5):
        place.open().close()
    assert len(place.disk.list(place.directory)) == len(["log", "markers", "meta", "writer"])


def test_rewriting_changes_the_frames_and_nothing_else(place: Place) -> None:
    log = place.open()
    for number in range(1, 21):
        publish(log, number)
    before = contents(log.reader())
    small = sum(checked.frames for checked in verify(place.disk, place.directory))
    tidy(log)
    assert contents(log.reader()) == before
    assert sum(checked.frames for checked in verify(place.disk, place.directory)) < small / 2
    assert all(segment.header.rewritten for segment in log.reader().segments()[:-1])
    log.close()
    assert contents(place.open().reader()) == before


def test_a_large_group_is_one_record_batch_and_is_read_alone(place: Place) -> None:
    log = place.open(LogConfig())
    for size in (128, 129, 128, 128):
        log.append(updates(*range(size)))
        log.commit(now_us=1)
    sizes = [batch.rows.num_rows for batch in answers(log.reader()) if isinstance(batch, Batch)]
    assert sizes == [128, 129, 256]


def test_rewritten_batches_have_a_size(place: Place) -> None:
    log = place.open(LogConfig())
    for _ in range(100):
        log.append([Update("app/x", 1)] * 128)
        log.commit(now_us=1)
    log.close()
    log = place.open(LogConfig())
    tidy(log)
    sizes = [batch.rows.num_rows for batch in answers(log.reader()) if isinstance(batch, Batch)]
    assert sum(sizes) == 12_800
    assert max(sizes) <= 4096
    assert len(sizes) <= 5


def test_small_batches_put_together_are_as_old_as_the_newest_of_them(place: Place) -> None:
    log = place.open()
    for number in (1, 2):
        log.append(updates(number))
        log.commit(now_us=10 * number)
    log.close()
    log = place.open()
    for _ in ("as written", "rewritten"):
        batch = log.reader().read(Marker(LINEAGE, START))
        assert isinstance(batch, Batch)
        assert (batch.last, batch.appended_at) == (2, 20)
        tidy(log)


def test_batches_begin_and_end_wherever_they_are_asked_to(place: Place) -> None:
    log, count = place.open(LogConfig()), 0
    for size in (3, 2, 1, 130, 2, 2):
        publish(log, *range(count + 1, count + size + 1))
        count += size
    for after in range(count):
        for most in (1, 2, 4, 5, 1000):
            batch = log.reader().read(Marker(LINEAGE, after), most)
            assert isinstance(batch, Batch)
            assert batch.base == after + 1
            assert batch.rows.num_rows <= most
            versions = [update.version for update in batch.updates()]
            assert versions == list(range(batch.base, batch.last + 1))


def test_a_reader_in_the_middle_of_a_segment_does_not_mind_its_rewriting(place: Place) -> None:
    log = place.open()
    for number in range(1, 21):
        publish(log, number)
    reader = place.reader()
    stopped = [answer.last for answer in itertools.islice(answers(reader), 4)][-1]
    tidy(log)
    assert versions(reader, stopped) == list(range(stopped + 1, 21))


def test_large_commits_are_cut_into_frames(place: Place) -> None:
    log = place.open(LogConfig())
    publish(log, *range(1, 10_001))
    assert [batch.last for batch in answers(log.reader())] == [4096, 8192, 10_000]


def test_more_than_a_commit_can_hold_is_refused(place: Place) -> None:
    log = place.open(LogConfig())
    log.append([update(1)] * MAX_GROUP_ROWS)
    with pytest.raises(Overloaded):
        log.append(updates(2))


def test_a_segment_never_holds_more_offsets_than_it_reserves(place: Place) -> None:
    log = place.open(LogConfig(segment_bytes=1 << 30))
    for _ in range(RESERVED // MAX_GROUP_ROWS + 1):
        log.append([update(1)] * MAX_GROUP_ROWS)
        log.commit(now_us=1)
    first, second = log.reader().segments()
    assert (first.last, second.first) == (RESERVED, RESERVED + 1)


def test_markers_survive_and_can_be_moved(place: Place) -> None:
    log = place.open()
    publish(log, 1, 2)
    log.set_marker("bridge", Marker(LINEAGE, 1))
    log.set_marker("audit", Marker(LINEAGE, 1))
    log.set_marker("bridge", Marker(LINEAGE, 2))
    log.close()
    expected = {"audit": Marker(LINEAGE, 1), "bridge": Marker(LINEAGE, 2)}
    place.open()
    assert read_markers(place.disk, place.directory) == (expected, [])


@pytest.mark.parametrize("name", ["", "a/b", "..", "A", "x.tmp"])
def test_a_marker_needs_a_plain_name(place: Place, name: str) -> None:
    with pytest.raises(BadInput):
        place.open().set_marker(name, Marker(LINEAGE, START))


def test_retention_stops_at_the_slowest_marker(place: Place) -> None:
    log = place.open(LogConfig(SMALL.segment_bytes, Retention(max_age_us=None, max_bytes=0)))
    for number in range(1, 21):
        publish(log, number)
    log.set_marker("fast", Marker(LINEAGE, 20))
    log.set_marker("slow", Marker(LINEAGE, 10))
    tidy(log)
    start = log.reader().start()
    assert 1 < start <= 11
    assert log.reader().read(Marker(LINEAGE, START)) == Missing(1, start - 1, "retention")
    assert versions(log.reader(), 10) == list(range(11, 21))


def test_retention_by_age_keeps_what_is_young(place: Place) -> None:
    log = place.open(LogConfig(SMALL.segment_bytes, Retention(max_age_us=100)))
    for number in range(1, 21):
        log.append(updates(number))
        log.commit(now_us=number * 10)
    tidy(log, now_us=200)
    assert 1 < log.reader().start() <= 10
    assert versions(log.reader(), 10) == list(range(11, 21))


def test_only_the_last_resort_passes_a_marker(place: Place) -> None:
    retention = Retention(max_age_us=None, max_bytes=0, last_resort_bytes=1500)
    log = place.open(LogConfig(SMALL.segment_bytes, retention))
    log.set_marker("gone", Marker(LINEAGE, START))
    for number in range(1, 4):
        publish(log, number)
    tidy(log)
    assert log.reader().start() == 1
    for number in range(4, 31):
        publish(log, number)
    tidy(log)
    assert log.reader().start() > 1


def test_a_missing_feed_is_bad_input(place: Place) -> None:
    place.disk.make_directory(place.directory)
    with pytest.raises(BadInput):
        place.reader()
