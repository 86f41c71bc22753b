"""The feed of one shard: what its writer and its readers promise each other.

A feed is a sequence of updates, each at an **offset** (1, 2, 3, …). It has one writer at a time and
any number of readers, in the same process or in others. The promises:

- *Durable, then visible, then acknowledged.* A reader never sees an update that a power cut could
  still take away, and a publisher is told yes only when every reader can see its update.
- *An offset belongs to one update for ever.* After a crash the writer does not know which offsets
  the lost tail had used, so it goes on beyond all of them. What lies between is **void**: it never
  held anything, and readers step over it. A batch therefore says which range it *accounts for*
  (`first … last`) and separately where its rows begin (`base`). A marker always stands on an update
  and never in a void; one that does has seen what the feed then lost.
- *Loss is an answer, not an accident.* Every offset up to the end is in a batch, void, or
  `Missing`; there is no fourth case. Whoever is told `Missing` or `Foreign` knows that its view of
  the history has a hole (for a matcher: a new epoch).
- A **marker** is `(lineage, offset)`: everything up to and including `offset` is done. The lineage
  is the identity of the history; a feed that was recreated has another one.

A reader's loop, whatever the feed is made of:

    match feed.read(after):
        case Batch(last=last):   handle the rows, then go on after `last`
        case Idle():             nothing more yet
        case Missing(last=last): it is lost: go on after `last`
        case Foreign(last=last): so is what was there before: go on at (this lineage, last)

A writer's duties, in order: `append` as often as it likes, one `commit`, and only when that has
returned, answers to the publishers. If `commit` raises, none of its updates counts as published,
and the publisher may try again: `StorageUnavailable` at this writer, `Fenced` at the one that took
over.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from roskva.errors import Unavailable
from roskva.model import Update

if TYPE_CHECKING:
    import pyarrow as pa

START: Final = 0
"""The offset of a marker that has seen nothing; the first update has offset 1."""


class Locked(Unavailable):
    """Another writer holds this feed."""

    code = "locked"


class Marker(msgspec.Struct, frozen=True):
    lineage: int
    offset: int


class Batch(msgspec.Struct, frozen=True):
    """Rows at `base … last`; it accounts for `first … last`, and what is before `base` is void."""

    first: int
    base: int
    last: int
    appended_at: int
    """Wall-clock microseconds; of the newest row, once small batches were put together."""
    rows: "pa.RecordBatch"

    def updates(self) -> list[Update]:
        return updates_of(self.rows)

    def entries(self) -> list[tuple[int, Update]]:
        return list(enumerate(self.updates(), self.base))

    def up_to(self, last: int) -> "Batch":
        if last >= self.last:
            return self
        rows = self.rows.slice(0, last - self.base + 1)
        return Batch(self.first, self.base, last, self.appended_at, rows)


class Idle(msgspec.Struct, frozen=True):
    """Nothing to read yet: the marker stands at the end."""

    last: int


class Missing(msgspec.Struct, frozen=True):
    """`first … last` once was in the feed and can no longer be read."""

    first: int
    last: int
    why: Literal["retention", "damage", "restore"]
    """A restore: what was published after the backup is not in the copy."""


class Foreign(msgspec.Struct, frozen=True):
    """The marker is none of this history's: another lineage, or an offset beyond the end."""

    lineage: int
    last: int


Read = Batch | Idle | Missing | Foreign


class Committed(msgspec.Struct, frozen=True):
    """One commit group: `updates` at `base … last`, accounting for `first … last` like a Batch."""

    first: int
    base: int
    last: int
    appended_at: int
    updates: Sequence[Update]

    def entries(self) -> list[tuple[int, Update]]:
        return list(enumerate(self.updates, self.base))


def updates_of(rows: "pa.RecordBatch") -> list[Update]:
    return list(map(Update, *(column.to_pylist() for column in rows.columns)))
