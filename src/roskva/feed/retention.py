"""Which segments may go: the oldest, never the newest, past a marker only as a last resort.

A reader's marker holds everything after it, whatever the limits say, because passing it costs the
reader its history. Only `last_resort_bytes` is stronger: a reader that never comes back must not
fill the disk and stop the publishers.
"""

from collections.abc import Sequence

import msgspec

from roskva.errors import BadConfig
from roskva.feed.segment import Segment

_DAY_US = 24 * 3600 * 1_000_000


class Retention(msgspec.Struct, frozen=True):
    """None: no limit."""

    max_age_us: int | None = 7 * _DAY_US
    max_bytes: int | None = None
    last_resort_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.last_resort_bytes is not None and self.last_resort_bytes < (self.max_bytes or 0):
            raise BadConfig("last_resort_bytes must not be below max_bytes")


def expired(
    history: Sequence[Segment],
    sizes: Sequence[int],
    slowest: int | None,
    retention: Retention,
    now_us: int,
) -> int:
    """How many of the oldest segments may go. `slowest`: the lowest marker, if there is one."""
    kept_bytes = sum(sizes)
    for count, successor in enumerate(history[1:]):
        passed = slowest is None or slowest >= successor.void_from - 1
        # Nothing in a segment is newer than the segment after it.
        aged = _above(now_us - successor.header.created_at, retention.max_age_us)
        unwanted = aged or _above(kept_bytes, retention.max_bytes)
        if not (passed and unwanted) and not _above(kept_bytes, retention.last_resort_bytes):
            return count
        kept_bytes -= sizes[count]
    return max(0, len(history) - 1)


def _above(value: int, limit: int | None) -> bool:
    return limit is not None and value > limit
