"""The embedded feed: a directory of segments with one writer.

    meta                      format and lineage
    writer-000007             the claim of the writer (claim.py)
    markers/NAME              how far each reader is (record.py)
    skip                      in a restored copy, till its first writer: where to go on
                              (recovery.py)
    0000000000000000001-000007.log
                              frames from offset 1 on, by writer 7 (segment.py, frame.py)

This is the plain, synchronous half: it runs on whatever disk it is given, and time comes in. The
half that puts it on a thread and gathers publishers into groups is commit.py.

**A commit**: encode, write, sync, *am I still the writer?*, move the end word, done. One sync, for
however many publishers. If writing or syncing fails, nobody knows what is on the disk, so the
segment is left for good: the next commit starts another one, whose header says that the history
ends at the last success. The failed updates are then nowhere, whether or not their bytes are.

**Opening** always starts a segment. It is the one step that ends the previous writer's history
(recovery.py), and until its header is durable nothing has changed.
"""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import msgspec

from roskva.disk import Disk, storage_errors
from roskva.errors import BadInput, Damaged, Overloaded
from roskva.feed import record
from roskva.feed.base import START, Committed, Marker
from roskva.feed.claim import Claim, take_claim
from roskva.feed.frame import encode, encode_packed
from roskva.feed.reader import LogReader, meta_from_segments
from roskva.feed.recovery import Recovered, recover, remove_skip, skip_in
from roskva.feed.segment import (
    FORMAT,
    RESERVED,
    ActiveSegment,
    Header,
    Segment,
    chain,
    load,
    parse_name,
    start_segment,
)
from roskva.feed.upkeep import ROWS_PER_FRAME, Retention, expired, rewrite
from roskva.model import Update

MAX_GROUP_ROWS = RESERVED // 16
_FEW = 128
"""Up to so many rows, packing them saves publishers more than it costs readers."""


class LogConfig(msgspec.Struct, frozen=True):
    segment_bytes: int = 16 << 20
    retention: Retention = Retention()
    packed: bool = False
    """All rows are packed and stay so: for who writes without Arrow, and is seldom read."""


class Log:
    """Writes a directory of segments. Made by `Log.open`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        claim: Claim,
        lineage: int,
        recovered: Recovered,
        config: LogConfig,
    ) -> None:
        self.recovered = recovered
        self._disk = disk
        self._directory = directory
        self._claim = claim
        self.lineage = lineage
        self._config = config
        self.last = recovered.last
        """The history ends here."""
        self.next = recovered.next
        """The offset of what is appended next."""
        self._pending: list[Update] = []
        self._written: Committed | None = None
        """What is on its way to the disk."""
        self._active: ActiveSegment | None = None
        self._tidying: Generator[None] | None = None
        self._damaged: set[str] = set()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        *,
        lineage: int,
        now_us: int,
        config: LogConfig | None = None,
        takeover: bool = False,
    ) -> "Log":
        """Become the writer. `lineage`: 64 random bits, used if there is no feed here yet.

        `takeover` pushes aside a writer that is alive; without it that is an error, `Locked`.
        """
        config = config or LogConfig()
        if not config.packed:
            import roskva.feed.arrow  # noqa: F401  # now, and not while the first publisher waits

        with storage_errors(f"opening the feed in {directory}"):
            disk.make_directory(directory)
            disk.make_directory(f"{directory}/{record.MARKERS}")
            used = [named[1] for name in disk.list(directory) if (named := parse_name(name))]
            claim = take_claim(disk, directory, max(used, default=0), takeover)
            try:
                lineage = _settle_meta(disk, directory, lineage)
                recovered = _recover(disk, directory, lineage)
                log = cls(disk, directory, claim, lineage, recovered, config)
                log._start_segment(recovered.next, now_us)
                log._clear_away()
            except BaseException:
                claim.release()
                raise
            return log

    def reader(self) -> LogReader:
        return LogReader(self._disk, self._directory)

    def append(self, updates: Sequence[Update]) -> int:
        """Queue updates for the next commit; the offset of the first of them."""
        if len(self._pending) + len(updates) > MAX_GROUP_ROWS:
            raise Overloaded(f"more than {MAX_GROUP_ROWS} updates wait for one commit")
        first = self.next
        self._pending.extend(updates)
        self.next += len(updates)
        return first

    def commit(self, now_us: int) -> Committed | None:
        """Make everything appended durable and visible. None: there was nothing to do."""
        self.write(now_us)
        self.sync()
        return self.finish()

    # A commit in steps, for whoever commits to several feeds at once.

    def write(self, now_us: int) -> None:
        if not self._pending:
            return
        updates, self._pending = self._pending, []
        base, last = self.next - len(updates), self.next - 1
        frames = self._encode(base, updates, now_us)
        try:
            active = self._active
            if active is None or not self._fits(active, base):
                active = self._start_segment(base, now_us)
            active.append(frames, last)
        except BaseException as error:
            self._give_up(error)
        self._written = Committed(self.last + 1, base, last, now_us, updates)

    def sync(self) -> None:
        """May run on another thread than the steps before and after it."""
        if self._written is not None and self._active is not None:
            try:
                self._active.sync()
            except BaseException as error:
                self._give_up(error)

    def finish(self) -> Committed | None:
        committed, self._written = self._written, None
        if committed is None or self._active is None:
            return None
        try:
            self._claim.check()
        except BaseException as error:
            self._give_up(error)
        try:
            self._active.publish()
        except OSError:
            # It is durable and counts. The header of the next segment will show it to readers.
            self._abandon()
        self.last = committed.last
        return committed

    def set_marker(self, name: str, marker: Marker) -> None:
        if marker.lineage != self.lineage or marker.offset > self.last:
            raise BadInput(f"{marker} is not of this feed: {self.lineage}, up to {self.last}")
        with storage_errors(f"writing the marker {name}"):
            record.write_marker(self._disk, self._directory, name, marker)

    def tidy(self, now_us: int) -> bool:
        """One slice, a millisecond or so, of retention and rewriting; whether there is more."""
        if self._tidying is None:
            self._tidying = self._tidy(now_us)
        try:
            with self._errors("tidying the feed"):
                next(self._tidying)
        except StopIteration:
            self._tidying = None
            return False
        except BaseException:
            self._tidying = None
            raise
        return True

    def close(self) -> None:
        """What was appended and not committed is dropped."""
        if self._tidying is not None:
            self._tidying.close()
        if self._active is not None:
            with suppress(OSError):  # the next writer then leaves a void, and that is all
                self._active.finish()
            self._abandon()
        self._claim.release()

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        with storage_errors(doing):
            try:
                yield
            except FileNotFoundError:
                self._claim.check()  # a successor clears away what its predecessor was making
                raise

    def _give_up(self, error: BaseException) -> NoReturn:
        """Nobody knows what is on the disk: the segment is left for good."""
        self._written = None
        self._abandon()
        with self._errors("appending to the feed"):
            raise error

    def _encode(self, base: int, updates: list[Update], now_us: int) -> bytes:
        if self._config.packed or len(updates) <= _FEW:
            return encode_packed(self.lineage, base, now_us, updates)
        from roskva.feed.arrow import rows_of

        return b"".join(
            encode(self.lineage, base + i, now_us, rows_of(updates[i : i + ROWS_PER_FRAME]))
            for i in range(0, len(updates), ROWS_PER_FRAME)
        )

    def _fits(self, active: ActiveSegment, base: int) -> bool:
        follows = base == active.last + 1  # not so after updates that could not be encoded
        has_room = active.position < self._config.segment_bytes
        return follows and has_room and self.next - active.first <= RESERVED

    def _start_segment(self, first: int, now_us: int) -> ActiveSegment:
        self._claim.check()
        self._abandon()
        header = Header(self.lineage, self._claim.number, first, self.last + 1, now_us)
        self._active = start_segment(self._disk, self._directory, header)
        return self._active

    def _abandon(self) -> None:
        if self._active is not None:
            self._active.close()
            self._active = None

    def _clear_away(self) -> None:
        """What is no part of the history, now that the segment that decides it is durable."""
        for name in self._disk.list(self._directory):
            if name.endswith(".tmp"):
                self._disk.remove(f"{self._directory}/{name}")
        for stray in _segments(self._disk, self._directory, self.lineage)[1]:
            self._disk.remove(stray.path)
        remove_skip(self._disk, self._directory)

    def _tidy(self, now_us: int) -> Generator[None]:
        history, _ = _segments(self._disk, self._directory, self.lineage)
        sizes = [self._disk.size(segment.path) for segment in history]
        gone = expired(history, sizes, self._slowest(), self._config.retention, now_us)
        for segment in history[:gone]:
            self._claim.check()
            self._disk.remove(segment.path)
            # One by one, so that a crash cannot leave a hole in the middle of the history.
            self._disk.sync_directory(self._directory)
            yield
        for segment in () if self._config.packed else history[gone:-1]:
            if segment.header.rewritten or segment.path in self._damaged:
                continue
            try:
                yield from rewrite(self._disk, segment, self.lineage, self._claim.check)
            except Damaged:
                self._damaged.add(segment.path)
            yield

    def _slowest(self) -> int | None:
        sound, damaged = record.read_markers(self._disk, self._directory)
        offsets = [m.offset for m in sound.values() if m.lineage == self.lineage]
        return START if damaged else min(offsets, default=None)


def _segments(disk: Disk, directory: str, lineage: int) -> tuple[list[Segment], list[Segment]]:
    return chain(load(disk, directory, disk.list(directory), lineage))


def _settle_meta(disk: Disk, directory: str, lineage: int) -> int:
    """The feed's lineage. A damaged meta file is restored: every segment repeats what it says."""
    try:
        found = record.read_meta(disk, directory)
    except Damaged:
        found = None
    meta = found or meta_from_segments(disk, directory)
    if meta is None or not _segments(disk, directory, meta.lineage)[0]:
        # Without a segment the history never began, or all of it is lost and so are its offsets.
        meta = record.Meta(FORMAT, lineage)
    if meta != found:
        record.write_record(disk, f"{directory}/{record.META}", meta)
    return meta.lineage


def _recover(disk: Disk, directory: str, lineage: int) -> Recovered:
    skip = skip_in(disk, directory)
    history, _ = _segments(disk, directory, lineage)
    if not history:
        return Recovered(last=START, next=START + 1)
    markers = record.read_markers(disk, directory)[0].values()
    marked = [marker.offset for marker in markers if marker.lineage == lineage]
    skipped = START if skip is None or skip.lineage != lineage else skip.offset
    return recover(disk, history[-1], lineage, marked, skipped)
