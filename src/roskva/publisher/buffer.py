"""Updates that are not acknowledged yet: so many, in order, and which of them may go together.

**Order.** One request is under way at a time, and what failed for now keeps its place. Two updates
of one object may share a request, because a lower version that is accepted later does no harm. Not
so where the later one *depends* on the earlier: a source may be named only when all earlier
versions are acknowledged (docs/protocol.md), and versions assigned by the server follow the order
of acceptance. Those wait for the next request, and so does everything behind them on that object.
"""

from asyncio import Future
from typing import Final

MAX_WAITING: Final = 10_000
MAX_WAITING_BYTES: Final = 16 * 1024 * 1024
MAX_BATCH: Final = 1_000
MAX_BATCH_BYTES: Final = 1024 * 1024


class Waiting:
    """An update or a reset, as it goes into a request, and whom to tell."""

    __slots__ = ("body", "depends", "done", "is_reset", "name")

    def __init__(
        self, name: str, body: bytes, done: Future[int], *, depends: bool, is_reset: bool = False
    ) -> None:
        self.name = name
        self.body = body
        self.done = done
        self.depends = depends
        self.is_reset = is_reset


class Buffer:
    def __init__(self) -> None:
        self._waiting: dict[Waiting, None] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def has_room_for(self, item: Waiting) -> bool:
        fits = self._bytes + len(item.body) <= MAX_WAITING_BYTES
        return fits and len(self._waiting) < MAX_WAITING

    def add(self, item: Waiting) -> None:
        self._waiting[item] = None
        self._bytes += len(item.body)

    def remove(self, item: Waiting) -> None:
        if item in self._waiting:
            del self._waiting[item]
            self._bytes -= len(item.body)

    def items(self) -> list[Waiting]:
        return list(self._waiting)

    def next_batch(self) -> list[Waiting]:
        """What goes into the next request: updates, or one reset."""
        batch: list[Waiting] = []
        size = 0
        taken: set[str] = set()
        held: set[str] = set()
        for item in self._waiting:
            if item.is_reset:
                return batch or [item]
            if item.name in held or (item.depends and item.name in taken):
                held.add(item.name)
                continue
            size += len(item.body) + 1
            if batch and (len(batch) == MAX_BATCH or size > MAX_BATCH_BYTES):
                break
            taken.add(item.name)
            batch.append(item)
        return batch
