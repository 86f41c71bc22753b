"""A frame: one record batch in a segment, and how to find the next one after damage.

    0  magic          "RKf1"
    4  header crc     CRC32C of the header from byte 8 on
    8  body length    of the Arrow IPC record batch that follows, a multiple of 8
   12  body crc       CRC32C of the body
   16  lineage        so that a frame is never taken for one of another feed
   24  count          rows
   28  zero
   32  first          offset of the first row
   40  appended at    wall-clock microseconds
   48  body

The header has a checksum of its own: a flip in the body then costs exactly this frame, whose length
and offsets are still known. A flip in the header costs it too, and the next frame is searched for.
What the search finds must carry the feed's lineage, 64 bits that publishers never see; without it,
a payload that contains the image of a frame could pass for one after a well-placed flip.
"""

import re
import struct
from typing import TYPE_CHECKING

import msgspec
from google_crc32c import value as crc32c

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"RKf1"
_HEADER = struct.Struct("<4sIIIQIIQq")
_AFTER_CRC = struct.Struct("<IIQIIQq")
_CHECKED_FROM = 8
_ALIGNMENT = 8
_MAGICS = re.compile(re.escape(MAGIC))


class Frame(msgspec.Struct, frozen=True, gc=False):
    """A sound header; the body is checked when its rows are asked for."""

    position: int
    end: int
    """Where the next frame begins."""
    first: int
    last: int
    appended_at: int
    body_crc: int


def encode(lineage: int, first: int, appended_at: int, rows: "pa.RecordBatch") -> bytes:
    body = rows.serialize().to_pybytes()
    checked = _AFTER_CRC.pack(
        len(body), crc32c(body), lineage, rows.num_rows, 0, first, appended_at
    )
    return b"".join((MAGIC, crc32c(checked).to_bytes(4, "little"), checked, body))


def frame_at(view: "pa.Buffer", position: int, lineage: int) -> Frame | None:
    """The frame that starts here, if its header is sound and all of it lies within the view."""
    if position + _HEADER.size > view.size:
        return None
    magic, crc, length, body_crc, of, count, zero, first, appended_at = _HEADER.unpack_from(
        view, position
    )
    if magic != MAGIC or of != lineage or zero or not count:
        return None
    checked = view.slice(position + _CHECKED_FROM, _HEADER.size - _CHECKED_FROM)
    end = position + _HEADER.size + length
    if crc32c(checked) != crc or end > view.size:
        return None
    return Frame(position, end, first, first + count - 1, appended_at, body_crc)


def next_frame(view: "pa.Buffer", position: int, lineage: int, wanted: int) -> Frame | None:
    """The first sound frame from here on that reaches `wanted`, whatever damage is before it."""
    while True:
        frame = frame_at(view, position, lineage)
        if frame is None:
            position = _next_magic(view, position)
            if position < 0:
                return None
        elif frame.last >= wanted:
            return frame
        else:
            position = frame.end


def rows_in(view: "pa.Buffer", frame: Frame) -> "pa.RecordBatch | None":
    """Its rows, mapped and not copied; None if the body is damaged."""
    from roskva.feed.arrow import decoded

    body = view.slice(frame.position + _HEADER.size, frame.end - frame.position - _HEADER.size)
    if crc32c(body) != frame.body_crc:
        return None
    return decoded(body)


def _next_magic(view: "pa.Buffer", position: int) -> int:
    """In place: publishers may fill their payloads with it, and a copy for each would never end."""
    for found in _MAGICS.finditer(view, position + _ALIGNMENT):
        if found.start() % _ALIGNMENT == 0:
            return found.start()
    return -1
