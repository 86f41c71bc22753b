"""Reading a feed by offset, in the writer's process or any other.

A reader takes no lock and writes nothing. It knows the segments from their names and headers, maps
the one it is in, and remembers where in it the next frame begins: reading on costs no search. It
looks at the directory again only when it has run out of what it knew.

A mapping stays good whatever becomes of the file's name: segments are replaced and removed, never
shortened, and never changed below their end word.
"""

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator

import msgspec

from roskva.disk import Disk, storage_errors
from roskva.errors import BadInput, Damaged
from roskva.feed.base import START, Batch, Foreign, Idle, Marker, Missing, Read
from roskva.feed.frame import FrameHeader, frame_at, next_frame, rows_from
from roskva.feed.record import Meta, read_meta
from roskva.feed.segment import (
    FORMAT,
    FRAMES_AT,
    RESERVED,
    Segment,
    chain,
    end_of,
    headers_in,
    load,
    parse_name,
)

_FIRST_PAUSE_S = 0.001


class View(msgspec.Struct, frozen=True):
    """A segment as it was when it was mapped; the content ends where the durable frames do."""

    segment: Segment
    last: int
    content: memoryview


class LogReader:
    """Reads a directory of segments."""

    def __init__(self, disk: Disk, directory: str) -> None:
        import roskva.feed.arrow  # noqa: F401  # now, and not while the first update waits

        self._disk = disk
        self._directory = directory
        self.lineage = 0
        self._names: list[str] = []
        self._history: list[Segment] = []
        self._starts: list[int] = []
        self._newest: View | None = None
        self._current: View | None = None
        self._cursor = FRAMES_AT
        with storage_errors(f"opening the feed in {directory}"):
            self._refresh()

    def end(self) -> int:
        """The offset of the last update that is durable."""
        with storage_errors("reading the feed"):
            self._refresh()
        return self._end()

    def start(self) -> int:
        """The first offset that retention has left."""
        return self._starts[0] if self._starts else START + 1

    def advance(self, after: int, rows: int) -> int:
        """The offset of the update that is so many further on; the end, if that comes first."""
        for first, last in self._spans(after):
            if rows <= last - first + 1:
                return first + rows - 1
            rows -= last - first + 1
        return max(after, self._end())

    def count(self, after: int) -> int:
        """How many updates there are beyond this offset; voids and what a restore left out are
        none."""
        return sum(last - first + 1 for first, last in self._spans(after))

    def segments(self) -> list[Segment]:
        with storage_errors("reading the feed"):
            self._refresh()
        return list(self._history)

    def read(self, after: Marker, max_rows: int = 4096) -> Read:
        with storage_errors("reading the feed"):
            if after.offset >= self._end():
                self._refresh()
            if after.lineage != self.lineage or after.offset > self._end():
                return Foreign(self.lineage, self._end())
            try:
                answer = self._read(after.offset + 1, max_rows)
            except FileNotFoundError:  # retention was faster
                answer = None
            if answer is None or isinstance(answer, Missing):
                # A directory that changes while it is listed may hide a segment. Look again before
                # anybody is told of a loss.
                self._names = []
                self._refresh()
                answer = self._read(after.offset + 1, max_rows)
            return answer

    def _read(self, wanted: int, max_rows: int) -> Read:
        if wanted < self.start():
            return Missing(wanted, self.start() - 1, "retention")
        if wanted > self._end():
            return Idle(self._end())
        segment = self._history[bisect_right(self._starts, wanted) - 1]
        base = max(wanted, segment.first)
        if segment.void_from < wanted < segment.first:
            return Missing(wanted, base - 1, "damage")  # it has seen what is now called void
        view = self._view(segment)
        frame = self._find(view, base)
        if frame is None:
            return missing_from(view, wanted)
        if frame.first > base:
            return Missing(wanted, min(frame.first - 1, view.last), "damage")
        furthest = min(view.last, base + max_rows - 1)
        found = rows_from(view.content, frame, self.lineage, furthest)
        if found is None:
            return Missing(wanted, frame.last, "damage")
        rows, newest = found
        last = min(newest.last, furthest)
        if rows.num_rows != last - base + 1:
            rows = rows.slice(base - frame.first, last - base + 1)
        self._cursor = newest.end if last == newest.last else newest.position
        return Batch(wanted, base, last, newest.appended_at, rows)

    def _spans(self, after: int) -> Iterator[tuple[int, int]]:
        """Where offsets beyond this one are updates, as far as was seen."""
        newest = self._end()
        for segment in self._history[max(0, bisect_right(self._starts, after + 1) - 1) :]:
            last = newest if segment.last is None else segment.last
            first, last = max(after + 1, segment.first), min(last, segment.first + RESERVED - 1)
            if first <= last:
                yield first, last

    def _find(self, view: View, wanted: int) -> FrameHeader | None:
        """The frame with this offset; if it is damaged the next one, or none."""
        frame = frame_at(view.content, self._cursor, self.lineage)
        behind = frame is not None and frame.first <= wanted
        if frame is None or not (behind and wanted <= frame.last):
            begin = self._cursor if behind else FRAMES_AT
            frame = next_frame(view.content, begin, self.lineage, wanted)
        return frame

    def _end(self) -> int:
        return self._newest.last if self._newest else START

    def _refresh(self) -> None:
        known = self.lineage, self._names
        self.lineage = lineage_of(self._disk, self._directory)
        self._names = self._disk.list(self._directory)
        if known != (self.lineage, self._names):
            segments = load(self._disk, self._directory, self._names, self.lineage)
            self._history, _ = chain(segments)
            self._starts = [segment.void_from for segment in self._history]
            self._current = None
        self._newest = map_segment(self._disk, self._history[-1]) if self._history else None

    def _view(self, segment: Segment) -> View:
        if self._newest is not None and segment is self._newest.segment:
            self._current = self._newest
        elif self._current is None or self._current.segment != segment:
            self._current = map_segment(self._disk, segment)
        return self._current


def missing_from(view: View, wanted: int) -> Missing:
    """The next of what a segment owns, from where it has no frame any more. That is more than it
    may hold only if a restore went past it: then nobody vouched for what is behind the end word."""
    if view.last < view.segment.first + RESERVED:
        return Missing(wanted, view.last, "damage")
    vouched = end_of(view.content, view.segment).last
    if max(wanted, view.segment.first) <= vouched:
        return Missing(wanted, vouched, "damage")
    return Missing(wanted, view.last, "restore")


def map_segment(disk: Disk, segment: Segment) -> View:
    content = memoryview(disk.map(segment.path))
    if segment.last is not None:
        return View(segment, segment.last, content)
    end = end_of(content, segment)
    if end.position > len(content):  # it grew between mapping it and looking at its end word
        content = memoryview(disk.map(segment.path))
    last = end.last if end.last >= segment.first else segment.void_from - 1
    return View(segment, last, content[: end.position])


def lineage_of(disk: Disk, directory: str) -> int:
    """From the meta file; if that is damaged, from any segment."""
    try:
        meta = read_meta(disk, directory)
    except Damaged:
        meta = meta_from_segments(disk, directory)
        if meta is None:
            raise
    if meta is None:
        raise BadInput(f"there is no feed in {directory}")
    return meta.lineage


def meta_from_segments(disk: Disk, directory: str) -> Meta | None:
    for name in reversed(disk.list(directory)):
        if parse_name(name):
            for header in headers_in(disk.read(f"{directory}/{name}", 0, FRAMES_AT)):
                return Meta(FORMAT, header.lineage)
    return None


def wait_for_growth(reader: LogReader, after: int, timeout_s: float) -> bool:
    """Whether there is something beyond `after`, in whatever process the feed's writer lives."""
    return poll(lambda: reader.end() > after, timeout_s)


def poll(
    found: Callable[[], bool],
    timeout_s: float,
    *,
    longest_pause_s: float = 0.02,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> bool:
    """Whether it came true in time. Looks ever less often."""
    deadline = clock() + timeout_s
    pause = _FIRST_PAUSE_S
    while not found():
        left = deadline - clock()
        if left <= 0:
            return False
        sleep(min(pause, left))
        pause = min(2 * pause, longest_pause_s)
    return True
