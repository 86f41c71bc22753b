"""When sampled updates passed each stage on their way to a client, written as a feed is.

Every process of a node writes a log of its own, `DATA/trace/NAME`, in the format of the feed: an
entry is an update whose `source` is the stage and whose `published_at` is when it was there. Which
updates are sampled is decided by a hash of object and version, so that all processes take the same
ones without talking about it. The prober's own are always followed, so that a quiet node can say as
well how long its stages take; they are neither written down nor in the distributions.

Noting costs an entry in a list; what was noted has to be taken and written every so often. Traces
are no part of the state: they are bounded, and may be lost or deleted.
"""

import zlib
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from secrets import randbits
from typing import Any, Final

from roskva.disk import RealDisk
from roskva.feed.log import MAX_GROUP_ROWS, Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.metrics import Times
from roskva.model import Key, Update, is_probe

STAGES: Final = ("published", "appended", "bridged", "matched", "sent", "acked")
"""In their order. `bridged` only where the fast path is off; `acked` once per client."""

DIRECTORY: Final = "trace"
_MAX_BYTES: Final = 64 << 20
_SEGMENT_BYTES: Final = 8 << 20
_RECENT: Final = 1000


class Trace:
    """One in `one_in` updates. `note` and `take` on one thread; `write` waits for the disk."""

    def __init__(self, directory: Path, one_in: int, now_us: int) -> None:
        self._one_in = one_in
        self._noted: list[Update] = []
        self._recent: deque[Update] = deque(maxlen=_RECENT)
        self._published: dict[tuple[Key, int], int] = {}
        """When the sampled updates of late were published, as far as it is known here."""
        self.sent: dict[Key, int] = {}
        """Of the sampled updates those that clients were sent lately: acks are looked for here."""
        self._acked: dict[tuple[Key, int], None] = {}
        """Those that somebody has acked."""
        self.since_published = {stage: Times() for stage in STAGES[1:]}
        self.followed: dict[Key, int] = {}
        """The latest version of each that was wanted lately: it is noted where it goes."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        retention = Retention(max_bytes=_MAX_BYTES)
        self._log = Log.open(
            RealDisk(),
            str(directory),
            lineage=randbits(62),
            now_us=now_us,
            config=LogConfig(_SEGMENT_BYTES, retention, packed=True),
        )

    def wants(self, key: Key, version: int) -> bool:
        """Whether it is one of the sample."""
        hash = zlib.crc32(key.encode(), version & 0xFFFFFFFF)
        return hash % self._one_in == 0 or is_probe(key)

    def follow(self, key: Key, version: int) -> None:
        self.followed[key] = version
        _bound(self.followed)

    def note(self, stage: str, key: Key, version: int, at_us: int) -> None:
        """That an update, one that is wanted, has passed a stage."""
        noted, which = Update(key, version, stage, published_at=at_us), (key, version)
        if not is_probe(key):
            self._measure(stage, which, at_us)
            if len(self._noted) < MAX_GROUP_ROWS:
                self._noted.append(noted)
        if stage == "sent":
            self.sent[key] = version
            _bound(self.sent)
        if stage != "acked":
            self._recent.append(noted)
        elif which not in self._acked:
            self._acked[which] = None
            _bound(self._acked)
            self._recent.append(noted)

    def was_published(self, key: Key, version: int, at_us: int) -> None:
        """As another process noted, of an update that is wanted."""
        self._measure(STAGES[0], (key, version), at_us)

    def _measure(self, stage: str, which: tuple[Key, int], at_us: int) -> None:
        if stage == STAGES[0]:
            self._published[which] = at_us
            _bound(self._published)
        elif (published := self._published.get(which)) is not None:
            self.since_published[stage].observe(max(0, at_us - published) / 1e6)

    def recent(self) -> list[tuple[Key, int, str, int]]:
        """What was noted last: object, version, stage, and when. Of acks only the first."""
        return [
            (noted.object, noted.version, noted.source or "", noted.published_at)
            for noted in self._recent
        ]

    def take(self) -> list[Update]:
        """What was noted since the last time, to be written."""
        noted, self._noted = self._noted, []
        return noted

    def write(self, entries: Sequence[Update], now_us: int) -> None:
        if entries:
            self._log.append(entries)
            self._log.commit(now_us)
        self._log.tidy(now_us)

    def close(self, now_us: int) -> None:
        try:
            self.write(self.take(), now_us)
        finally:
            self._log.close()


def _bound(kept: dict[Any, Any]) -> None:
    """Forgets the oldest, if there are too many."""
    if len(kept) > _RECENT:
        del kept[next(iter(kept))]
