"""What a matcher holds of objects: those with interest, and what is not on disk yet; and what it
needs to be told of them."""

from collections.abc import Iterable

import msgspec

from roskva.core.effects import Handle, ObjectRow, PutObject, Write
from roskva.model import (
    NO_EPOCH,
    NO_GENERATION,
    NO_MARK,
    NO_VERSION,
    WHOLE_SHARD,
    Key,
    Update,
    app_of,
    is_app,
)


class ObjectEntry:
    """What is in memory of an object with interest."""

    __slots__ = (
        "epoch",
        "generation",
        "links",
        "load",
        "mark",
        "previous",
        "replaced",
        "update",
    )

    def __init__(self) -> None:
        self.update: Update | None = None
        """The one with the highest version since the last reset, if any."""
        self.epoch = NO_EPOCH
        """The shard's epoch when that was applied. In a later one it is a lower bound, no more."""
        self.generation = NO_GENERATION
        """The app's, likewise. In a later one it is void."""
        self.mark = 0
        self.previous = NO_VERSION
        self.replaced = False
        self.load = 0
        """The id of the load still awaited; 0 when the row is in."""
        self.links: dict[Handle, None] = {}

    def version(self) -> int:
        return self.update.version if self.update else NO_VERSION

    def merge(self, update: Update, epoch: int, generation: int) -> bool:
        """Whether it is news. A version that is there is, if it comes again in another epoch: what
        was published in an epoch is known in it."""
        current = NO_VERSION if self.update is None else self.update.version
        if generation != self.generation:
            if generation < self.generation:
                return False
            current = NO_VERSION
        if update.version < current or (update.version == current and epoch == self.epoch):
            return False
        self.previous = current
        self.update = update
        self.epoch = epoch
        self.generation = generation
        return True

    def forget(self, mark: int) -> None:
        self.update = None
        self.generation = NO_GENERATION
        self.previous = NO_VERSION
        self.mark = mark
        self.replaced = True


class Unflushed:
    """Rows that are not on disk yet: per object the newest update with its epoch and generation,
    and the mark of a reset."""

    __slots__ = ("marks", "updates")

    def __init__(self) -> None:
        self.updates: dict[Key, tuple[Update, int, int]] = {}
        self.marks: dict[Key, int] = {}

    def merge(self, update: Update, epoch: int, generation: int) -> bool:
        newest = self.updates.get(update.object)
        if newest is not None:
            age, newest_age = (generation, update.version), (newest[2], newest[0].version)
            if age < newest_age or (age == newest_age and epoch == newest[1]):
                return False
        self.updates[update.object] = (update, epoch, generation)
        return True

    def forget(self, key: Key, mark: int) -> None:
        self.updates.pop(key, None)
        self.marks[key] = mark

    def absorb(self, later: "Unflushed") -> None:
        for key, mark in later.marks.items():
            self.forget(key, mark)
        for newest in later.updates.values():
            self.merge(*newest)

    def lay_over(self, entry: ObjectEntry, key: Key) -> None:
        if key in self.marks:
            entry.forget(self.marks[key])
        if key in self.updates:
            entry.merge(*self.updates[key])

    def writes(self) -> list[Write]:
        writes: list[Write] = [
            PutObject(key, self._row(key, mark), replace=True) for key, mark in self.marks.items()
        ]
        writes.extend(
            PutObject(key, self._row(key, NO_MARK)) for key in self.updates if key not in self.marks
        )
        return writes

    def _row(self, key: Key, mark: int) -> ObjectRow:
        if key not in self.updates:
            return ObjectRow(mark=mark)
        update, epoch, generation = self.updates[key]
        return ObjectRow(
            *(update.version, mark, update.source, update.payload),
            *(update.published_at, epoch, generation),
        )


def coalesce(updates: Iterable[tuple[int, Update]]) -> list[tuple[int, Update]]:
    """A range of the feed with only what a matcher needs of it: per object the last reset, and the
    highest version after it. On either side of the reset of its app, and of the record of an epoch,
    for itself: whether that counts, only the matcher knows."""
    kept: list[tuple[int, Update]] = []
    resets: dict[Key, tuple[int, Update]] = {}
    newest: dict[Key, tuple[int, Update]] = {}
    for offset, update in updates:
        key = update.object
        if key == WHOLE_SHARD:
            kept += newest.values()
            kept.append((offset, update))
            newest.clear()
            continue
        if update.reset and is_app(key):
            kept += [newest.pop(k) for k in list(newest) if app_of(k) == app_of(key)]
            kept.append((offset, update))
            continue
        if update.reset:
            resets[key] = (offset, update)
            newest.pop(key, None)
            continue
        before = newest.get(key)
        if before is None:
            newest[key] = (offset, update)
            continue
        # With one left out, nobody can tell any more whether the author of the other knew it.
        winner = (offset, update) if update.version > before[1].version else before
        newest[key] = (winner[0], msgspec.structs.replace(winner[1], source=None))
    return sorted([*kept, *resets.values(), *newest.values()], key=lambda item: item[0])
