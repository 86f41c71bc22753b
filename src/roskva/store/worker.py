"""A store on a thread of its own, for an event loop that must not wait.

Everything asked of it is done in the order it was asked. What has gathered while the thread was
busy becomes one **group**: its batches are written in slices, reads are answered, and then one sync
makes all writes of the group durable at once. An idle store thus answers at once, and a busy one
pays for a sync once per thousands of cells.

If a slice cannot be written, every later write of its group fails with it: a marker must never be
durable without the versions it covers.

The interpreter's lock is what could still hold the loop. The slices are short, and reading, which
every slice begins with, and syncing let the lock go. What is left is the time after which a thread
has to hand the lock over to one that waits: see `SWITCH_INTERVAL_S`.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, TypeVar

from roskva.errors import Overloaded, StorageUnavailable
from roskva.metrics import Times
from roskva.store.base import MAX_BATCH, Batch, Operation, Store, check_batch

SWITCH_INTERVAL_S: Final = 0.0005
"""For `sys.setswitchinterval`, in a process that serves. Python's own 5 ms are paid by the loop
each time it wants the lock back while this thread computes; with a tenth of it both get more
done."""

MAX_WAITING: Final = 200_000
"""Operations asked for and not yet durable; above it, writes are refused for now."""

_GROUP: Final = 8 * MAX_BATCH
"""Operations in a group, so that nobody waits long for somebody else's sync."""

_T = TypeVar("_T")


class _Job:
    """Batches to write, or something to call with the store."""

    __slots__ = ("batches", "call", "error", "future", "result", "size")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        batches: Sequence[Batch] = (),
        call: Callable[[Store], object] | None = None,
    ) -> None:
        self.future = future
        self.batches = batches
        self.call = call
        self.size = sum(map(len, batches))
        self.result: object = None
        self.error: BaseException | None = None


class StoreWorker:
    def __init__(self, store: Store, name: str = "store") -> None:
        """Takes the store over; to be called on the event loop."""
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.waiting = 0
        """Operations that are not durable yet."""
        self._closing = False
        self.write_times, self.sync_times, self.read_times = Times(), Times(), Times()
        # A daemon, because a loop that died cannot close it: unsynced writes were never answered.
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def write(self, *batches: Batch) -> "asyncio.Future[None]":
        """Durable when this is done: each batch atomic, and none without those before it."""
        for batch in batches:
            check_batch(batch)
        if self.waiting > MAX_WAITING:
            raise Overloaded(f"{self.waiting} operations wait for the disk already")
        job = _Job(self._loop.create_future(), batches)
        self._submit(job)
        self.waiting += job.size
        return job.future

    async def checkpoint(self, directory: Path) -> None:
        await self.run(lambda store: store.checkpoint(directory))

    def run(self, call: Callable[[Store], _T]) -> "asyncio.Future[_T]":
        """Anything else that needs the store, on its thread, in its turn."""
        job = _Job(self._loop.create_future(), call=call)
        self._submit(job)
        return job.future

    async def close(self) -> None:
        """Finish what was asked for, then close the store."""
        if self._closing:
            return
        self._closing = True
        closed = _Job(self._loop.create_future(), call=lambda store: store.close())
        self._jobs.put(closed)
        self._jobs.put(None)
        await closed.future
        self._thread.join()

    def _submit(self, job: _Job) -> None:
        if self._closing:
            raise StorageUnavailable("this store is closed")
        self._jobs.put(job)

    def _answer(self, jobs: Sequence[_Job]) -> None:
        """On the loop."""
        for job in jobs:
            self.waiting -= job.size
            if job.future.cancelled():
                continue
            if job.error is None:
                job.future.set_result(job.result)
            else:
                job.future.set_exception(job.error)

    # On the store's thread

    def _run(self) -> None:
        while group := self._next_group():
            self._work_through(group)

    def _next_group(self) -> list[_Job]:
        """What waits by now, at least one job; empty: the end."""
        group: list[_Job] = []
        size = 0
        job = self._jobs.get()
        while job is not None:
            group.append(job)
            size += job.size
            if size >= _GROUP:
                return group
            try:
                job = self._jobs.get_nowait()
            except Empty:
                return group
        if group:
            self._jobs.put(None)  # the end comes after this group
        return group

    def _work_through(self, group: list[_Job]) -> None:
        writes = _GroupWrite(self._store)
        calls = []
        began, reading = time.perf_counter(), 0.0
        for job in group:
            if job.call is None:
                writes.add(job)
            else:
                writes.write_slice()  # a read sees what was written before it
                asked = time.perf_counter()
                _call(job, self._store)
                took = time.perf_counter() - asked
                self.read_times.observe(took)
                reading += took
                calls.append(job)
        writes.write_slice()
        self._deliver(calls)  # reads need not wait for the disk
        if writes.jobs:
            written = time.perf_counter()
            writes.sync()
            self.write_times.observe(written - began - reading)
            self.sync_times.observe(time.perf_counter() - written)
        self._deliver(writes.jobs)

    def _deliver(self, jobs: list[_Job]) -> None:
        if not jobs:
            return
        try:
            self._loop.call_soon_threadsafe(self._answer, jobs)
        except RuntimeError:
            return  # the loop is gone, and with it everyone who waited


class _GroupWrite:
    """The writes of a group: batches put together to slices, one failure for all that follows."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._slice: list[Operation] = []
        self._in_slice: list[_Job] = []
        self._failure: Exception | None = None
        self.jobs: list[_Job] = []

    def add(self, job: _Job) -> None:
        self.jobs.append(job)
        for batch in job.batches:
            if len(self._slice) + len(batch) > MAX_BATCH:
                self.write_slice()
            if self._failure is not None:
                job.error = self._failure
                return
            self._slice.extend(batch)
            self._in_slice.append(job)

    def write_slice(self) -> None:
        operations, self._slice = self._slice, []
        jobs, self._in_slice = self._in_slice, []
        if not operations:
            return
        try:
            self._store.write(operations)
        except Exception as error:
            self._failure = error
            for job in jobs:
                job.error = error

    def sync(self) -> None:
        written = [job for job in self.jobs if job.error is None]
        if not written:
            return
        try:
            self._store.sync()
        except Exception as error:
            for job in written:
                job.error = error


def _call(job: _Job, store: Store) -> None:
    assert job.call is not None
    try:
        job.result = job.call(store)
    except Exception as error:
        job.error = error
