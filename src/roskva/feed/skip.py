"""Skipping ahead: a copy of a feed goes on beyond everything its original may have given away.

Whoever puts an older copy of a feed in place of the feed (a restore) calls `skip_ahead`. It puts
down, in the file `skip`, where the lost part of the history may have ended at the latest. The next
writer takes that for the end: its first segment begins after it, and readers are told that what
lies between is missing.

From then on that segment's header says so, and the file goes. Should a crash bring it back, it
changes nothing: the history is past it. Until it is gone a writer reads it *before* it lists the
segments, because the writer it pushes aside may be doing the same at that moment: it finds the file
or the segment, never neither.
"""

from contextlib import suppress
from typing import Final

from roskva.disk import Disk
from roskva.errors import Damaged
from roskva.feed.base import Marker
from roskva.feed.reader import LogReader
from roskva.feed.record import read_record, write_record

SKIP: Final = "skip"

DISTANCE: Final = 1 << 48
"""More offsets than any feed can have used since a copy of it was made."""


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
