"""Looking at every byte of a feed, and mending what can be mended without losing a readable one.

`verify` only reads, and may run beside a writer. `repair` becomes the writer for a moment.
"""

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from roskva.disk import Disk, overwrite, storage_errors
from roskva.errors import Damaged
from roskva.feed.base import Locked, Marker, Missing
from roskva.feed.claim import is_claimed
from roskva.feed.frame import next_frame, rows_from
from roskva.feed.log import Log
from roskva.feed.reader import LogReader, View, map_segment, missing_from
from roskva.feed.record import MARKERS, META, read_markers, read_meta, read_record
from roskva.feed.recovery import SKIP, Recovered
from roskva.feed.segment import (
    END_AT,
    FRAMES_AT,
    Segment,
    encode_end,
    encode_header,
    end_in,
    ends_in,
    headers_in,
)

COPIES = 2


class Problem(msgspec.Struct, frozen=True):
    file: str
    what: str
    lost: tuple[int, int] | None = None
    """The offsets that cannot be read because of it, first and last."""
    torn_tail: bool = False
    """No damage: the end of a writer that was cut off. The next writer steps over it."""


class Checked(msgspec.Struct, frozen=True):
    """One file, or for meta and markers all of them."""

    file: str
    size: int = 0
    frames: int = 0
    updates: int = 0
    problems: tuple[Problem, ...] = ()
    left_out: Missing | None = None
    """No damage: what a restore has gone past."""


def verify(disk: Disk, directory: str) -> Iterator[Checked]:
    """File by file, so that whoever waits can be shown how far it is."""
    with storage_errors(f"checking the feed in {directory}"):
        reader = LogReader(disk, directory)
        yield _check_meta(disk, directory)
        yield _check_markers(disk, directory)
        yield _check_skip(disk, directory)
        writer_alive = is_claimed(disk, directory)
        for segment in reader.segments():
            yield _check_segment(disk, segment, reader.lineage, writer_alive)


def repair(disk: Disk, directory: str, now_us: int) -> list[str]:
    """What was done, a sentence each. Raises Locked while a writer is alive."""
    with storage_errors(f"repairing the feed in {directory}"):
        if is_claimed(disk, directory):
            raise Locked("a writer is alive; stop it first")
        reader = LogReader(disk, directory)
        done = [_mend_copies(disk, segment) for segment in reader.segments()]
        found = [problem for checked in verify(disk, directory) for problem in checked.problems]
        if any(problem.torn_tail or problem.file in (META, SKIP) for problem in found):
            # A writer that opens a feed steps over its torn tail, restores its meta file and skips
            # ahead if it was told to.
            log = Log.open(disk, directory, lineage=reader.lineage, now_us=now_us)
            log.close()
            done += [_sentence(problem, log.recovered) for problem in found]
        return [sentence for sentence in done if sentence]


def _check_meta(disk: Disk, directory: str) -> Checked:
    try:
        if read_meta(disk, directory) is not None:
            return Checked(META)
        state = "missing"
    except Damaged:
        state = "damaged"
    return Checked(META, problems=(Problem(META, f"{state}; the segments repeat it"),))


def _check_markers(disk: Disk, directory: str) -> Checked:
    _, damaged = read_markers(disk, directory)
    what = "damaged; nothing expires until its reader sets it again"
    return Checked(MARKERS, problems=tuple(Problem(f"{MARKERS}/{n}", what) for n in damaged))


def _check_skip(disk: Disk, directory: str) -> Checked:
    with suppress(FileNotFoundError):
        try:
            read_record(disk, f"{directory}/{SKIP}", Marker)
        except Damaged:
            what = "damaged; the next writer skips as far as it would have to now"
            return Checked(SKIP, problems=(Problem(SKIP, what),))
    return Checked(SKIP)


def _check_segment(disk: Disk, segment: Segment, lineage: int, writer_alive: bool) -> Checked:
    name = _name(segment)
    try:
        size = disk.size(segment.path)
        view = map_segment(disk, segment)
        problems = _check_copies(disk, segment, name)
    except FileNotFoundError:  # retention was faster
        return Checked(name)
    frames, updates, holes = _check_frames(view, lineage)
    lost = [(hole.first, hole.last) for hole in holes if hole.why == "damage"]
    problems += [
        Problem(name, f"offsets {first} to {last} cannot be read", (first, last))
        for first, last in lost
    ]
    left_out = next((hole for hole in holes if hole.why == "restore"), None)
    if segment.last is None and not writer_alive and size > len(view.content):
        tail = size - len(view.content)
        problems.append(Problem(name, f"{tail} bytes after the last commit", torn_tail=True))
    return Checked(name, size, frames, updates, tuple(problems), left_out)


def _check_copies(disk: Disk, segment: Segment, name: str) -> list[Problem]:
    raw = disk.read(segment.path, 0, FRAMES_AT)
    if len(ends_in(raw)) < COPIES:  # perhaps it was just being written
        raw = disk.read(segment.path, 0, FRAMES_AT)
    found = {"header": len(headers_in(raw)), "end word": len(ends_in(raw))}
    return [
        Problem(name, f"{COPIES - sound} of {COPIES} copies of the {what} damaged")
        for what, sound in found.items()
        if sound < COPIES
    ]


def _check_frames(view: View, lineage: int) -> tuple[int, int, list[Missing]]:
    frames = updates = 0
    holes: list[Missing] = []
    position, wanted = FRAMES_AT, view.segment.first
    while wanted <= view.last:
        frame = next_frame(view.content, position, lineage, wanted)
        if frame is None or frame.last > view.last:
            holes.append(missing_from(view, wanted))
            wanted = holes[-1].last + 1
            continue
        if frame.first > wanted:
            holes.append(Missing(wanted, frame.first - 1, "damage"))
        if rows_from(view.content, frame, lineage, frame.last) is None:
            holes.append(Missing(frame.first, frame.last, "damage"))
        else:
            frames += 1
            updates += frame.last - frame.first + 1
        position, wanted = frame.end, frame.last + 1
    return frames, updates, holes


def _mend_copies(disk: Disk, segment: Segment) -> str:
    raw = disk.read(segment.path, 0, FRAMES_AT)
    headers, ends, end = headers_in(raw), ends_in(raw), end_in(raw)
    mended = bytearray(raw)
    if len(headers) == 1:
        mended[:END_AT] = encode_header(headers[0])
    if end and ends != [end] * COPIES:
        mended[END_AT:] = encode_end(end)
    if mended == raw:
        return ""
    overwrite(disk, segment.path, bytes(mended), 0)
    return f"{_name(segment)}: restored header and end word from their second copies"


def _sentence(problem: Problem, recovered: Recovered) -> str:
    if problem.file == META:
        return f"{META}: written anew from what the segments say"
    if problem.file == SKIP:
        return f"{SKIP}: taken up; it goes on after offset {recovered.last}"
    if problem.torn_tail:
        return (
            f"{problem.file}: kept {recovered.kept_bytes} bytes of whole frames after the last "
            f"commit, cut {recovered.cut_bytes} torn ones; it ends at offset {recovered.last}"
        )
    return ""


def _name(segment: Segment) -> str:
    return segment.path.rpartition("/")[2]
