"""The store behind its thread: order, durability, and failures that reach whom they concern."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.store.killed import WRITERS, batch_of, check

from roskva.errors import Overloaded, StorageUnavailable
from roskva.store.base import MAX_BATCH, Batch, Cell, Put, Row, Store
from roskva.store.memory import MemoryStore
from roskva.store.rocksdb import RocksStore
from roskva.store.worker import MAX_WAITING, StoreWorker

HERE = {b"": Cell(1, b"")}


def put(row: bytes, timestamp: int = 1) -> Put:
    return Put(row, b"", timestamp, b"")


def read(worker: StoreWorker, rows: list[bytes]) -> "asyncio.Future[list[Row]]":
    return worker.run(lambda store: [store.read(row) for row in rows])


@asynccontextmanager
async def working(store: Store) -> AsyncIterator[StoreWorker]:
    worker = StoreWorker(store)
    yield worker
    await worker.close()


@asynccontextmanager
async def busy(worker: StoreWorker) -> AsyncIterator[None]:
    """While the store's thread is held up, what is asked of it gathers."""
    loop, entered, release = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def hold(_: Store) -> None:
        loop.call_soon_threadsafe(entered.set)
        release.wait()

    holding = worker.run(hold)
    await entered.wait()
    yield
    await asyncio.sleep(0)  # tasks made meanwhile get as far as asking
    release.set()
    await holding


def test_a_write_is_durable_when_it_returns_and_a_read_sees_it(store: Store) -> None:
    async def scenario() -> None:
        async with working(store) as worker:
            await worker.write([put(b"a"), put(b"b")])
            if isinstance(store, MemoryStore):
                store.crash()
            assert await read(worker, [b"a", b"x"]) == [HERE, {}]

    asyncio.run(scenario())


def test_reads_see_the_writes_asked_for_before_them_and_no_later_ones(store: Store) -> None:
    async def scenario() -> None:
        async with working(store) as worker, busy(worker):
            worker.write([put(b"row", 1)])
            first = worker.run(lambda store: store.read_cells([(b"row", b"")]))
            worker.write([put(b"row", 2)])
            second = worker.run(lambda store: store.read_cells([(b"row", b"")]))
        assert (first.result(), second.result()) == ([Cell(1, b"")], [Cell(2, b"")])

    asyncio.run(scenario())


class RecordingStore(MemoryStore):
    __slots__ = ("slices", "syncs")

    def __init__(self) -> None:
        super().__init__()
        self.slices: list[int] = []
        self.syncs = 0

    def write(self, batch: Batch, *, sync: bool = False) -> None:
        self.slices.append(len(batch))
        super().write(batch, sync=sync)

    def sync(self) -> None:
        self.syncs += 1
        super().sync()


def test_what_gathers_while_the_store_is_busy_shares_slices_and_one_sync() -> None:
    async def scenario() -> None:
        store = RecordingStore()
        async with working(store) as worker:
            async with busy(worker):
                asked = [
                    worker.write([put(b"%d-%d" % (number, cell)) for cell in range(5)])
                    for number in range(500)
                ]
                assert worker.waiting == 2_500
            await asyncio.gather(*asked)
            assert worker.waiting == 0
        assert [sum(store.slices), len(store.slices), store.syncs] == [2_500, 3, 1]
        assert max(store.slices) <= MAX_BATCH

    asyncio.run(scenario())


def test_when_a_slice_fails_everything_after_it_in_the_group_fails_too() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        store.refused_prefixes = (b"bad",)
        full = [put(b"bad" if cell == 7 else b"%d" % cell) for cell in range(MAX_BATCH)]
        async with working(store) as worker:
            async with busy(worker):
                calls = [
                    worker.write(*batches)
                    for batches in ([[put(b"before")]], [full, [put(b"marker")]], [[put(b"after")]])
                ]
            before, torn, after = await asyncio.gather(*calls, return_exceptions=True)
            assert before is None
            assert isinstance(torn, StorageUnavailable)
            assert isinstance(after, StorageUnavailable)
            assert await read(worker, [b"before", b"marker", b"after"]) == [HERE, {}, {}]
            store.refused_prefixes = ()
            await worker.write(full, [put(b"marker")])
            assert await read(worker, [b"bad", b"marker"]) == [HERE, HERE]

    asyncio.run(scenario())


class FailingOnce(RecordingStore):
    def sync(self) -> None:
        super().sync()
        if self.syncs == 1:
            raise StorageUnavailable("the sync failed")


def test_nobody_is_told_yes_when_the_sync_fails() -> None:
    async def scenario() -> None:
        store = FailingOnce()
        async with working(store) as worker:
            async with busy(worker):
                calls = [worker.write([put(b"%d" % n)]) for n in range(3)]
            answers = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(answer) for answer in answers] == [StorageUnavailable] * 3
            await worker.write([put(b"again")])

    asyncio.run(scenario())


def test_a_bad_batch_is_refused_by_itself() -> None:
    async def scenario() -> None:
        async with working(MemoryStore()) as worker:
            with pytest.raises(ValueError, match="timestamp"):
                await worker.write([put(b"a", -1)])
            await worker.write([put(b"a")])

    asyncio.run(scenario())


def test_above_the_bound_writes_are_refused_for_now() -> None:
    async def scenario() -> None:
        batch = [put(b"%d" % cell) for cell in range(1_000)]
        async with working(MemoryStore()) as worker:
            async with busy(worker):
                asked = [worker.write(batch) for _ in range(MAX_WAITING // 1_000 + 1)]
                with pytest.raises(Overloaded):
                    worker.write(batch)
            await asyncio.gather(*asked)
            await worker.write(batch)

    asyncio.run(scenario())


def test_a_caller_who_gives_up_disturbs_nobody() -> None:
    async def scenario() -> None:
        async with working(MemoryStore()) as worker:
            async with busy(worker):
                gone = worker.write([put(b"gone")])
                stays = worker.write([put(b"stays")])
                gone.cancel()
            await stays
            assert await read(worker, [b"gone", b"stays"]) == [HERE, HERE]
            assert worker.waiting == 0

    asyncio.run(scenario())


def test_a_checkpoint_contains_every_write_that_was_answered(store: Store, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with working(store) as worker:
            await worker.write([put(b"a")])
            await worker.checkpoint(tmp_path / "checkpoint")
            with pytest.raises(Exception, match="exists"):
                await worker.checkpoint(tmp_path / "checkpoint")

    asyncio.run(scenario())


def test_a_checkpoint_while_others_write_is_consistent_and_stays_as_it_is(tmp_path: Path) -> None:
    acknowledged: dict[int, int] = {}

    async def write(worker: StoreWorker, writer: int) -> None:
        for number in range(100):
            await worker.write(batch_of(writer, number))
            acknowledged[writer] = number

    async def scenario() -> None:
        store = RocksStore(tmp_path / "store")
        async with working(store) as worker, asyncio.TaskGroup() as tasks:
            writers = [tasks.create_task(write(worker, writer)) for writer in range(WRITERS)]
            before: list[dict[int, int]] = []
            for number in range(3):
                await worker.write([])
                before.append(dict(acknowledged))
                await worker.checkpoint(tmp_path / str(number))
                assert not any(writer.done() for writer in writers)
            kept = [contents(tmp_path / str(number)) for number in range(3)]
            for rows, acknowledged_before in zip(kept, before, strict=True):
                check(rows, acknowledged_before)
        assert [contents(tmp_path / str(number)) for number in range(3)] == kept

    asyncio.run(scenario())


def contents(checkpoint: Path) -> dict[bytes, Row]:
    store = RocksStore(checkpoint, read_only=True)
    rows = dict(store.scan())
    store.close()
    return rows


def test_closing_finishes_what_was_asked_for_and_refuses_the_rest() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        worker = StoreWorker(store, "closing store")
        write = worker.write([put(b"a")])
        await asyncio.sleep(0)
        await worker.close()
        await worker.close()
        await write
        assert store.read(b"a") == HERE
        with pytest.raises(StorageUnavailable, match="closed"):
            await worker.write([put(b"b")])
        assert "closing store" not in {thread.name for thread in threading.enumerate()}

    asyncio.run(scenario())
