"""What takes the disk, and when a limit is reached if it goes on so."""

from pathlib import Path

import pytest

from roskva.server.space import DiskSpace, FreeSpace
from roskva.server.usage import DiskUsage, parts_of, reached_in

HOUR_S = 3600.0


@pytest.mark.parametrize(
    ("limit", "grown", "seconds"),
    [
        (100, [], None),
        (100, [(0.0, 10)], None),
        (100, [(0.0, 10), (HOUR_S, 40)], 2 * HOUR_S),
        (100, [(0.0, 10), (1.0, 40)], None),  # too early to say
        (100, [(0.0, 40), (HOUR_S, 40)], None),
        (100, [(0.0, 40), (HOUR_S, 10)], None),
        (100, [(0.0, 90), (HOUR_S, 100)], 0.0),
    ],
)
def test_a_limit_is_reached_at_the_rate_so_far(
    limit: int, grown: list[tuple[float, int]], seconds: float | None
) -> None:
    assert reached_in(limit, grown) == seconds


def test_every_file_counts_for_the_part_that_it_belongs_to(tmp_path: Path) -> None:
    for name in (
        *("shard-00/feed/1.log", "shard-01/feed/markers/x", "shard-00/store/1.sst"),
        *("shard-00/meta", "meta", "trace/node/1.log", "pipeline/x/y", "jobs/audit/found"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes(4096))
    found = parts_of(tmp_path)
    assert found["feed"] == 2 * found["store"] > 0
    assert found["trace"] == found["pipeline"] == found["store"]
    assert found["other"] == 3 * found["store"]


def test_of_what_is_not_measured_yet_nothing_is_foretold(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path, 100, lambda _: FreeSpace(500, 1000))
    now = DiskUsage(tmp_path, space, 250).now()
    assert (now.total, now.free, now.floor, now.feed_cap) == (1000, 500, 100, 250)
    assert now.feed_cap_in_s is now.floor_in_s is None
