"""What must hold, judged from outside: by what was published and what applications were told.

Every change of an object at its backend has a **stamp**, counted upwards. A version that is
published carries the stamp of its change; an application that is told a version knows that stamp,
and one that is told *unknown* looks at the backend and knows the newest. Stamps, unlike versions,
keep their order through a reset.

An **epoch** begins where the feed has a record of it, and nowhere else.

Safety is checked at every event, liveness once the faults have stopped.
"""

from collections import Counter
from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from roskva.core.matcher import Matcher
from roskva.model import (
    NO_EPOCH,
    NO_MARK,
    NOTHING_LOST,
    WHOLE_SHARD,
    Key,
    Update,
    loss_of,
    mark_of,
    mark_under,
    shard_part,
)
from roskva.wire.links import CurrentVersion, Push


class Violation(Exception):
    pass


class Oracle:
    def __init__(self) -> None:
        self.stamp: dict[Key, int] = {}
        """Of the newest change at the backend."""
        self.stamp_of: dict[tuple[Key, int], int] = {}
        """Of every version ever handed to a publisher."""
        self.acknowledged: dict[Key, int] = {}
        """The newest stamp whose publisher was told yes."""
        self.history: dict[Key, list[tuple[float, int]]] = {}
        """When which stamp was acknowledged."""
        self.marks: dict[Key, set[int]] = {}
        """Of the resets of every object, besides those of its app."""
        self.sometimes: Counter[str] = Counter()
        self.trace: list[str] | None = None
        self._hash = blake2b(digest_size=16)

    def note(self, now: float, text: str) -> None:
        """One line of the trace; the hash of all of them identifies the run."""
        line = f"{now:.6f} {text}"
        self._hash.update(line.encode())
        if self.trace is not None:
            self.trace.append(line)

    def digest(self) -> str:
        return self._hash.hexdigest()

    # Publishing.

    def change(self, key: Key, version: int | None) -> int:
        """The backend changed an object; `version` is what it will publish."""
        stamp = self.stamp[key] = self.stamp.get(key, 0) + 1
        if version is not None:
            self.stamp_of[key, version] = stamp
        return stamp

    def published(self, now: float, key: Key, stamp: int) -> None:
        if stamp > self.acknowledged.get(key, 0):
            self.acknowledged[key] = stamp
            self.history.setdefault(key, []).append((now, stamp))

    def acknowledged_by(self, key: Key, moment: float) -> int:
        stamps = [stamp for at, stamp in self.history.get(key, ()) if at <= moment]
        return max(stamps, default=0)

    # Telling.

    def stamp_told(self, who: str, key: Key, version: int) -> int:
        stamp = self.stamp_of.get((key, version))
        if stamp is None:
            raise Violation(f"{who} was told {key} = {version}, which nobody published")
        return stamp

    def check_mark(self, who: str, key: Key, epoch: int, generations: set[int]) -> None:
        own = self.marks.get(key, {NO_MARK})
        if mark_of(epoch) not in {mark_under(mark, g) for mark in own for g in generations}:
            raise Violation(f"{who} was told {key} under a mark that no reset has made")

    def check_not_older(self, who: str, key: Key, told: int, acked: int) -> None:
        if told < acked:
            raise Violation(f"{who} was told change {told} of {key} after it acked {acked}")

    def check_not_overtaken(self, who: str, key: Key, told: int, newest: int) -> None:
        """On a connection that keeps its order."""
        if told < newest:
            raise Violation(f"{who} was told change {told} of {key} after change {newest}")

    def check_confirmed(self, who: str, key: Key, knows: int, since: float) -> None:
        """A confirmed registration has been compared with what was current a short while ago."""
        current = self.acknowledged_by(key, since)
        if knows < current:
            raise Violation(
                f"{who} was confirmed for {key} knowing change {knows}; "
                f"{current} was acknowledged before {since:.3f}"
            )

    def check_fresh(self, who: str, key: Key, knows: int) -> None:
        needed = self.acknowledged.get(key, 0)
        if knows < needed:
            raise Violation(f"{who} knows change {knows} of {key}; {needed} was acknowledged")


class _Begun(msgspec.Struct, frozen=True):
    offset: int
    epoch: int
    lost: int


class Epochs:
    """Of one shard's feed, as its records begin them."""

    def __init__(self) -> None:
        self.begun: dict[int, list[_Begun]] = {}
        """By lineage, in order of offset."""
        self.known: set[int] = set()
        """All, and those of objects without a row."""

    def appended(self, lineage: int, entries: Iterable[tuple[int, Update]]) -> None:
        for offset, update in entries:
            if update.object == WHOLE_SHARD:
                before = [one for one in self.begun.get(lineage, ()) if one.offset < offset]
                one = _Begun(offset, update.version, loss_of(update).last)
                self.begun[lineage] = [*before, one]
                self.known.add(update.version)

    def at(self, lineage: int, offset: int) -> int:
        """Which of two for the same loss was first decides."""
        epoch, lost = NO_EPOCH, NOTHING_LOST
        for one in self.begun.get(lineage, ()):
            if one.offset <= offset and one.lost > lost:
                epoch, lost = one.epoch, one.lost
        return epoch

    def check(self, who: str, matcher: Matcher) -> None:
        """Of somebody who speaks."""
        begun = self.at(matcher.lineage, matcher.applied)
        if matcher.epoch != begun:
            raise Violation(f"{who} is in epoch {matcher.epoch}; the feed has begun {begun} there")

    def check_told(self, who: str, told: Iterable[CurrentVersion | Push]) -> None:
        for one in told:
            if shard_part(one.epoch) not in self.known:
                raise Violation(f"{who} tells of {one.object} in an epoch that never began")
