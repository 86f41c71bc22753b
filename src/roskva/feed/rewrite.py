"""Turning the many small frames of a finished segment into few large ones.

A frame as it was written holds one commit group, often a single row; reading a million of them one
by one crawls. The rewritten segment has the same name, header and offsets. It is written beside the
old one, synced and renamed over it, so a crash leaves one or the other, and a reader that has the
old one mapped goes on reading it. A segment with damage is left as it is: its bytes are evidence.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from roskva.disk import Disk, File
from roskva.errors import Damaged
from roskva.feed.frame import TOGETHER_BYTES, encode, next_frame, rows_from
from roskva.feed.reader import map_segment
from roskva.feed.segment import FRAMES_AT, End, Segment, encode_end, encode_header

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_FRAME = 4096
_SYNC_EVERY_BYTES = 4 << 20  # and behind a sync


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
