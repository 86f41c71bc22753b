"""What a data directory takes of its disk, by part, and when a limit is reached if it goes on so.

Measured by looking at the files, every so often and beside the loop. How fast it grows is the
difference over the last hour: shorter than that, the rewriting of feeds and the compaction of
stores would be all that is seen.
"""

import asyncio
import os
import time
from collections import Counter, deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from roskva.feed.trace import DIRECTORY
from roskva.server.space import DiskSpace
from roskva.sources.changes import DIRECTORY as SOURCES
from roskva.wire.admin import DiskNow

PARTS: Final = ("feed", "store", "changes", "trace", "pipeline", "other")
_EVERY_S: Final = 30.0
_OVER: Final = 121
"""Measurements, and thus an hour."""
_LEAST_S: Final = 120.0
"""To say how fast something grows."""
_BLOCK: Final = 512
_NAMES: Final = {DIRECTORY: "trace", "pipeline": "pipeline", SOURCES: "changes"}


class Measured(NamedTuple):
    at: float
    feed: int
    free: int


class DiskUsage:
    def __init__(self, path: Path, space: DiskSpace, feed_cap: int | None) -> None:
        """`feed_cap`: in bytes, of all feeds together."""
        self._path = path
        self._space = space
        self._feed_cap = feed_cap
        self._parts: dict[str, int] = {}
        self._history: deque[Measured] = deque(maxlen=_OVER)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._parts = await asyncio.to_thread(parts_of, self._path)
            free = self._space.disk.free
            self._history.append(Measured(time.monotonic(), self._parts["feed"], free))
            await asyncio.sleep(_EVERY_S)

    def now(self) -> DiskNow:
        disk, floor = self._space.disk, self._space.floor
        feeds = [(each.at, each.feed) for each in self._history]
        taken = [(each.at, disk.total - each.free) for each in self._history]
        return DiskNow(
            total=disk.total,
            free=disk.free,
            floor=floor,
            refuses=self._space.refuses,
            parts=self._parts,
            feed_cap=self._feed_cap,
            feed_cap_in_s=None if self._feed_cap is None else reached_in(self._feed_cap, feeds),
            floor_in_s=reached_in(disk.total - floor, taken),
        )


def parts_of(path: Path) -> dict[str, int]:
    """In bytes, of files that may come and go meanwhile."""
    found = Counter(dict.fromkeys(PARTS, 0))
    for place, _, names in os.walk(path):
        part = _part(Path(place).relative_to(path).parts)
        for name in names:
            try:
                found[part] += os.lstat(os.path.join(place, name)).st_blocks * _BLOCK
            except OSError:
                continue
    return dict(found)


def _part(place: Sequence[str]) -> str:
    if not place:
        return "other"
    if place[0].startswith("shard-"):
        return place[1] if len(place) > 1 and place[1] in ("feed", "store") else "other"
    return _NAMES.get(place[0], "other")


def reached_in(limit: int, grown: Sequence[tuple[float, int]]) -> float | None:
    """In seconds, at the rate of these (time, bytes); None: not at this rate, or it is too early
    to say."""
    if not grown:
        return None
    (began, first), (ended, last) = grown[0], grown[-1]
    if last >= limit:
        return 0.0
    if ended - began < _LEAST_S or last <= first:
        return None
    return (limit - last) / (last - first) * (ended - began)
