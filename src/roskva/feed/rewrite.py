"""Turning the many small frames of a finished segment into few large ones.

A frame as it was written holds one commit group, often a single row; reading a million of them one
by one crawls. The rewritten segment has the same name, header and offsets. It is written beside the
old one, synced and renamed over it, so a crash leaves one or the other, and a reader that has the
old one mapped goes on reading it. A segment with damage is left as it is: its bytes are evidence.
"""

from collections.abc import Callable, Generator, Iterator
from contextlib import suppress

import msgspec
import pyarrow as pa

from roskva.disk import Disk, File
from roskva.errors import Damaged
from roskva.feed.frame import encode, next_frame, rows_in
from roskva.feed.reader import View, map_segment
from roskva.feed.segment import FRAMES_AT, End, Segment, encode_end, encode_header

ROWS_PER_FRAME = 4096
_SYNC_EVERY_BYTES = 4 << 20  # one sync of a whole segment would hold up the commits beside it


def rewrite(
    disk: Disk, segment: Segment, lineage: int, may_replace: Callable[[], None]
) -> Generator[None]:
    """Pauses after every frame. Raises Damaged, changing nothing, if a row cannot be read."""
    temporary = segment.path + ".rewrite.tmp"
    with suppress(FileNotFoundError):
        disk.remove(temporary)
    file = disk.create(temporary)
    try:
        yield from _write(file, map_segment(disk, segment), lineage)
        may_replace()
        disk.rename(temporary, segment.path)
    except BaseException:
        with suppress(OSError):
            disk.remove(temporary)
        raise
    finally:
        file.close()
    disk.sync_directory(segment.path.rpartition("/")[0])


def _write(file: File, view: View, lineage: int) -> Iterator[None]:
    segment, position, synced = view.segment, FRAMES_AT, 0
    first = segment.first
    for appended_at, rows in _large_batches(view, lineage):
        frame = encode(lineage, first, appended_at, rows)
        file.write_at(frame, position)
        position += len(frame)
        first += rows.num_rows
        if position - synced > _SYNC_EVERY_BYTES:
            file.sync()
            synced = position
        yield
    header = msgspec.structs.replace(segment.header, rewritten=True)
    end = End(view.last, position, closed=True)
    file.write_at(encode_header(header) + encode_end(end), 0)
    file.sync()


def _large_batches(view: View, lineage: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    waiting: list[pa.RecordBatch] = []
    count = newest = 0
    for appended_at, rows in _batches(view, lineage):
        if count + rows.num_rows > ROWS_PER_FRAME and waiting:
            yield newest, _joined(waiting)
            waiting, count = [], 0
        waiting.append(rows)
        count += rows.num_rows
        newest = appended_at
    if waiting:
        yield newest, _joined(waiting)


def _batches(view: View, lineage: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    position, wanted = FRAMES_AT, view.segment.first
    while wanted <= view.last:
        frame = next_frame(view.content, position, lineage, wanted)
        rows = frame and rows_in(view.content, frame)
        if frame is None or rows is None or frame.first != wanted:
            raise Damaged(f"{view.segment.path}: offset {wanted} cannot be read")
        yield frame.appended_at, rows
        position, wanted = frame.end, frame.last + 1


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
