"""Where the history ends, found out by a writer that opens a feed.

Up to its end word the newest segment is known to be durable, and whatever cannot be read there is
damage. Beyond it lies what its writer had not yet vouched for: frames that were synced a moment
before a crash, frames that never were, half a frame. The whole frames in an unbroken row are kept
(they may have been acknowledged), and the first that is not whole ends the history; it cannot have
been acknowledged, because a sync covers everything before it.

The kept ones are written again before they are synced. If a sync failed just before the crash, the
system may hold these pages for clean although they are on no disk, and would sync nothing.

Nothing is cut from the file. The next segment's header says where the history before it ends.

**Skipping ahead.** A copy of a feed goes on beyond everything its original may have given away.
Whoever puts an older copy of a feed in place of the feed (a restore) calls `skip_ahead`. It puts
down, in the file `skip`, where the lost part of the history may have ended at the latest. The next
writer takes that for the end: its first segment begins after it, and readers are told that what
lies between is missing.

From then on that segment's header says so, and the file goes. Should a crash bring it back, it
changes nothing: the history is past it. Until it is gone a writer reads it *before* it lists the
segments, because the writer it pushes aside may be doing the same at that moment: it finds the file
or the segment, never neither.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Final

import msgspec

from roskva.disk import Disk, overwrite
from roskva.errors import Damaged
from roskva.feed.base import START, Marker
from roskva.feed.frame import frame_at, sound_body
from roskva.feed.reader import LogReader
from roskva.feed.record import read_record, write_record
from roskva.feed.segment import RESERVED, End, Segment, end_of

SKIP: Final = "skip"

DISTANCE: Final = 1 << 48
"""More offsets than any feed can have used since a copy of it was made."""


# Where the history ends.


class Recovered(msgspec.Struct, frozen=True):
    last: int
    """The history ends here."""
    next: int
    """The first offset that was surely never used."""
    kept_bytes: int = 0
    """Beyond the end word, whole."""
    cut_bytes: int = 0
    """Behind that, torn."""
    restored: bool = False
    """It was told to skip ahead: what its original went on with is not in it."""


def recover(
    disk: Disk, newest: Segment, lineage: int, marked: Iterable[int], skipped: int = START
) -> Recovered:
    """`marked`: offsets that were there, even if they are not now: a reader has seen them and set
    its marker. `skipped`: this is a copy, and its original may have held what is up to there."""
    content = memoryview(disk.map(newest.path))
    end = end_of(content, newest)
    found = _sound_tail(content, end, lineage)
    if found.position > end.position:
        tail = bytes(content[end.position : found.position])
        overwrite(disk, newest.path, tail, end.position)
    known = found.last if found.last >= newest.first else newest.void_from - 1
    last = max(known, *marked, skipped)
    free = found.last + 1 if end.closed else newest.first + RESERVED
    return Recovered(
        last=last,
        next=max(free, last + 1),
        kept_bytes=found.position - end.position,
        cut_bytes=max(0, len(content) - found.position),
        restored=skipped > known,
    )


def _sound_tail(content: memoryview, end: End, lineage: int) -> End:
    last, position = end.last, end.position
    while True:
        frame = frame_at(content, position, lineage)
        if frame is None or frame.first != last + 1 or sound_body(content, frame) is None:
            return End(last, position)
        last, position = frame.last, frame.end


# Skipping ahead.


def skip_ahead(disk: Disk, directory: str) -> None:
    """Let the next writer go on far beyond the end. To be called while there is no writer."""
    write_record(disk, f"{directory}/{SKIP}", _far_beyond(disk, directory))


def skip_in(disk: Disk, directory: str) -> Marker | None:
    """What a writer must take for the end of the history, if anything."""
    try:
        return read_record(disk, f"{directory}/{SKIP}", Marker)
    except FileNotFoundError:
        return None
    except Damaged:  # how far is lost, that it must be far is not
        return _far_beyond(disk, directory)


def remove_skip(disk: Disk, directory: str) -> None:
    """Once the segment that begins after it is durable."""
    with suppress(FileNotFoundError):
        disk.remove(f"{directory}/{SKIP}")


def _far_beyond(disk: Disk, directory: str) -> Marker:
    reader = LogReader(disk, directory)
    end = reader.end()
    # A skip that no writer has taken up yet may have been taken up in another copy.
    with suppress(FileNotFoundError, Damaged):
        skip = read_record(disk, f"{directory}/{SKIP}", Marker)
        if skip.lineage == reader.lineage:
            end = max(end, skip.offset)
    return Marker(reader.lineage, end + DISTANCE)
