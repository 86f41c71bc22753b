"""The stores every test of this directory runs on."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from roskva.store import memory
from roskva.store.base import Store
from roskva.store.memory import MemoryStore
from roskva.store.rocksdb import RocksStore


class Kind(msgspec.Struct, frozen=True):
    name: str
    create: Callable[[Path], Store]
    open_checkpoint: Callable[[Path], Store]


KINDS = [
    Kind("memory", lambda _: MemoryStore(), memory.open_checkpoint),
    Kind("rocksdb", RocksStore, RocksStore),
]
