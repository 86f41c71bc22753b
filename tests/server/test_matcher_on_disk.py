"""What a shard promises across crashes, loss and damage, on a real RocksDB and a real feed.

The same cases without a disk are in tests/core; what backups make of 71 and 72 is in
test_backup.py, what the store alone makes of 78 in tests/store/test_rows.py.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.server.history import KEEP_A_WEEK, NOW_US
from tests.server.running import RunningShard, put_back

from roskva.core.effects import Applied, LoadObjects, ObjectRow, Persist, ReadFeed
from roskva.errors import Fenced
from roskva.feed.segment import RESERVED
from roskva.feed.upkeep import Retention
from roskva.model import NO_VERSION, Update
from roskva.server.backup import back_up, restore
from roskva.server.directory import DataDirectory
from roskva.wire.links import (
    OpenSession,
    Registered,
    RowRefused,
    RowWritten,
    SessionOpened,
    WriteRow,
)

X = "app/x"
Y = "app/y"
CLIENT = bytes(16)
ONE_SEGMENT = 64 << 20
Start = Callable[..., RunningShard]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a shard, or one from what another has left; all are stopped in the end."""
    started: list[RunningShard] = []

    def start(
        path: Path = tmp_path / "shard", segment_bytes: int = 1, retention: Retention = KEEP_A_WEEK
    ) -> RunningShard:
        path.mkdir(exist_ok=True)
        started.append(RunningShard(path, segment_bytes=segment_bytes, retention=retention))
        return started[-1]

    yield start
    for shard in started:
        shard.stop()


def go_beyond_a_snapshot(shard: RunningShard, snapshot: Path) -> None:
    """X at 3 is in the snapshot of the store; X at 5 and Y at 1 came after it."""
    shard.publish(Update(X, 1), Update(X, 2))
    shard.publish(Update(X, 3))
    shard.run()
    shard.store.checkpoint(snapshot)
    shard.publish(Update(X, 4), Update(X, 5))
    shard.publish(Update(Y, 1))
    shard.run()


@pytest.mark.parametrize("end", [RunningShard.stop, RunningShard.crash])
def test_c71_over_an_older_store_it_catches_up_and_nobody_is_told_unknown(
    start: Start, tmp_path: Path, end: Callable[[RunningShard], Path]
) -> None:
    before = start()
    go_beyond_a_snapshot(before, tmp_path / "snapshot")
    shard = start(put_back(tmp_path / "snapshot", end(before)))
    assert shard.found.applied == 4, "the epoch's record, and three updates"
    shard.connect(X, Y)
    matcher, load = shard.take(LoadObjects)
    shard.step(matcher, shard.answer_to(load))
    assert shard.told(X) == [], "what it has may be older than what clients were told"
    shard.run()
    assert shard.told(X) == [(5, before.epoch())]
    assert shard.told(Y) == [(1, before.epoch())]
    assert shard.applied_on_disk() == 7


def lose_the_range(shard: RunningShard) -> Path:
    while shard.log.tidy(NOW_US):
        pass
    return shard.stop()


def lose_the_feed(shard: RunningShard) -> Path:
    shutil.rmtree(shard.stop() / "feed")
    return shard.path


def lose_the_end_of_the_feed(shard: RunningShard) -> Path:
    """An older copy of it than the store."""
    for segment in sorted((shard.stop() / "feed").glob("*.log"))[1:]:
        segment.unlink()
    return shard.path


@pytest.mark.parametrize("lose", [lose_the_range, lose_the_feed, lose_the_end_of_the_feed])
def test_c72_if_the_range_is_gone_there_is_one_new_epoch_and_everybody_is_told(
    start: Start, tmp_path: Path, lose: Callable[[RunningShard], Path]
) -> None:
    before = start(retention=Retention(max_bytes=0))
    go_beyond_a_snapshot(before, tmp_path / "snapshot")
    shard = start(put_back(tmp_path / "snapshot", lose(before)))
    shard.connect(X, Y)
    shard.run()
    assert shard.found.epoch == before.matcher.epoch != shard.matcher.epoch
    assert shard.matcher.counters["epochs"] == 1
    for key in (X, Y):
        assert [epoch for _, epoch in shard.told(key)] == [shard.epoch()]
    again = start(shard.crash())
    again.run()
    assert again.matcher.epoch == shard.matcher.epoch
    again.publish(Update(X, 6))
    again.run()
    assert again.objects(X)[X].version == 6


def test_a_restored_shard_begins_one_new_epoch_and_goes_on(start: Start, tmp_path: Path) -> None:
    data = DataDirectory.open_or_create(tmp_path / "data", 1)
    with data.own(0) as owned:
        before = start(owned.path)
        before.publish(Update(X, 1))
        before.run()
        before.stop()
    back_up(data, tmp_path / "backup", NOW_US)
    restore(tmp_path / "backup", tmp_path / "new")
    shard = start(tmp_path / "new" / "shard-00")
    shard.connect(X)
    shard.run()
    assert [epoch for _, epoch in shard.told(X)] == [shard.epoch()]
    assert shard.epoch() != before.epoch()
    shard.publish(Update(X, 2))
    assert shard.told(X)[-1] == (2, shard.epoch())
    again = start(shard.crash())
    again.connect(X)
    again.run()
    assert again.told(X) == [(2, shard.epoch())]


def test_c77_a_version_not_yet_on_disk_is_the_answer_to_a_new_interest(start: Start) -> None:
    shard = start()
    shard.publish(Update(X, 5), Update(Y, 1))
    matcher, being_written = shard.take(Persist)
    shard.publish(Update(X, 6))
    shard.connect(X, Y)
    shard.run()
    assert shard.objects(X, Y) == {X: ObjectRow(), Y: ObjectRow()}
    assert shard.told(X) == [(6, shard.epoch())]
    assert shard.told(Y) == [(1, shard.epoch())]
    shard.step(matcher, shard.answer_to(being_written))
    shard.run()
    assert shard.objects(X)[X].version == 6


def test_c77_a_load_that_returns_late_never_hides_a_newer_version(start: Start) -> None:
    shard = start()
    shard.publish(Update(X, 5))
    shard.run()
    shard.connect(X)
    matcher, load = shard.take(LoadObjects)
    read = shard.answer_to(load)
    shard.publish(Update(X, 9))
    shard.run()
    assert shard.objects(X)[X].version == 9
    shard.step(matcher, read)
    assert shard.told(X) == [(9, shard.epoch())]


def test_c77_a_load_that_returns_late_never_undoes_a_reset(start: Start) -> None:
    shard = start()
    shard.publish(Update(X, 5))
    shard.run()
    shard.connect(X)
    matcher, load = shard.take(LoadObjects)
    read = shard.answer_to(load)
    shard.publish(Update(X, 7, reset=True))
    shard.run()
    shard.step(matcher, read)
    assert shard.told(X) == [(NO_VERSION, shard.epoch(mark=7))]
    again = start(shard.crash())
    again.connect(X)
    again.run()
    assert again.told(X) == [(NO_VERSION, shard.epoch(mark=7))]


def open_session(shard: RunningShard, link: str) -> int:
    shard.receive(OpenSession(1, CLIENT), link)
    shard.run()
    opened = shard.sent[-1]
    assert isinstance(opened, SessionOpened)
    return opened.session


def write(session: int, acked: int, request: int = 2) -> WriteRow:
    return WriteRow(request, CLIENT, session, [Registered(X, acked, 1)], application="phone")


def test_c78_a_delayed_write_of_a_fenced_session_changes_nothing(start: Start) -> None:
    shard = start()
    old = open_session(shard, "old")
    shard.receive(write(old, 5), "old")
    shard.run()
    new = open_session(shard, "new")
    before = shard.client_row(CLIENT)
    assert before is not None
    assert before.session == new
    shard.receive(write(old, 3), "old")
    shard.run()
    assert shard.sent[-1] == RowRefused(CLIENT, old, Fenced.code)
    assert shard.client_row(CLIENT) == before


def test_c78_nor_does_it_after_a_crash_when_only_the_row_remembers(start: Start) -> None:
    shard = start()
    old = open_session(shard, "old")
    shard.receive(write(old, 5), "old")
    new = open_session(shard, "new")
    shard.receive(write(new, 8), "new")
    shard.run()
    shard = start(shard.crash())
    before = shard.client_row(CLIENT)
    shard.receive(write(old, 3), "old")
    shard.receive(write(new, 9), "new")
    shard.run()
    assert shard.sent == [RowRefused(CLIENT, old, Fenced.code), RowWritten(2)]
    after = shard.client_row(CLIENT)
    assert before is not None
    assert after is not None
    assert [cell.acked for cell in (*before.registered, *after.registered)] == [8, 9]
    assert open_session(shard, "newest") > new


def test_c78_nor_if_it_was_accepted_and_reaches_the_disk_last(start: Start) -> None:
    shard = start()
    old = open_session(shard, "old")
    shard.receive(write(old, 5), "old")
    shard.run()
    shard.receive(write(old, 6), "old")
    rows, late = shard.take(Persist)
    new = open_session(shard, "new")
    shard.receive(write(new, 8), "new")
    shard.run()
    before = shard.client_row(CLIENT)
    shard.step(rows, shard.answer_to(late))
    assert shard.client_row(CLIENT) == before


def test_c79_what_never_reached_the_disk_before_a_crash_is_delivered_by_catching_up(
    start: Start,
) -> None:
    shard = start()
    shard.connect(X)
    shard.publish(Update(X, 5))
    shard.run()
    covered = shard.reader.end()
    shard.publish(Update(X, 6))
    shard.publish(Update(X, 7))
    assert shard.told(X)[-1] == (7, shard.epoch()), "notifying does not wait for the disk"

    again = start(shard.crash())
    assert again.found.applied == covered
    assert again.objects(X)[X].version == 5
    again.connect(X)
    again.run()
    assert again.told(X) == [(7, shard.epoch())]
    assert again.objects(X)[X].version == 7


def test_c79_an_answer_to_the_bridge_never_covers_what_is_only_in_memory(start: Start) -> None:
    shard = start()
    ranges = [shard.publish(Update(X, version), fast_path=False) for version in (5, 6, 7)]
    shard.apply(ranges[0], request="first")
    shard.apply(*ranges, request="all")
    assert shard.answered == []
    shard.answer_one()
    assert shard.answered == [Applied("first", shard.log.lineage, 2)]
    shard.apply(*ranges, request="again")
    assert len(shard.answered) == 1

    again = start(shard.crash())
    assert (again.found.applied, again.objects(X)[X].version) == (2, 5)
    again.apply(*ranges, request="again")
    again.run()
    assert again.answered == [Applied("again", again.log.lineage, 4)]
    last = start(again.crash())
    assert (last.found.applied, last.objects(X)[X].version) == (4, 7)


def leave_a_gap(shard: RunningShard) -> None:
    """The fast path loses Y at offset 3 and delivers X at offset 4."""
    shard.connect(X, Y)
    shard.publish(Update(X, 5))
    shard.run()
    shard.publish(Update(Y, 1), fast_path=False)
    shard.publish(Update(X, 6))


def test_c80_a_gap_is_closed_from_the_feed_and_until_then_the_marker_on_disk_stays(
    start: Start,
) -> None:
    shard = start()
    leave_a_gap(shard)
    matcher, reading = shard.take(ReadFeed)
    shard.run()
    assert shard.told(X)[-1] == (6, shard.epoch()), "a newer version is never wrong"
    assert shard.objects(X)[X].version == 6
    assert shard.applied_on_disk() == 2
    shard.step(matcher, shard.answer_to(reading))
    shard.run()
    assert shard.told(Y)[-1] == (1, shard.epoch())
    assert shard.applied_on_disk() == 4


def test_c80_a_gap_is_closed_after_a_crash_as_well(start: Start) -> None:
    shard = start()
    leave_a_gap(shard)
    shard.take(ReadFeed)
    shard.run()
    again = start(shard.crash())
    assert again.found.applied == 2
    again.connect(X, Y)
    again.run()
    assert again.told(X) == [(6, shard.epoch())]
    assert again.told(Y) == [(1, shard.epoch())]
    assert again.applied_on_disk() == 4


def test_c80_the_offsets_that_a_crash_skips_are_no_gap(start: Start) -> None:
    shard = start()
    shard.publish(Update(X, 5))
    shard.run()
    again = start(shard.crash())
    again.run()
    committed = again.publish(Update(X, 6))
    assert committed.base - committed.first >= RESERVED - 1
    again.run()
    assert again.matcher.counters["early"] == 0
    assert again.applied_on_disk() == committed.last


DAMAGED = b"the bytes that are damaged"


def publish_around_damage(shard: RunningShard) -> None:
    """Y at 1 will be damaged; X at 6 comes after it. The matcher hears of neither."""
    shard.connect(X, Y)
    shard.publish(Update(X, 5))
    shard.run()
    shard.publish(Update(Y, 1, payload=DAMAGED), fast_path=False)
    shard.publish(Update(X, 6), fast_path=False)


def flip_a_bit(feed: Path) -> None:
    [segment] = (path for path in feed.glob("*.log") if DAMAGED in path.read_bytes())
    content = segment.read_bytes()
    with segment.open("r+b") as file:
        file.seek(content.index(DAMAGED))
        file.write(bytes([DAMAGED[0] ^ 1]))


@pytest.mark.parametrize("segment_bytes", [1, ONE_SEGMENT])
@pytest.mark.parametrize("found", ["while it runs", "at the next start"])
def test_c72_the_answer_to_a_damaged_range_is_a_new_epoch(
    start: Start, segment_bytes: int, found: str
) -> None:
    shard = before = start(segment_bytes=segment_bytes)
    publish_around_damage(shard)
    epoch = shard.epoch()
    flip_a_bit(shard.path / "feed")
    if found == "at the next start":
        shard = start(before.crash(), segment_bytes=segment_bytes)
        shard.connect(X, Y)
    shard.sent.clear()
    shard.tick_of_the_feed()
    shard.run()
    if found == "while it runs":
        assert shard.sent == [], "it falls silent, and its links are gone"
        shard.connect(X, Y)
        shard.run()
    assert shard.matcher.counters["epochs"] == 1
    assert shard.epoch() != epoch
    assert shard.told(X)[-1] == (6, shard.epoch()), "what comes after the damage is applied"
    assert {epoch for _, epoch in shard.told(Y)} == {shard.epoch()}
    assert shard.applied_on_disk() == shard.reader.end()
    again = start(shard.crash())
    again.run()
    assert again.matcher.epoch == shard.matcher.epoch
    assert again.objects(X)[X].version == 6
