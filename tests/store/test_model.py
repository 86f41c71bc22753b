"""Any sequence of batches, crashes and reads: both stores against a dictionary."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from roskva.store.base import Cell, DeleteCell, DeleteRow, Operation, Put, Store
from roskva.store.memory import MemoryStore
from roskva.store.rocksdb import RocksStore

Model = dict[tuple[bytes, bytes], tuple[int, bytes]]

NAMES = st.sampled_from([b"", b"\0", b"\0\0", b"\0\xff", b"a", b"a\0", b"b", b"\xff"])
STAMPS = st.one_of(st.integers(0, 3), st.sampled_from([255, 256, 2**32, 2**63 - 1]))
OPERATIONS = st.one_of(
    st.builds(Put, NAMES, NAMES, STAMPS, st.binary(max_size=3)),
    st.builds(DeleteCell, NAMES, NAMES),
    st.builds(DeleteRow, NAMES),
)


def apply(model: Model, operation: Operation) -> None:
    match operation:
        case Put(row=row, column=column, timestamp=timestamp, value=value):
            if model.get((row, column), (0, b""))[0] <= timestamp:
                model[row, column] = (timestamp, value)
        case DeleteCell(row=row, column=column):
            model.pop((row, column), None)
        case DeleteRow(row=row):
            for name in [name for name in model if name[0] == row]:
                del model[name]


def contents(store: Store) -> Model:
    return {
        (row, column): (cell.timestamp, cell.value)
        for row, cells in store.scan()
        for column, cell in cells.items()
    }


class StoreMachine(RuleBasedStateMachine):
    store: Store

    def __init__(self) -> None:
        super().__init__()
        self.model: Model = {}

    @rule(batch=st.lists(OPERATIONS, max_size=8), sync=st.booleans())
    def write(self, batch: list[Operation], sync: bool) -> None:
        self.store.write(batch, sync=sync)
        for operation in batch:
            apply(self.model, operation)
        self.written(sync)

    def written(self, sync: bool) -> None:
        """For the store that can lose what is not synced."""

    @rule(row=NAMES, column=NAMES)
    def read(self, row: bytes, column: bytes) -> None:
        cells = {name[1]: Cell(*kept) for name, kept in self.model.items() if name[0] == row}
        assert self.store.read(row) == cells
        assert self.store.read_cells([(row, column)]) == [cells.get(column)]

    @rule(start=NAMES, end=st.none() | NAMES)
    def scan(self, start: bytes, end: bytes | None) -> None:
        expected = {row for row, _ in self.model if start <= row and (end is None or row < end)}
        assert [row for row, _ in self.store.scan(start, end)] == sorted(expected)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        assert contents(self.store) == self.model


class MemoryMachine(StoreMachine):
    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore()
        self.survivors: list[Model] = [{}]
        """What a crash may leave: the last synced state, then one more batch at a time."""

    def written(self, sync: bool) -> None:
        if sync:
            self.survivors.clear()
        self.survivors.append(dict(self.model))

    @rule()
    def sync(self) -> None:
        self.store.sync()
        del self.survivors[:-1]

    @rule(data=st.data())
    def crash(self, data: st.DataObject) -> None:
        assert isinstance(self.store, MemoryStore)
        assert self.store.unsynced == len(self.survivors) - 1
        keep = data.draw(st.integers(0, len(self.survivors) - 1))
        self.store.crash(keep)
        self.model = self.survivors[keep]
        self.survivors = [dict(self.model)]


class RocksMachine(StoreMachine):
    @initialize()
    def create(self) -> None:
        self.directory = Path(tempfile.mkdtemp())
        self.store = RocksStore(self.directory / "0")
        self.generation = 0

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = RocksStore(self.directory / str(self.generation))

    @rule()
    def go_on_with_a_checkpoint(self) -> None:
        self.generation += 1
        self.store.checkpoint(self.directory / str(self.generation))
        self.store.close()
        self.store = RocksStore(self.directory / str(self.generation))

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)


TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(max_examples=100, stateful_step_count=30)
TestRocks = RocksMachine.TestCase
TestRocks.settings = settings(max_examples=15, stateful_step_count=25)
