"""Which segments may go."""

import pytest
from tests.feed.scenes import LINEAGE

from roskva.errors import BadConfig
from roskva.feed.segment import Header, Segment
from roskva.feed.upkeep import Retention, expired

FIRSTS = (1, 11, 21, 31)
HISTORY = [Segment(f"{n}", Header(LINEAGE, 1, n, n, created_at=n)) for n in FIRSTS]
SIZES = [100] * 4


def gone(retention: Retention, slowest: int | None = None, now_us: int = 100) -> int:
    return expired(HISTORY, SIZES, slowest, retention, now_us)


def test_without_limits_nothing_goes() -> None:
    assert gone(Retention(max_age_us=None)) == 0


def test_the_newest_segment_never_goes() -> None:
    assert gone(Retention(max_age_us=0)) == 3


@pytest.mark.parametrize(("max_bytes", "count"), [(400, 0), (399, 1), (200, 2), (0, 3)])
def test_segments_go_until_the_rest_is_small_enough(max_bytes: int, count: int) -> None:
    assert gone(Retention(max_age_us=None, max_bytes=max_bytes)) == count


@pytest.mark.parametrize(("now_us", "count"), [(11, 0), (61, 0), (62, 1), (72, 2)])
def test_a_segment_is_as_old_as_the_start_of_the_next(now_us: int, count: int) -> None:
    assert gone(Retention(max_age_us=50), now_us=now_us) == count


@pytest.mark.parametrize(("slowest", "count"), [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2)])
def test_a_marker_holds_what_is_after_it(slowest: int, count: int) -> None:
    assert gone(Retention(max_age_us=0), slowest=slowest) == count


@pytest.mark.parametrize(("last_resort_bytes", "count"), [(400, 0), (300, 1), (150, 3)])
def test_the_last_resort_passes_markers(last_resort_bytes: int, count: int) -> None:
    retention = Retention(max_age_us=None, last_resort_bytes=last_resort_bytes)
    assert gone(retention, slowest=0) == count


def test_the_last_resort_lies_beyond_the_limit() -> None:
    with pytest.raises(BadConfig):
        Retention(max_bytes=100, last_resort_bytes=50)
