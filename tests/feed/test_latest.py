"""The last words that are left of a feed are those that are found one by one."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roskva.feed import latest
from roskva.feed.base import Idle, Marker
from roskva.feed.latest import Latest, read_latest
from roskva.feed.log import Log
from roskva.feed.reader import LogReader
from roskva.model import Update
from roskva.simulation.disk import SimulatedDisk

ROWS = st.lists(st.sampled_from(["app/a", "app/b", "app/c", "app/d", "app/"]), max_size=40)
Entries = list[tuple[int, Update]]


def logged(rows: list[str], commits: list[int]) -> tuple[LogReader, Entries]:
    """A log with these objects, committed in parts of such lengths; `app/` is a reset."""
    disk = SimulatedDisk()
    log = Log.open(disk, "log", lineage=1, now_us=0)
    entries = []
    for offset, row in enumerate(rows, 1):
        payload = None if offset % 3 else row.encode()
        update = Update(row, offset, None, payload, offset, reset=row == "app/")
        log.append([update])
        entries.append((offset, update))
        if offset in commits:
            log.commit(2_000_000 * offset)  # so far apart that frames are read one by one
    log.commit(2_000_000 * len(rows))
    return LogReader(disk, "log"), entries


def one_by_one(entries: Entries) -> Entries:
    found: Entries = []
    run: dict[str, tuple[int, Update]] = {}
    for offset, update in entries:
        if update.reset:
            found += [*run.values(), (offset, update)]
            run = {}
        else:
            run.pop(update.object, None)
            run[update.object] = offset, update
    return found + list(run.values())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(ROWS, st.lists(st.integers(1, 40)), st.integers(1, 12), st.integers(1, 20), st.data())
def test_what_is_left_is_the_last_word_on_each_object_before_each_reset(
    monkeypatch: pytest.MonkeyPatch,
    rows: list[str],
    commits: list[int],
    part: int,
    most: int,
    data: st.DataObject,
) -> None:
    monkeypatch.setattr(latest, "FEW", 0)
    monkeypatch.setattr(latest, "PART", part)
    monkeypatch.setattr(latest, "MOST_ROWS", most)
    reader, entries = logged(rows, commits)
    after = data.draw(st.integers(0, len(rows)))
    end = data.draw(st.integers(after, len(rows)))
    while after < end:
        found = read_latest(reader, Marker(1, after), end)
        assert isinstance(found, Latest)
        there = entries[after : found.last]
        assert found.entries == one_by_one(there)
        assert found.superseded == len(there) - len(found.entries)
        after = found.last


def test_resets_may_be_all_that_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "FEW", 0)
    reader, entries = logged(["app/a", "app/", "app/b", "app/"], [2])
    found = read_latest(reader, Marker(1, 0), 4, resets_only=True)
    assert found == Latest([entries[1], entries[3]], 4, 2)


def test_few_are_as_they_are() -> None:
    reader, entries = logged(["app/a", "app/a", "app/b"], [])
    assert read_latest(reader, Marker(1, 0), 3) == Latest(entries, 3)
    assert read_latest(reader, Marker(1, 3), 3) == Idle(3)


def test_there_is_an_end_to_what_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latest, "FEW", 0)
    monkeypatch.setattr(latest, "PART", 1)
    monkeypatch.setattr(latest, "MOST_KEPT", 3)
    reader, entries = logged(list("abcdefgh"), list(range(40)))
    assert read_latest(reader, Marker(1, 0), 8) == Latest(entries[:3], 3)
    monkeypatch.setattr(latest, "MOST_BYTES", 1)
    assert read_latest(reader, Marker(1, 3), 8) == Latest(entries[3:4], 4)
