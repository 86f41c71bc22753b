"""A frame: rows in a segment, and how to find the next ones after damage.

    0  magic          "RKf1"
    4  header crc     CRC32C of the header from byte 8 on
    8  body length    of what follows the header, a multiple of 8
   12  body crc       CRC32C of the body
   16  lineage        so that a frame is never taken for one of another feed
   24  count          rows
   28  packed         bytes of the body that are MessagePack, zeros follow them; 0: the body is an
                      Arrow IPC record batch
   32  first          offset of the first row
   40  appended at    wall-clock microseconds
   48  body

The header has a checksum of its own: a flip in the body then costs exactly this frame, whose length
and offsets are still known. A flip in the header costs it too, and the next frame is searched for.
What the search finds must carry the feed's lineage, 64 bits that publishers never see; without it,
a payload that contains the image of a frame could pass for one after a well-placed flip.

**Few rows are packed**: an array of rows, each of them an array of the fields of an `Update`. All
who publish wait for it, and a record batch takes ten times as long to make and is five times as
large. Whoever reads makes one record batch of the rows of many such frames.
"""

import re
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from google_crc32c import value as crc32c
from msgspec.structs import astuple

from roskva.model import Update

if TYPE_CHECKING:
    import pyarrow as pa

MAGIC = b"RKf1"
TOGETHER_BYTES: Final = 32 << 10
"""Of packed frames, read at once: about a millisecond."""
_TOGETHER_US: Final = 1_000_000
"""Between them: rows that are read at once have one time at which they were appended."""
_HEADER = struct.Struct("<4sIIIQIIQq")
_AFTER_CRC = struct.Struct("<IIQIIQq")
_CHECKED_FROM = 8
_ALIGNMENT = 8
_MAGICS = re.compile(re.escape(MAGIC))
_MIN, _MAX = -(2**63), 2**63 - 1

_Int64 = Annotated[int, msgspec.Meta(ge=_MIN, le=_MAX)]
_Row = tuple[str, _Int64, str | None, bytes | None, _Int64, bool]
"""The fields of an Update."""
_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(list[_Row]).decode


class FrameHeader(msgspec.Struct, frozen=True, gc=False):
    """A sound header; the body is checked when its rows are asked for."""

    position: int
    end: int
    """Where the next frame begins."""
    first: int
    last: int
    appended_at: int
    body_crc: int
    packed: int


def encode(lineage: int, first: int, appended_at: int, rows: "pa.RecordBatch") -> bytes:
    return _framed(lineage, first, appended_at, rows.num_rows, rows.serialize().to_pybytes(), 0)


def encode_packed(lineage: int, first: int, appended_at: int, updates: Sequence[Update]) -> bytes:
    if not all(_MIN <= u.version <= _MAX and _MIN <= u.published_at <= _MAX for u in updates):
        raise OverflowError("a number in an update has more than 64 bits")
    rows = _pack([astuple(update) for update in updates])
    body = rows + bytes(-len(rows) % _ALIGNMENT)
    return _framed(lineage, first, appended_at, len(updates), body, len(rows))


def _framed(
    lineage: int, first: int, appended_at: int, count: int, body: bytes, packed: int
) -> bytes:
    checked = _AFTER_CRC.pack(len(body), crc32c(body), lineage, count, packed, first, appended_at)
    return b"".join((MAGIC, crc32c(checked).to_bytes(4, "little"), checked, body))


def frame_at(view: memoryview, position: int, lineage: int) -> FrameHeader | None:
    """The frame that starts here, if its header is sound and all of it lies within the view."""
    if position + _HEADER.size > len(view):
        return None
    magic, crc, length, body_crc, of, count, packed, first, appended_at = _HEADER.unpack_from(
        view, position
    )
    if magic != MAGIC or of != lineage or not count or packed > length:
        return None
    checked = bytes(view[position + _CHECKED_FROM : position + _HEADER.size])
    end = position + _HEADER.size + length
    if crc32c(checked) != crc or end > len(view):
        return None
    return FrameHeader(position, end, first, first + count - 1, appended_at, body_crc, packed)


def next_frame(view: memoryview, position: int, lineage: int, wanted: int) -> FrameHeader | None:
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


def rows_from(
    view: memoryview, frame: FrameHeader, lineage: int, last: int
) -> "tuple[pa.RecordBatch, FrameHeader] | None":
    """The rows of this frame, and if it is packed also of packed ones that follow, as far as offset
    `last`; and the last frame that was read. None if this one is damaged.

    Those of a record batch are mapped and not copied."""
    from roskva.feed.arrow import buffer_of, decoded, record_batch

    if not frame.packed:
        body = buffer_of(_body(view, frame))
        return (decoded(body), frame) if crc32c(body) == frame.body_crc else None
    rows, newest = _unpacked(view, frame), frame
    if not rows:
        return None
    while newest.end - frame.position < TOGETHER_BYTES:
        following = frame_at(view, newest.end, lineage)
        if following is None or following.first != newest.last + 1 or following.last > last:
            break
        if abs(following.appended_at - frame.appended_at) > _TOGETHER_US:
            break
        more = _unpacked(view, following) if following.packed else []
        if not more:
            break
        rows += more
        newest = following
    return record_batch(rows), newest


def _unpacked(view: memoryview, frame: FrameHeader) -> list[_Row]:
    """None of them if it is damaged."""
    body = sound_body(view, frame)
    if body is None:
        return []
    try:
        rows = _unpack(memoryview(body)[: frame.packed])
    except msgspec.MsgspecError:
        return []
    return rows if len(rows) == frame.last - frame.first + 1 else []


def sound_body(view: memoryview, frame: FrameHeader) -> bytes | None:
    """None if it is not what was written."""
    body = bytes(_body(view, frame))  # a copy: checksums are not taken of a memoryview
    return body if crc32c(body) == frame.body_crc else None


def _body(view: memoryview, frame: FrameHeader) -> memoryview:
    return view[frame.position + _HEADER.size : frame.end]


def _next_magic(view: memoryview, position: int) -> int:
    """In place: publishers may fill their payloads with it, and a copy for each would never end."""
    for found in _MAGICS.finditer(view, position + _ALIGNMENT):
        if found.start() % _ALIGNMENT == 0:
            return found.start()
    return -1
