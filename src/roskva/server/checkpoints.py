"""Copies of all stores for somebody to read, made while a node serves or while none does."""

import asyncio
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roskva.errors import StorageUnavailable
from roskva.feed.base import Locked
from roskva.links.framing import ask
from roskva.links.processes import Process, running
from roskva.server.directory import DataDirectory, ShardPlace
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import Ask

_TIMEOUT_S: Final = 60.0


@contextmanager
def checkpoints(data: DataDirectory, name: str) -> Iterator[None]:
    """`shard-NN/checkpoints/NAME` in every shard, until this ends.

    They are hard links and cost no space. A node that starts meanwhile removes them: whoever reads
    them is then told that a file is missing, and nothing wrong.
    """
    places = [ShardPlace(data, number) for number in range(data.meta.shards)]
    try:
        for place in places:
            _checkpoint(data, place, place.checkpoints_path / name)
        yield
    finally:
        for place in places:
            shutil.rmtree(place.checkpoints_path / name, ignore_errors=True)


def _checkpoint(data: DataDirectory, place: ShardPlace, made: Path) -> None:
    """By the shard's owner; if there is none, by us."""
    try:
        with data.own(place.number) as owned:
            if owned.store_path.is_dir():
                make_checkpoint(owned, made)
    except Locked:
        node = running(data.path)
        if node is None:
            raise
        ask_for_checkpoint(node.processes, place, made)


def make_checkpoint(owned: ShardPlace, made: Path) -> None:
    store = RocksStore(owned.store_path)
    try:
        store.checkpoint(made)
    finally:
        store.close()


def ask_for_checkpoint(processes: Sequence[Process], place: ShardPlace, made: Path) -> None:
    owner = next(process for process in processes if place.number in process.shards)
    question = Ask("checkpoint", place.number, made.name)
    answer = asyncio.run(ask(owner.socket, question, _TIMEOUT_S))
    if "error" in answer:
        raise StorageUnavailable(f"shard {place.number}: {answer['error']}")
