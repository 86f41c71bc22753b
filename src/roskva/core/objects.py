"""What a matcher holds of objects: those with interest, and what is not on disk yet."""

from roskva.core.effects import Handle, ObjectRow, PutObject, Write
from roskva.model import NO_VERSION, Key, Update


class Object:
    """What is in memory of an object with interest."""

    __slots__ = ("links", "load", "mark", "previous", "replaced", "update")

    def __init__(self) -> None:
        self.update: Update | None = None
        """The one with the highest version since the last reset, if any."""
        self.mark = 0
        self.previous = NO_VERSION
        self.replaced = False
        self.load = 0
        """The id of the load still awaited; 0 when the row is in."""
        self.links: dict[Handle, None] = {}

    def version(self) -> int:
        return self.update.version if self.update else NO_VERSION

    def merge(self, update: Update) -> bool:
        current = self.version()
        if update.version <= current:
            return False
        self.previous = current
        self.update = update
        return True

    def forget(self, mark: int) -> None:
        self.update = None
        self.previous = NO_VERSION
        self.mark = mark
        self.replaced = True


class Unflushed:
    """Rows that are not on disk yet: per object the newest update, and the mark of a reset."""

    __slots__ = ("marks", "updates")

    def __init__(self) -> None:
        self.updates: dict[Key, Update] = {}
        self.marks: dict[Key, int] = {}

    def merge(self, update: Update) -> None:
        newest = self.updates.get(update.object)
        if newest is None or update.version > newest.version:
            self.updates[update.object] = update

    def forget(self, key: Key, mark: int) -> None:
        self.updates.pop(key, None)
        self.marks[key] = mark

    def absorb(self, later: "Unflushed") -> None:
        for key, mark in later.marks.items():
            self.forget(key, mark)
        for update in later.updates.values():
            self.merge(update)

    def lay_over(self, entry: Object, key: Key) -> None:
        if key in self.marks:
            entry.forget(self.marks[key])
        if key in self.updates:
            entry.merge(self.updates[key])

    def writes(self) -> list[Write]:
        writes: list[Write] = [
            PutObject(key, _row(self.updates.get(key), mark), replace=True)
            for key, mark in self.marks.items()
        ]
        writes.extend(
            PutObject(key, _row(update))
            for key, update in self.updates.items()
            if key not in self.marks
        )
        return writes


def _row(update: Update | None, mark: int = 0) -> ObjectRow:
    if update is None:
        return ObjectRow(mark=mark)
    return ObjectRow(update.version, mark, update.source, update.payload, update.published_at)
