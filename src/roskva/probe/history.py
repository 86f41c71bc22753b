"""What the prober has found, on disk, so that error budgets outlive its processes.

DATA/probe/history, and what was there before it as `history.old`, are lines of text:

    roskva-probe 1 register publish notify-websocket …    the columns
    1763526883.2 =                                        a run begins to measure
    1763526888.2 ++x-                                     a round: kept, missed, not measured

Times are wall-clock seconds; within a run they follow the monotonic clock. A file is put away when
it is a day old, so two of them are all there is. What was written is synced once a minute: the
system keeps it if a process is killed, and after a power cut a minute more counts as missed. A file
of other columns, and a line that is no line, is left out.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from roskva.config import SLIS
from roskva.disk import MINE_ALONE

DAY_S: Final = 86_400.0
KEPT: Final = "probe"
"""In the data directory: this, and the identities of the prober's clients."""
_FILE: Final = "history"
_OLD: Final = "history.old"
_HEAD: Final = " ".join(("roskva-probe 1", *SLIS))
_BEGINS: Final = "="
_KEPT, _MISSED, _NOT_MEASURED = "+x-"
_SYNC_EVERY_S: Final = 60.0
_NEVER: Final = float("-inf")
_log = logging.getLogger(__name__)


class Note(NamedTuple):
    at: float
    missed: Mapping[str, bool] | None
    """By SLI, of those that were measured; None: a run begins."""


class History:
    def __init__(self, directory: Path) -> None:
        """It is made if need be."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / _FILE
        self._old = directory / _OLD
        self._began: float | None = None
        """When the file did; None: it was not looked at."""
        self._end = "\n"
        """Of a line that an earlier run has cut off."""
        self._synced = 0.0
        self._failed = False

    def read(self, now: float) -> list[Note]:
        """The oldest first. Notes of the future are of a clock that was wrong."""
        notes = [note for path in (self._old, self._path) for note in _notes(path)]
        return [note for note in notes if note.at <= now]

    def add(self, note: Note) -> None:
        """What cannot be written is lost, and no more: the node may well be full."""
        try:
            self._write(note)
            self._failed = False
        except OSError as error:
            if not self._failed:
                _log.warning("what the prober finds is not kept: %s", error)
            self._failed = True

    def _write(self, note: Note) -> None:
        if self._began is None:
            first = next(_notes(self._path), None)
            self._began = _NEVER if first is None else first.at
        if not note.at - DAY_S < self._began <= note.at:
            if self._began != _NEVER:
                self._path.replace(self._old)
            self._path.write_text(f"{_HEAD}\n")
            self._path.chmod(MINE_ALONE)
            self._began = note.at
        with self._path.open("ab", buffering=0) as file:
            file.write(f"{self._end}{note.at:.1f} {_marks(note)}\n".encode())
            self._end = ""
            if note.at - self._synced >= _SYNC_EVERY_S:
                os.fdatasync(file.fileno())
                self._synced = note.at


def forget(directory: Path) -> None:
    """Nobody measures from now on: the time until somebody does again is no outage."""
    for name in (_FILE, _OLD):
        (directory / name).unlink(missing_ok=True)


def _marks(note: Note) -> str:
    found = note.missed
    if found is None:
        return _BEGINS
    marks = {True: _MISSED, False: _KEPT, None: _NOT_MEASURED}
    return "".join(marks[found.get(sli)] for sli in SLIS)


def _notes(path: Path) -> Iterator[Note]:
    try:
        head, *lines = path.read_text("ascii", "replace").split("\n")
    except FileNotFoundError:
        return
    for line in lines if head == _HEAD else ():
        at, _, marks = line.partition(" ")
        if not at.replace(".", "", 1).isdigit():
            continue
        if marks == _BEGINS:
            yield Note(float(at), None)
        elif len(marks) == len(SLIS):
            found = zip(SLIS, marks, strict=True)
            yield Note(float(at), {s: m == _MISSED for s, m in found if m in (_KEPT, _MISSED)})
