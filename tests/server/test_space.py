"""When a disk is almost full, and when it is well again."""

from pathlib import Path

import pytest

from roskva.errors import StorageUnavailable
from roskva.server.space import DiskSpace, FreeSpace

GIB = 1 << 30


class Scripted:
    def __init__(self, free: int, total: int) -> None:
        self.free, self.total = free, total

    def __call__(self, path: Path) -> FreeSpace:
        return FreeSpace(self.free, self.total)


@pytest.mark.parametrize(
    ("total", "setting", "floor"),
    [
        (10 * GIB, None, GIB // 2),
        (1000 * GIB, None, GIB),
        (1000 * GIB, 5 * GIB, 5 * GIB),
        (GIB, 0, 0),
    ],
)
def test_the_floor_is_a_share_of_the_disk_if_it_is_not_set(
    total: int, setting: int | None, floor: int
) -> None:
    assert DiskSpace(Path(), setting, Scripted(total, total)).floor == floor


def test_below_the_floor_it_refuses_until_there_is_somewhat_more() -> None:
    disk = Scripted(101, 1000)
    space = DiskSpace(Path(), 100, disk)
    space.check()
    disk.free = 99
    space.look()
    with pytest.raises(StorageUnavailable):
        space.check()
    disk.free = 105
    space.look()
    assert space.refuses
    disk.free = 111
    space.look()
    space.check()


def test_a_node_that_starts_on_a_full_disk_refuses_at_once() -> None:
    assert DiskSpace(Path(), None, Scripted(0, 1000)).refuses
