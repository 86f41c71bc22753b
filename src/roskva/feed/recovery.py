"""Where the history ends, found out by a writer that opens a feed.

Up to its end word the newest segment is known to be durable, and whatever cannot be read there is
damage. Beyond it lies what its writer had not yet vouched for: frames that were synced a moment
before a crash, frames that never were, half a frame. The whole frames in an unbroken row are kept
(they may have been acknowledged), and the first that is not whole ends the history; it cannot have
been acknowledged, because a sync covers everything before it.

The kept ones are written again before they are synced. If a sync failed just before the crash, the
system may hold these pages for clean although they are on no disk, and would sync nothing.

Nothing is cut from the file. The next segment's header says where the history before it ends.
"""

from collections.abc import Iterable

import msgspec

from roskva.disk import Disk
from roskva.feed.base import START
from roskva.feed.frame import frame_at, is_sound
from roskva.feed.segment import FRAMES_AT, RESERVED, End, Segment, end_in


class Recovered(msgspec.Struct, frozen=True):
    last: int
    """The history ends here."""
    next: int
    """The first offset that was surely never used."""
    kept_bytes: int = 0
    """Beyond the end word, whole."""
    cut_bytes: int = 0
    """Behind that, torn."""


def recover(disk: Disk, newest: Segment, lineage: int, marked: Iterable[int]) -> Recovered:
    """`marked`: offsets that were there, even if they are not now: a reader has seen them and set
    its marker, or this is a copy that must skip what its original may have held."""
    content = memoryview(disk.map(newest.path))
    end = end_in(bytes(content[:FRAMES_AT]))
    end = end or End(newest.first - 1, FRAMES_AT)
    found = _sound_tail(content, end, lineage)
    if found.position > end.position:
        _write_again(disk, newest.path, content, end.position, found.position)
    known = found.last if found.last >= newest.first else newest.void_from - 1
    last = max(known, *marked, START)
    free = found.last + 1 if end.closed else newest.first + RESERVED
    return Recovered(
        last=last,
        next=max(free, last + 1),
        kept_bytes=found.position - end.position,
        cut_bytes=max(0, len(content) - found.position),
    )


def _sound_tail(content: memoryview, end: End, lineage: int) -> End:
    last, position = end.last, end.position
    while True:
        frame = frame_at(content, position, lineage)
        if frame is None or frame.first != last + 1 or not is_sound(content, frame):
            return End(last, position)
        last, position = frame.last, frame.end


def _write_again(disk: Disk, path: str, content: memoryview, start: int, stop: int) -> None:
    file = disk.open(path)
    try:
        file.write_at(bytes(content[start:stop]), start)
        file.sync()
    finally:
        file.close()
