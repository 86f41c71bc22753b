"""Every bit of a small feed is flipped in turn."""

from collections.abc import Iterable

import pytest
from tests.feed.scenes import LINEAGE, contents, damage, open_log, publish, tidy

from roskva.feed.base import Marker
from roskva.feed.check import Problem, verify
from roskva.feed.reader import LogReader
from roskva.feed.segment import FRAMES_AT
from roskva.simulation.disk import SimulatedDisk

FRAME_HEADER_BYTES = 48
BODY_STRIDE_BITS = 61  # prime, so that over many frames every position of a byte gets its turn


def small_feed() -> SimulatedDisk:
    """A rewritten segment, one as it was written, one that its writer never closed; a marker."""
    disk = SimulatedDisk()
    log = open_log(disk, "feed")
    publish(log, 1, 2)
    publish(log, 3)
    publish(log, 4)
    publish(log, 5)
    tidy(log)
    log.close()
    log = open_log(disk, "feed")
    publish(log, 6)
    publish(log, 7)
    log.set_marker("bridge", Marker(LINEAGE, 2))
    disk.crash("kept", "kept")
    return disk


FEED = small_feed()
UPDATES = contents(LogReader(FEED, "feed"))
LARGEST_FRAME = 4


def files() -> list[str]:
    names = [name for name in FEED.list("feed") if name != "markers"]
    return [*(f"feed/{name}" for name in names if FEED.size(f"feed/{name}")), "feed/markers/bridge"]


def check_flip(path: str, bit: int) -> None:
    FEED.flip(path, bit)
    try:
        lost = check_reading(FEED)
        problems = [problem for checked in verify(FEED, "feed") for problem in checked.problems]
        assert problems, "nobody noticed"
        assert lost == offsets_of(problems)
        check_writing(FEED.copy(), lost)
    finally:
        FEED.flip(path, bit)


def check_reading(disk: SimulatedDisk) -> set[int]:
    """Everything is there but, at most, one frame, and that is announced."""
    reader = LogReader(disk, "feed")
    found = contents(reader)
    lost = {offset for first, last in damage(reader) for offset in range(first, last + 1)}
    assert found.items() <= UPDATES.items()
    assert UPDATES.keys() - found.keys() == lost
    assert len(lost) <= LARGEST_FRAME
    return lost


def check_writing(disk: SimulatedDisk, lost: set[int]) -> None:
    """A writer opens it, loses no more, hides no damage, and goes on."""
    log = open_log(disk, "feed")
    tidy(log)
    assert check_reading(disk) == lost
    assert publish(log, 8) > max(UPDATES)
    assert contents(log.reader(), after=max(UPDATES))


def offsets_of(problems: Iterable[Problem]) -> set[int]:
    ranges = [problem.lost for problem in problems if problem.lost]
    return {offset for first, last in ranges for offset in range(first, last + 1)}


def bits_of(path: str, stride: int) -> Iterable[int]:
    size = FEED.size(path)
    if not path.endswith(".log"):
        return range(size * 8)
    dense = FRAMES_AT + FRAME_HEADER_BYTES
    return [*range(dense * 8), *range(dense * 8, size * 8, stride)]


@pytest.mark.parametrize("path", files())
def test_a_flipped_bit_is_noticed_and_costs_at_most_its_frame(path: str) -> None:
    for bit in bits_of(path, BODY_STRIDE_BITS):
        check_flip(path, bit)


@pytest.mark.verify
@pytest.mark.parametrize("path", files())
def test_every_flipped_bit_is_noticed_and_costs_at_most_its_frame(path: str) -> None:
    for bit in bits_of(path, 1):
        check_flip(path, bit)


def test_the_feed_whose_bits_are_flipped_has_every_kind_of_file() -> None:
    segments = LogReader(FEED, "feed").segments()
    assert [segment.header.rewritten for segment in segments] == [True, False, False]
    assert len(UPDATES) == 7
    assert not [p for checked in verify(FEED, "feed") for p in checked.problems]


def test_two_lost_copies_of_a_header_cost_no_frame() -> None:
    disk = small_feed()
    path = files()[1]
    disk.flip(path, 100)
    disk.flip(path, 612)
    assert contents(LogReader(disk, "feed")) == UPDATES
