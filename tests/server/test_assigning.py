"""Versions that a shard assigns, and the limit on disk that they stay below."""

import asyncio
import threading
import time
from functools import partial

import pytest
from tests.loops import in_loop

from roskva.answer import answer_of
from roskva.errors import RoskvaError, StorageUnavailable
from roskva.server.assigning import Assigning
from roskva.store.base import Batch
from roskva.store.memory import MemoryStore
from roskva.store.worker import StoreWorker

AN_HOUR_US = 3600 * 10**6


class Disk(MemoryStore):
    """It can be held up, or fail."""

    def __init__(self) -> None:
        super().__init__()
        self.may_write = threading.Event()
        self.may_write.set()
        self.writes = 0
        self.error: RoskvaError | None = None

    def write(self, batch: Batch, *, sync: bool = False) -> None:
        assert self.may_write.wait(timeout=30)
        if self.error is not None:
            raise self.error
        self.writes += 1
        super().write(batch, sync=sync)


def taking(versions: Assigning, count: int) -> "asyncio.Future[range]":
    return asyncio.ensure_future(answer_of(partial(versions.take, count)))


@in_loop
async def test_nothing_is_assigned_above_a_limit_that_is_not_on_disk() -> None:
    disk = Disk()
    worker = StoreWorker(disk, "store")
    versions = Assigning(worker, 0)
    disk.may_write.clear()
    waiting = [taking(versions, count) for count in (2, 3)]
    await asyncio.sleep(0)
    assert not any(each.done() for each in waiting)
    disk.may_write.set()
    first, second = await asyncio.gather(*waiting)
    assert (len(first), len(second), disk.writes) == (2, 3, 1)
    assert second[0] > first[-1]
    disk.may_write.clear()
    at_once: list[range | RoskvaError] = []
    versions.take(1, at_once.append)
    assert len(at_once) == 1
    disk.may_write.set()
    await worker.close()


@in_loop
async def test_versions_go_on_above_the_limit_of_before_whatever_the_clock_says() -> None:
    worker = StoreWorker(Disk(), "store")
    limit = time.time_ns() // 1000 + AN_HOUR_US
    assert (await taking(Assigning(worker, limit), 1))[0] > limit
    await worker.close()


@in_loop
async def test_everybody_who_waits_learns_that_the_disk_failed_and_the_next_may_succeed() -> None:
    disk = Disk()
    worker = StoreWorker(disk, "store")
    versions = Assigning(worker, 0)
    disk.error = StorageUnavailable("no space")
    for failed in [taking(versions, 1) for _ in range(2)]:
        with pytest.raises(StorageUnavailable):
            await failed
    disk.error = None
    assert len(await taking(versions, 1)) == 1
    await worker.close()
