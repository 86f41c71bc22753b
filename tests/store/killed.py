"""A process that writes until it is killed, and says what it was told is durable.

python -m tests.store.killed DIRECTORY
"""

import asyncio
import itertools
import sys
from pathlib import Path

from roskva.store.base import Cell, Put, Row
from roskva.store.rocksdb import RocksStore
from roskva.store.worker import StoreWorker

WRITERS = 4
CELLS = 20


def batch_of(writer: int, number: int) -> list[Put]:
    """A batch of its own rows, and the writer's counter, as versions come with their marker."""
    rows = [b"%d/%08d/%d" % (writer, number, cell) for cell in range(CELLS)]
    puts = [Put(row, b"v", number, b"%d" % number) for row in rows]
    return [*puts, Put(b"counter/%d" % writer, b"n", number, b"")]


def counter(rows: dict[bytes, Row], writer: int) -> int:
    cells = rows.get(b"counter/%d" % writer)
    return cells[b"n"].timestamp if cells else -1


def check(rows: dict[bytes, Row], acknowledged: dict[int, int]) -> None:
    """Everything acknowledged is there, every batch is whole, and nothing was invented."""
    expected: dict[bytes, Row] = {}
    for writer in range(WRITERS):
        durable = counter(rows, writer)
        assert durable >= acknowledged.get(writer, -1), "an acknowledged batch is missing"
        for number in range(durable + 1):
            for put in batch_of(writer, number):
                expected[put.row] = {put.column: Cell(put.timestamp, put.value)}
    assert rows == expected, "a batch is torn"


async def write_for_ever(worker: StoreWorker, writer: int, start: int) -> None:
    for number in itertools.count(start):
        await worker.write(batch_of(writer, number))
        sys.stdout.write(f"{writer} {number}\n")
        sys.stdout.flush()


async def main(directory: Path) -> None:
    store = RocksStore(directory)
    rows = dict(store.scan(b"counter/"))
    worker = StoreWorker(store)
    async with asyncio.TaskGroup() as tasks:
        for writer in range(WRITERS):
            tasks.create_task(write_for_ever(worker, writer, counter(rows, writer) + 1))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
