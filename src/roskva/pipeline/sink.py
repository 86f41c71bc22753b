"""Where the bridge's query ends: each shard's range is handed to its matcher, by the driver.

Rows come with the range they stand for (`BRIDGED`), those of a range together. A range that a
matcher does not take is no error of the query: its gap is closed later, from the feed.
"""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from roskva.feed.arrow import SCHEMA
from roskva.feed.base import Marker, updates_of
from roskva.pipeline.matchers import Entry, Matchers, Range

_PLACE: Final = ("shard", "lineage", "first", "last")
_SLICE: Final = 10_000
"""Rows that are turned into updates at a time."""


def deliver(rows: pa.Table, matchers: Matchers) -> dict[Range, Marker | None]:
    """Where each matcher then stands; None if it does not answer."""
    ranges = list(ranges_in(rows))
    offered = [(found, _entries(part)) for found, part in ranges]
    stand = matchers.deliver_all(offered)
    return {found: at for (found, _), at in zip(ranges, stand, strict=True)}


def ranges_in(rows: pa.Table) -> Iterator[tuple[Range, pa.Table]]:
    """With its rows, and the places where they are cut."""
    for shard in pc.unique(rows["shard"]).to_pylist():
        part = rows.filter(pc.equal(rows["shard"], shard))
        yield Range(*(part[name][0].as_py() for name in _PLACE)), part


def _entries(rows: pa.Table) -> Iterator[Entry]:
    updates = rows.select(SCHEMA.names)
    for start in range(0, rows.num_rows, _SLICE):
        offsets = rows["offset"].slice(start, _SLICE).to_pylist()
        [batch] = updates.slice(start, _SLICE).combine_chunks().to_batches()
        yield from zip(offsets, updates_of(batch), strict=True)
