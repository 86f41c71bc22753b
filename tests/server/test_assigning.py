"""Versions that a shard assigns, and the limit on disk that they stay below."""

import asyncio
import time

from tests.serving.loops import in_loop

from roskva.errors import RoskvaError, StorageUnavailable
from roskva.server.assigning import Assigning

AN_HOUR_US = 3600 * 10**6


class Disk:
    """A store that writes when it is told to."""

    def __init__(self) -> None:
        self.writes: list[asyncio.Future[None]] = []

    def write(self, *batches: object) -> "asyncio.Future[None]":
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]

    async def finish(self, error: Exception | None = None) -> None:
        write = self.writes.pop(0)
        if error is None:
            write.set_result(None)
        else:
            write.set_exception(error)
        await asyncio.sleep(0)


def assigning(disk: Disk, limit: int) -> Assigning:
    return Assigning(disk, limit)  # type: ignore[arg-type]  # it only writes


@in_loop
async def test_nothing_is_assigned_above_a_limit_that_is_not_on_disk() -> None:
    disk, taken = Disk(), list[range | RoskvaError]()
    versions = assigning(disk, 0)
    for count in (2, 3):
        versions.take(count, taken.append)
    assert (taken, len(disk.writes)) == ([], 1)
    await disk.finish()
    first, second = taken
    assert isinstance(first, range)
    assert isinstance(second, range)
    assert (len(first), len(second)) == (2, 3)
    assert second[0] > first[-1] >= time.time_ns() // 1000 - 10**7
    versions.take(1, taken.append)
    assert (len(taken), disk.writes) == (3, [])


@in_loop
async def test_versions_go_on_above_the_limit_of_before_whatever_the_clock_says() -> None:
    disk, taken = Disk(), list[range | RoskvaError]()
    limit = time.time_ns() // 1000 + AN_HOUR_US
    assigning(disk, limit).take(1, taken.append)
    await disk.finish()
    (found,) = taken
    assert isinstance(found, range)
    assert found[0] > limit


@in_loop
async def test_everybody_who_waits_learns_that_the_disk_failed_and_the_next_may_succeed() -> None:
    disk, taken = Disk(), list[range | RoskvaError]()
    versions = assigning(disk, 0)
    for _ in range(2):
        versions.take(1, taken.append)
    error = StorageUnavailable("no space")
    await disk.finish(error)
    assert taken == [error, error]
    versions.take(1, taken.append)
    await disk.finish()
    assert isinstance(taken[-1], range)
