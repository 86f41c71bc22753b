"""A segment: one file of frames; how those of a directory make one history; and the one in use.

    0    header       twice, 64 bytes each: lineage, writer, first, void from, created at
  128    end word     twice, 32 bytes each: how far the frames are durable
  192    frames

**The end word** is written after the frames before it were synced, so it never says too much; it is
not synced itself, so after a power cut it may say too little. Readers stop at it. Recovery goes on
from it. Both parts are kept twice, so that one flipped bit never hides a segment.

**The name** is `first-writer.log`. A segment may hold offsets `first … first + RESERVED − 1`. That
is the reservation: a writer that finds a segment without knowing how its writer ended goes on
beyond all of them, and no offset is ever used twice, whatever the crash took.

**Which offsets a segment owns** is said by its successor: `void from` is where the history before
it ends. The newest segment owns everything from its first offset on. Walking from the newest to the
oldest, each one owns what lies between its own first offset and the `void from` of its successor;
one that owns nothing is no part of the history. So a writer that lost (paused, and awake again) may
write what it likes: its frames are at or beyond the point that its successor has put down.
"""

import struct
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from google_crc32c import value as crc32c

from roskva.disk import Disk, File
from roskva.errors import BadConfig

FORMAT = 4
"""Since 2, frames may be packed (frame.py). Since 3, apps may be reset, and since 4, epochs are
records. A kind of row that older
readers do not know is a new format: they stop at the segment and say so."""
RESERVED = 1 << 20
FRAMES_AT = 192
SUFFIX = ".log"

_NEVER_OLD = 2**63 - 1
_MAGIC = b"ROSKVAfd"
_HEADER = struct.Struct("<8sIIQQQQqB7x")
_HEADER_CHECKED_FROM = 12
_END = struct.Struct("<IB3xQQ8x")
_END_CHECKED_FROM = 4
END_AT = 2 * _HEADER.size


class Header(msgspec.Struct, frozen=True):
    lineage: int
    writer: int
    first: int
    void_from: int
    created_at: int
    rewritten: bool = False


class End(msgspec.Struct, frozen=True):
    """Frames up to offset `last` are durable; they end at byte `position`."""

    last: int
    position: int
    closed: bool = False
    """The writer said goodbye: it has used no offset beyond `last`."""


class Segment(msgspec.Struct, frozen=True):
    path: str
    header: Header
    last: int | None = None
    """The last offset it owns; None for the newest, whose end word tells."""

    @property
    def first(self) -> int:
        return self.header.first

    @property
    def void_from(self) -> int:
        return self.header.void_from


def encode_header(header: Header) -> bytes:
    fields = (header.lineage, header.writer, header.first, header.void_from, header.created_at)
    raw = _HEADER.pack(_MAGIC, 0, FORMAT, *fields, header.rewritten)
    crc = _crc(raw[_HEADER_CHECKED_FROM:])
    return (raw[: len(_MAGIC)] + crc + raw[_HEADER_CHECKED_FROM:]) * 2


def encode_end(end: End) -> bytes:
    raw = _END.pack(0, end.closed, end.last, end.position)
    return (_crc(raw[_END_CHECKED_FROM:]) + raw[_END_CHECKED_FROM:]) * 2


def headers_in(raw: bytes) -> list[Header]:
    """The sound copies among the two."""
    return [found for i in (0, _HEADER.size) if (found := _header(raw[i : i + _HEADER.size]))]


def ends_in(raw: bytes) -> list[End]:
    starts = (END_AT, END_AT + _END.size)
    return [found for i in starts if (found := _end(raw[i : i + _END.size]))]


def end_in(raw: bytes) -> End | None:
    """Of two sound copies the later; a crash may have come between them."""
    return max(ends_in(raw), key=lambda end: (end.last, end.closed), default=None)


def end_of(content: memoryview, segment: Segment) -> End:
    """As its end word says; nothing is known to be durable where both copies are damaged."""
    return end_in(bytes(content[:FRAMES_AT])) or End(segment.first - 1, FRAMES_AT)


def name_of(first: int, writer: int) -> str:
    return f"{first:019d}-{writer:06d}{SUFFIX}"


def parse_name(name: str) -> tuple[int, int] | None:
    first, dash, writer = name.removesuffix(SUFFIX).partition("-")
    if not (name.endswith(SUFFIX) and dash and first.isdigit() and writer.isdigit()):
        return None
    return int(first), int(writer)


def load(disk: Disk, directory: str, names: Iterable[str], lineage: int) -> list[Segment]:
    """The segments of this lineage among these names, with `last` unknown."""
    found: list[Segment] = []
    for name in names:
        named = parse_name(name)
        if named is None:
            continue
        path = f"{directory}/{name}"
        try:
            headers = headers_in(disk.read(path, 0, FRAMES_AT))
        except FileNotFoundError:  # retention was faster
            continue
        # If both copies are damaged, the frames still carry their own offsets and can be read. Only
        # the void before them is forgotten, and will count as damage: the safe mistake.
        forgotten = Header(lineage, named[1], named[0], named[0], created_at=_NEVER_OLD)
        header = headers[0] if headers else forgotten
        if header.lineage == lineage:
            found.append(Segment(path, header))
    return found


def chain(segments: Iterable[Segment]) -> tuple[list[Segment], list[Segment]]:
    """The history, oldest first, and the strays that are no part of it."""
    history: list[Segment] = []
    strays: list[Segment] = []
    limit: int | None = None
    by_age = sorted(segments, key=lambda segment: (segment.header.writer, segment.first))
    for segment in reversed(by_age):
        if limit is not None and segment.first >= limit:
            strays.append(segment)
            continue
        history.append(
            segment if limit is None else msgspec.structs.replace(segment, last=limit - 1)
        )
        limit = segment.void_from
    history.reverse()
    return history, strays


def _crc(data: bytes) -> bytes:
    return int(crc32c(data)).to_bytes(4, "little")


def _header(raw: bytes) -> Header | None:
    if len(raw) < _HEADER.size:
        return None
    magic, crc, version, *fields, rewritten = _HEADER.unpack(raw)
    if magic != _MAGIC or crc32c(raw[_HEADER_CHECKED_FROM:]) != crc:
        return None
    if version > FORMAT:
        raise BadConfig(f"this feed has format {version}, newer than {FORMAT}: update Roskva")
    lineage, writer, first, void_from, created_at = fields
    return Header(lineage, writer, first, void_from, created_at, bool(rewritten))


def _end(raw: bytes) -> End | None:
    if len(raw) < _END.size:
        return None
    crc, closed, last, position = _END.unpack(raw)
    if crc32c(raw[_END_CHECKED_FROM:]) != crc:
        return None
    return End(last, position, bool(closed))


class ActiveSegment:
    """Knows how far it has been written. After an error from `append` it must not be used again:
    nobody can say which bytes are on the disk."""

    def __init__(self, file: File, first: int) -> None:
        self.first = first
        self.last = first - 1
        self.position = FRAMES_AT
        self._file = file

    def append(self, frames: bytes, last: int) -> None:
        """Neither durable yet nor visible."""
        self._file.write_at(frames, self.position)
        self.position += len(frames)
        self.last = last

    def sync(self) -> None:
        self._file.sync()

    def publish(self) -> None:
        """Let readers see what is durable."""
        self._file.write_at(encode_end(End(self.last, self.position)), END_AT)

    def finish(self) -> None:
        """Say that no further offset was used, so that the next writer can go on without a void."""
        self._file.write_at(encode_end(End(self.last, self.position, closed=True)), END_AT)
        self._file.sync()

    def close(self) -> None:
        with suppress(OSError):
            self._file.close()


def start_segment(disk: Disk, directory: str, header: Header) -> ActiveSegment:
    """A new segment appears with a whole header or not at all."""
    path = f"{directory}/{name_of(header.first, header.writer)}"
    file = disk.create(path + ".tmp")
    try:
        end = End(header.first - 1, FRAMES_AT)
        file.write_at(encode_header(header) + encode_end(end), 0)
        file.sync()
        disk.rename(path + ".tmp", path)
        disk.sync_directory(directory)
    except BaseException:
        file.close()
        with suppress(OSError):
            disk.remove(path + ".tmp")
        raise
    return ActiveSegment(file, header.first)
