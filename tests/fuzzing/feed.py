"""The feed: frames after damage, and what a writer finds at the end of its predecessor's segment.

What is read is what was written, or it is not read; never anything else.
"""

from typing import Final

from tests.feed.scenes import LINEAGE, updates
from tests.fuzzing.target import Target

from roskva.feed.arrow import rows_of
from roskva.feed.base import updates_of
from roskva.feed.frame import encode, encode_packed, next_frame, rows_from
from roskva.feed.recovery import recover
from roskva.feed.segment import End, Header, Segment, encode_end, encode_header, ends_in, headers_in
from roskva.model import Update
from roskva.simulation.disk import SimulatedDisk

_FIRST: Final = 1
_WRITTEN: Final = {
    _FIRST + i: update for i, update in enumerate(updates(*range(_FIRST, _FIRST + 9)))
}
_PATH: Final = "segment"


def _rows(first: int, count: int) -> list[Update]:
    return [_WRITTEN[offset] for offset in range(first, first + count)]


_FRAMES: Final = [
    encode_packed(LINEAGE, 1, 17, _rows(1, 1)),
    encode_packed(LINEAGE, 2, 17, _rows(2, 3)),
    encode(LINEAGE, 5, 17, rows_of(_rows(5, 1))),
    encode(LINEAGE, 6, 17, rows_of(_rows(6, 4))),
]
_HEADER: Final = encode_header(Header(LINEAGE, 1, _FIRST, _FIRST, 17))


def _segment(durable: int) -> bytes:
    """Its end word covers so many of the frames."""
    covered = b"".join(_FRAMES[:durable])
    last = (0, 1, 4, 5, 9)[durable]
    head = _HEADER + encode_end(End(last, len(_HEADER) + 64 + len(covered)))
    return head + b"".join(_FRAMES)


def _reads(data: bytes) -> bool:
    view, position, wanted, found = memoryview(data), 0, _FIRST, False
    while (frame := next_frame(view, position, LINEAGE, wanted)) is not None:
        rows = rows_from(view, frame, LINEAGE, max(_WRITTEN))
        if rows is not None:
            found = True
            read, first, frame = updates_of(rows[0]), frame.first, rows[1]
            assert read == [_WRITTEN[offset] for offset in range(first, frame.last + 1)]
        assert frame.end > position
        position, wanted = frame.end, frame.last + 1
    return found


def _recovers(data: bytes) -> bool:
    headers_in(data)
    ends_in(data)
    disk = SimulatedDisk()
    file = disk.create(_PATH)
    file.write_at(data, 0)
    file.close()
    header = Header(LINEAGE, 1, _FIRST, _FIRST, 17)
    found = recover(disk, Segment(_PATH, header), LINEAGE, ())
    assert found.next > found.last
    return found.last >= _FIRST


TARGETS: Final = [
    Target("feed frames", [b"".join(_FRAMES[i:]) for i in range(4)], _reads),
    Target(
        "feed segments",
        [_segment(i) for i in range(5)],
        _recovers,
        rounds=200_000,
    ),
]
