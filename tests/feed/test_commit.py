"""Many publishers, one thread, one sync."""

import asyncio
import errno
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

import pytest
from benchmarks.awaited import AwaitedCommit
from tests.feed.scenes import LINEAGE, contents, open_log, update, updates

from roskva.answer import answer_of
from roskva.disk import RealDisk
from roskva.errors import Fenced, Overloaded, StorageUnavailable, Unavailable
from roskva.feed.base import Committed, Marker
from roskva.feed.commit import Committer
from roskva.feed.log import MAX_GROUP_ROWS, LogConfig
from roskva.feed.reader import LogReader
from roskva.simulation.disk import Operation, SimulatedDisk

STEPS_PER_COMMIT = 3  # write, sync, end word


class WatchedDisk(SimulatedDisk):
    """Knows which threads have changed it, and can hold them up at a sync."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.at_sync: Callable[[], object] | None = None

    def _step(self, operation: Operation) -> None:
        self.threads.add(threading.get_ident())
        if operation == "sync":
            assert self.may_sync.wait(timeout=30)
            if self.at_sync is not None:
                self.at_sync()
        super()._step(operation)


@pytest.fixture
def disk() -> WatchedDisk:
    return WatchedDisk()


Scene = Callable[[AwaitedCommit], Coroutine[None, None, None]]


def play(
    disk: WatchedDisk, scene: Scene, on_commit: Callable[[Committed], None] = lambda _: None
) -> None:
    async def main() -> None:
        feed = AwaitedCommit(open_log(disk, "feed", LogConfig()), Committer(), on_commit=on_commit)
        try:
            await scene(feed)
        finally:
            disk.may_sync.set()
            await feed.close()

    asyncio.run(main())


def versions(disk: SimulatedDisk) -> list[int]:
    return [found.version for found in contents(LogReader(disk, "feed")).values()]


def test_every_publisher_is_told_its_own_offset(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        offsets = await asyncio.gather(*(feed.publish(updates(n, n)) for n in range(1, 51)))
        found = contents(LogReader(disk, "feed"))
        assert [found[offset].version for offset in offsets] == list(range(1, 51))

    play(disk, scene)


def test_whoever_waits_while_the_disk_is_busy_shares_the_next_sync(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        before = disk.steps
        disk.may_sync.clear()
        waiting = [asyncio.ensure_future(feed.publish(updates(n))) for n in range(1, 101)]
        await asyncio.sleep(0)
        disk.may_sync.set()
        await asyncio.gather(*waiting)
        assert disk.steps - before <= 2 * STEPS_PER_COMMIT

    play(disk, scene)


def test_the_event_loop_never_touches_the_disk(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        disk.threads.clear()
        await feed.publish(updates(1))
        await answer_of(partial(feed.set_marker, "bridge", Marker(LINEAGE, 1)))
        assert disk.threads
        assert threading.get_ident() not in disk.threads

    play(disk, scene)


def test_nobody_is_answered_before_the_sync(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        disk.may_sync.clear()
        publish = asyncio.ensure_future(feed.publish(updates(1)))
        done, _ = await asyncio.wait([publish], timeout=0.05)
        assert not done
        disk.may_sync.set()
        assert await publish == 1

    play(disk, scene)


def test_groups_are_handed_on_in_order_and_before_their_publishers_know(
    disk: WatchedDisk,
) -> None:
    groups: list[Committed] = []

    async def scene(feed: AwaitedCommit) -> None:
        for number in range(1, 6):
            offset = await feed.publish(updates(number))
            assert groups[-1].last == offset

    play(disk, scene, groups.append)
    assert [(group.first, group.last) for group in groups] == [(n, n) for n in range(1, 6)]


def test_a_failed_sync_is_told_to_its_group_and_to_nobody_else(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        await feed.publish(updates(1))
        disk.fail("sync", errno.EIO)
        with pytest.raises(StorageUnavailable):
            await feed.publish(updates(2))
        await feed.publish(updates(3))

    play(disk, scene)
    assert versions(disk) == [1, 3]


def test_a_publisher_that_gave_up_does_not_disturb_the_others(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        disk.may_sync.clear()
        impatient = asyncio.ensure_future(feed.publish(updates(1)))
        patient = asyncio.ensure_future(feed.publish(updates(2)))
        await asyncio.sleep(0)
        impatient.cancel()
        disk.may_sync.set()
        assert await patient == 2

    play(disk, scene)


def test_publishers_learn_that_another_writer_took_over(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        await feed.publish(updates(1))
        open_log(disk, "feed", takeover=True)
        for number in (2, 3):
            with pytest.raises(Fenced):
                await feed.publish(updates(number))

    play(disk, scene)


def test_too_many_waiting_updates_are_refused(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        disk.may_sync.clear()
        waiting = asyncio.ensure_future(feed.publish([update(1)] * MAX_GROUP_ROWS))
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await feed.publish(updates(2))
        disk.may_sync.set()
        await waiting
        await feed.publish(updates(2))

    play(disk, scene)


def test_closing_commits_what_was_published_and_refuses_the_rest(disk: WatchedDisk) -> None:
    async def scene(feed: AwaitedCommit) -> None:
        waiting = [asyncio.ensure_future(feed.publish(updates(n))) for n in range(1, 11)]
        await asyncio.sleep(0)
        await feed.close()
        assert await asyncio.gather(*waiting) == list(range(1, 11))
        with pytest.raises(Unavailable):
            await feed.publish(updates(11))

    play(disk, scene)
    assert versions(disk) == list(range(1, 11))


def play_two(
    disk: WatchedDisk, scene: Callable[[AwaitedCommit, AwaitedCommit], Coroutine[None, None, None]]
) -> None:
    async def main() -> None:
        committer = Committer()
        one = AwaitedCommit(open_log(disk, "one"), committer)
        other = AwaitedCommit(open_log(disk, "other"), committer)
        try:
            await scene(one, other)
        finally:
            disk.may_sync.set()
            await one.close()
            await other.close()

    asyncio.run(main())


def test_feeds_of_one_round_are_synced_side_by_side(disk: WatchedDisk) -> None:
    async def scene(one: AwaitedCommit, other: AwaitedCommit) -> None:
        both = threading.Barrier(2)
        disk.at_sync = lambda: both.wait(timeout=30)
        offsets = await asyncio.gather(one.publish(updates(1)), other.publish(updates(2)))
        assert list(offsets) == [1, 1]
        disk.at_sync = None

    play_two(disk, scene)


def test_a_feed_that_fails_does_not_fail_the_others_of_its_round(disk: WatchedDisk) -> None:
    async def scene(one: AwaitedCommit, other: AwaitedCommit) -> None:
        open_log(disk, "other", takeover=True)
        offset, error = await asyncio.gather(
            one.publish(updates(1)), other.publish(updates(2)), return_exceptions=True
        )
        assert offset == 1
        assert isinstance(error, Fenced)

    play_two(disk, scene)


def test_publishers_of_one_feed_are_answered_whatever_another_does_with_its_group(
    disk: WatchedDisk,
) -> None:
    def fail(committed: Committed) -> None:
        raise RuntimeError("this one does not know what to do with it")

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
        committer = Committer()
        one = AwaitedCommit(open_log(disk, "one"), committer, on_commit=fail)
        other = AwaitedCommit(open_log(disk, "other"), committer)
        unanswered = asyncio.ensure_future(one.publish(updates(1)))
        assert await other.publish(updates(2)) == 1
        unanswered.cancel()
        await one.close()
        await other.close()

    asyncio.run(main())


def test_the_thread_ends_with_its_last_feed(disk: WatchedDisk) -> None:
    async def scene(one: AwaitedCommit, other: AwaitedCommit) -> None:
        await asyncio.gather(one.publish(updates(1)), other.publish(updates(2)))
        await one.close()
        assert await other.publish(updates(3)) == 2

    play_two(disk, scene)
    assert not any(thread.name.startswith("roskva-") for thread in threading.enumerate())


def test_a_busy_feed_is_tidied_all_the_same(tmp_path: Path) -> None:
    directory = str(tmp_path / "feed")

    async def main() -> int:
        log = open_log(RealDisk(), directory)
        feed = AwaitedCommit(log, Committer(tidy_every_s=0))
        number = 0
        while not any(segment.header.rewritten for segment in log.reader().segments()):
            number += 1
            await feed.publish(updates(number))
        await feed.close()
        return number

    count = asyncio.run(main())
    found = contents(LogReader(RealDisk(), directory)).values()
    assert [update.version for update in found] == list(range(1, count + 1))
