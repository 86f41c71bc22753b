"""What is done to finished segments: the oldest go, and many small frames become few large ones.

**Retention.** The oldest segments go, never the newest. A reader's marker holds everything after
it, whatever the limits say, because passing it costs the reader its history. Only
`last_resort_bytes` is stronger: a reader that never comes back must not fill the disk and stop the
publishers.

**Rewriting.** A frame as it was written holds one commit group, often a single row; reading a
million of them one by one crawls. The rewritten segment has the same name, header and offsets. It
is written beside the old one, synced and renamed over it, so a crash leaves one or the other, and a
reader that has the old one mapped goes on reading it. A segment with damage is left as it is: its
bytes are evidence.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from roskva.disk import Disk, File
from roskva.errors import BadConfig, Damaged
from roskva.feed.frame import TOGETHER_BYTES, encode, next_frame, rows_from
from roskva.feed.reader import map_segment
from roskva.feed.segment import FRAMES_AT, End, Segment, encode_end, encode_header

if TYPE_CHECKING:
    import pyarrow as pa

_DAY_US = 24 * 3600 * 1_000_000

ROWS_PER_FRAME = 4096
_SYNC_EVERY_BYTES = 4 << 20  # and behind a sync


# Retention.


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


# Rewriting.


def rewrite(
    disk: Disk, segment: Segment, lineage: int, may_replace: Callable[[], None]
) -> Generator[None]:
    """In slices. Raises Damaged, and changes nothing, if a row cannot be read."""
    temporary = segment.path + ".rewrite.tmp"
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.create(temporary)
    try:
        output = _Output(file, lineage, segment)
        slice_began = FRAMES_AT
        for position, appended_at, rows in _batches(disk, segment, lineage):
            output.add(appended_at, rows)
            if position - slice_began >= TOGETHER_BYTES:  # commits wait behind a slice
                yield
                slice_began = position
        output.finish()
        may_replace()
        disk.rename(temporary, segment.path)
    except BaseException:
        with suppress(OSError):
            disk.remove(temporary)
        raise
    finally:
        file.close()
    disk.sync_directory(segment.path.rpartition("/")[0])


class _Output:
    """Gathers rows until they fill a frame."""

    def __init__(self, file: File, lineage: int, segment: Segment) -> None:
        self._file = file
        self._lineage = lineage
        self._segment = segment
        self._next = segment.first
        self._position = FRAMES_AT
        self._synced = 0
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._appended_at = 0

    def add(self, appended_at: int, rows: "pa.RecordBatch") -> None:
        if self._waiting_rows + rows.num_rows > ROWS_PER_FRAME:
            self._flush()
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self._appended_at = appended_at

    def finish(self) -> None:
        self._flush()
        header = msgspec.structs.replace(self._segment.header, rewritten=True)
        end = End(self._next - 1, self._position, closed=True)
        self._file.write_at(encode_header(header) + encode_end(end), 0)
        self._file.sync()

    def _flush(self) -> None:
        if not self._waiting:
            return
        from roskva.feed.arrow import joined

        rows = joined(self._waiting)
        frame = encode(self._lineage, self._next, self._appended_at, rows)
        self._file.write_at(frame, self._position)
        self._position += len(frame)
        self._next += rows.num_rows
        self._waiting, self._waiting_rows = [], 0
        if self._position - self._synced > _SYNC_EVERY_BYTES:
            self._file.sync()
            self._synced = self._position


def _batches(
    disk: Disk, segment: Segment, lineage: int
) -> "Iterator[tuple[int, int, pa.RecordBatch]]":
    """How far they go in the file, when the newest of them was appended, and the rows."""
    view = map_segment(disk, segment)
    position, wanted = FRAMES_AT, segment.first
    while wanted <= view.last:
        frame = next_frame(view.content, position, lineage, wanted)
        found = None
        if frame is not None and frame.first == wanted:
            found = rows_from(view.content, frame, lineage, view.last)
        if found is None:
            raise Damaged(f"{segment.path}: offset {wanted} cannot be read")
        rows, newest = found
        yield newest.end, newest.appended_at, rows
        position, wanted = newest.end, newest.last + 1
