"""Where the bridge's query ends: each shard's range is handed to its matcher.

Rows come with the range they stand for (`BRIDGED`). A range that a matcher does not take is no
error of the query: its gap is closed later, from the feed.
"""

from typing import Any

from pyspark.sql import Row

from roskva.model import Update
from roskva.pipeline.matchers import Entry, Range, matchers_at


class Delivery:
    """What `DataStreamWriter.foreach` wants: made once, then copied into every task."""

    def __init__(self, data: str) -> None:
        self._data = data
        self._range: Range | None = None
        self._entries: list[Entry] = []

    def open(self, partition: int, epoch: int) -> bool:
        self._range, self._entries = None, []
        return True

    def process(self, row: Row) -> None:
        # By place, as in `BRIDGED`: there may be a million of them.
        shard, lineage, first, last, offset, *update = row
        if self._range is None:
            self._range = Range(shard, lineage, first, last)
        self._entries.append((offset, update_of(*update)))

    def close(self, error: Exception | None) -> None:
        if self._range is not None and error is None:
            matchers_at(self._data).deliver(self._range, self._entries)


def update_of(
    object: str,
    version: int,
    source: str | None,
    payload: Any,
    published_at: int,
    reset: bool,
) -> Update:
    return Update(
        object, version, source, None if payload is None else bytes(payload), published_at, reset
    )
