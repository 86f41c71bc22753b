"""The power fails at every single step of a feed's life, in every way the disk can take it."""

import itertools
from typing import get_args

import pytest
from tests.feed.scenes import LINEAGE, SMALL, answers, contents, damage, open_log, tidy, updates

from roskva.feed.base import Batch, Marker
from roskva.feed.log import Log, LogConfig
from roskva.feed.record import read_markers
from roskva.feed.upkeep import Retention
from roskva.model import Update
from roskva.simulation.disk import Fate, PowerCut, SimulatedDisk

FATES: tuple[Fate, ...] = get_args(Fate)
FATES_OF_NAMES = [fate for fate in FATES if fate != "zeroed"]
SECOND_CUTS: list[tuple[Fate, Fate]] = [("lost", "kept"), ("reordered", "torn"), ("zeroed", "lost")]
CONFIG = LogConfig(SMALL.segment_bytes, Retention(max_age_us=None, max_bytes=1200))


class Life:
    """A feed's life, and what its publishers and readers were told while it lasted."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.submitted: dict[int, Update] = {}
        self.acknowledged: dict[int, Update] = {}
        self.seen: dict[int, Update] = {}
        self.offsets_used: set[int] = set()
        self.marker_before = self.marker_after = 0
        self._count = 0

    def run(self) -> None:
        log = open_log(self.disk, "feed", CONFIG)
        self.mark(log)
        for size in (1, 3, 1, 2, 1):
            self.publish(log, size)
        tidy(log)
        self.mark(log)
        for size in (2, 1, 1, 2):
            self.publish(log, size)
        log.close()
        log = open_log(self.disk, "feed", CONFIG)
        self.publish(log, 1)
        self.mark(log)
        tidy(log)
        self.publish(log, 2)

    def publish(self, log: Log, size: int) -> None:
        new = updates(*range(self._count, self._count + size))
        self._count += size
        first = log.append(new)
        batch = dict(zip(range(first, first + size), new, strict=True))
        assert not batch.keys() & self.offsets_used, "an offset was used twice"
        self.offsets_used |= batch.keys()
        self.submitted |= batch
        log.commit(now_us=1)
        self.acknowledged |= batch
        self.look(log)

    def look(self, log: Log) -> None:
        self.seen |= contents(log.reader())

    def mark(self, log: Log) -> None:
        self.marker_after = max(self.acknowledged, default=0)
        log.set_marker("bridge", Marker(LINEAGE, self.marker_after))
        self.marker_before = self.marker_after

    def check(self, log: Log) -> None:
        reader = log.reader()
        found = contents(reader)
        gone = range(1, reader.start())
        assert not damage(reader)
        assert not gone or gone[-1] <= self.marker_after, "retention passed a marker"
        for told in (self.acknowledged, self.seen):
            assert told.items() - gone_from(told, gone) <= found.items()
        # A prefix: what was found is what was submitted, in order, with nothing left out.
        expected = sorted(self.submitted.items() - gone_from(self.submitted, gone))
        assert sorted(found.items()) == expected[: len(found)]
        # The rest was never acknowledged, and must not come back.
        self.submitted = dict(expected[: len(found)])
        marker = read_markers(self.disk, "feed")[0].get("bridge", Marker(LINEAGE, 0)).offset
        assert marker in (self.marker_before, self.marker_after)


def gone_from(told: dict[int, Update], gone: range) -> set[tuple[int, Update]]:
    return {(offset, update) for offset, update in told.items() if offset in gone}


def steps_of_a_life() -> int:
    disk = SimulatedDisk()
    Life(disk).run()
    return disk.steps


def live_until(step: int) -> Life:
    disk = SimulatedDisk()
    disk.cut_before_step = step
    life = Life(disk)
    with pytest.raises(PowerCut):
        life.run()
    return life


@pytest.mark.parametrize("names", FATES_OF_NAMES)
@pytest.mark.parametrize("data", FATES)
def test_a_power_cut_at_any_step_loses_nothing_acknowledged(data: Fate, names: Fate) -> None:
    for step in range(steps_of_a_life()):
        life = live_until(step)
        life.disk.crash(data, names)
        log = open_log(life.disk, "feed", CONFIG)
        life.check(log)
        life.publish(log, 2)
        life.mark(log)
        tidy(log)
        life.check(log)


@pytest.mark.parametrize("second", SECOND_CUTS)
def test_a_second_power_cut_during_recovery_loses_nothing_either(second: tuple[Fate, Fate]) -> None:
    for step in range(0, steps_of_a_life(), 5):
        survive_cuts_all_through_recovery(step, ("torn", "kept"), second)


@pytest.mark.verify
@pytest.mark.parametrize("second", SECOND_CUTS)
@pytest.mark.parametrize("first", list(itertools.product(FATES, FATES_OF_NAMES)))
def test_any_two_power_cuts_in_a_row_lose_nothing(
    first: tuple[Fate, Fate], second: tuple[Fate, Fate]
) -> None:
    for step in range(steps_of_a_life()):
        survive_cuts_all_through_recovery(step, first, second)


def survive_cuts_all_through_recovery(
    step: int, first: tuple[Fate, Fate], second: tuple[Fate, Fate]
) -> None:
    for recovery_step in itertools.count():
        life = live_until(step)
        life.disk.crash(*first)
        life.disk.cut_before_step = life.disk.steps + recovery_step
        try:
            open_log(life.disk, "feed", CONFIG)
            recovered = True
        except PowerCut:
            recovered = False
        life.disk.crash(*second)
        log = open_log(life.disk, "feed", CONFIG)
        life.check(log)
        life.publish(log, 1)
        if recovered:
            return


def test_the_life_that_is_cut_short_contains_everything() -> None:
    """Otherwise the tests above would prove less than they say."""
    disk = SimulatedDisk()
    life = Life(disk)
    life.run()
    reader = open_log(disk, "feed", CONFIG, takeover=True).reader()
    assert reader.start() > 1, "retention removed something"
    assert any(segment.header.rewritten for segment in reader.segments())
    assert any(isinstance(a, Batch) and a.base < a.last for a in answers(reader))
    assert len({segment.header.writer for segment in reader.segments()}) > 1
