"""The changes log of a source: what its database has changed, in order, durable.

    DATA/sources/NAME/changes/    a feed (feed/log.py) with a record for each change and each doubt
    DATA/sources/NAME/state       ordinal and position, at most a second old (feed/record.py)
    DATA/sources/NAME/losses/     what flows beside its process have lost (losses.py)

**What is known after a start.** The last record of a transaction carries the position behind it, so
that changes and position become durable as one. `state` is for positions that move although nothing
was changed, and for logs of which retention has left nothing. Whichever is later in the log counts.

**Versions** are `ordinal « 43 | offset`. An offset of a feed belongs to one record for ever, and
the ordinal rises at every doubt, so versions never fall. A log that was lost begins at offset 1
again, and needs a higher ordinal: `ChangesLog.open` says so by `lost`.

**A backup** has the log and its state. Restored where nothing was published since, both go on. Else
the log is left out, as what followed in it is missing, and the state is `restored`: restoring has
begun an ordinal in all shards, beside their new epochs, so the doubt that follows takes this one,
and clients look once for both (docs/decisions/0042).
"""

from collections.abc import Container, Sequence
from typing import Any, Final

import msgspec

from roskva.disk import Disk, storage_errors
from roskva.errors import Damaged
from roskva.feed.base import Batch, Marker
from roskva.feed.log import Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.record import MARKERS, read_markers, read_record, write_record
from roskva.model import NO_GENERATION, Update
from roskva.sources.change import Change, doubt_of, doubt_record, update_of, version_of
from roskva.sources.position import Doubt, Position, position_text, read_position
from roskva.wire.links import ResetApp

DIRECTORY: Final = "sources"
LOG: Final = "changes"
STATE: Final = "state"
_OF_INGEST: Final = "ingest-"
STATE_EVERY_US: Final = 1_000_000
_LONGEST_SENTENCE: Final = 500


def marker_of_ingest(name: str) -> str:
    """How the marker of a flow on Spark is called: written by its process, and by nobody else."""
    return f"{_OF_INGEST}{name}"


def forget_flows(disk: Disk, directory: str, known: Container[str]) -> list[str]:
    """Remove the markers of ingests that are no more, or the log would be kept for them for ever;
    whose they were."""
    markers = f"{directory}/{LOG}/{MARKERS}"
    names = disk.list(markers) if disk.exists(markers) else []
    whole = (name for name in names if name.startswith(_OF_INGEST) and "." not in name)
    flows = [name.removeprefix(_OF_INGEST) for name in whole]
    gone = [flow for flow in flows if flow not in known]
    for flow in gone:
        disk.remove(f"{markers}/{marker_of_ingest(flow)}")
    return gone


class SourceState(msgspec.Struct, frozen=True):
    lineage: int
    """Of the log that it belongs to."""
    offset: int
    """The end of that log when this was written."""
    ordinal: int
    position: Position
    app: str = ""
    doubt: Doubt | None = None
    """The last one."""
    doubted_at: int = 0
    """Wall-clock microseconds."""
    restored: bool = False
    """Without its log. All shards have begun this ordinal already."""


class Slice(msgspec.Struct, frozen=True, gc=False):
    """Changes of one transaction, in order; all of them unless it is a large one."""

    transaction: str
    """As its database calls it."""
    changes: Sequence[Change]
    end: Position | None
    """Behind the transaction; None: more of it follows."""


class ChangesLog:
    """Writes the log. Made by `ChangesLog.open`."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        app: str,
        log: Log,
        known: SourceState | None,
        lost: str,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._state_path = f"{directory}/{STATE}"
        self._app = app
        self._log = log
        self._state_at_us = 0
        self.ordinal = known.ordinal if known else NO_GENERATION
        self.position = known.position if known else None
        """Up to where all is durable; None: nothing is known, as when the source begins."""
        self.lost = lost
        """What was read before is not here any more, and why; until a doubt has said so."""
        self.restored = known.restored if known else False
        """All shards have begun the ordinal already, and nothing was told under it."""
        self.last_doubt = known.doubt if known else None
        self.doubted_at_us = known.doubted_at if known else 0

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        app: str,
        *,
        lineage: int,
        now_us: int,
        config: LogConfig | None = None,
    ) -> "ChangesLog":
        """`lineage`: 64 random bits, used if there is no log here yet."""
        disk.make_directory(directory)
        path = f"{directory}/{LOG}"
        log = Log.open(disk, path, lineage=lineage, now_us=now_us, config=config)
        try:
            state = read_state(disk, directory)
            if state is None:
                lost = "where it was read up to is not known any more" if log.last else ""
            elif state.restored:
                lost = "it was restored from a backup"
            elif state.lineage != log.lineage or state.offset > log.last:
                lost = "it is another one, or an older one"
            else:
                state, lost = _later(LogReader(disk, path), state)
            return cls(disk, directory, app, log, state, lost)
        except BaseException:
            log.close()
            raise

    @property
    def own_doubt(self) -> Doubt | None:
        """What the log cannot vouch for, whatever the database says."""
        return Doubt("log lost", f"the log of changes was lost: {self.lost}") if self.lost else None

    def next_ordinal(self, asked: int) -> int:
        """Of a doubt. `asked`: above all that the shards know (`model.next_generation`)."""
        following = self.ordinal + 1
        if self.restored and asked <= following:
            return self.ordinal  # clients were told so when it was begun
        return max(asked, following)

    def append(self, slices: Sequence[Slice], now_us: int) -> None:
        """Durable when this returns. Nothing of it counts if it raises."""
        updates: list[Update] = []
        offset = self._log.next
        position = self.position
        for part in slices:
            last = len(part.changes) - 1
            for i, change in enumerate(part.changes):
                end = position_text(part.end) if part.end is not None and i == last else None
                version = version_of(self.ordinal, offset)
                updates.append(update_of(self._app, change, part.transaction, version, end))
                offset += 1
            position = part.end or position
        if updates:
            self._log.append(updates)
            self._log.commit(now_us)
        self._move(position, now_us, durable=bool(updates))

    def doubt(self, doubt: Doubt, ordinal: int, position: Position, now_us: int) -> None:
        self._log.append([doubt_record(self._app, doubt, ordinal, position, now_us)])
        self._log.commit(now_us)
        self.ordinal = ordinal
        self.lost, self.restored = "", False
        sentence = doubt.sentence[:_LONGEST_SENTENCE]
        self.last_doubt, self.doubted_at_us = Doubt(doubt.cause, sentence), now_us
        self.position = position
        self.keep(now_us)

    def reached(self, position: Position, now_us: int) -> bool:
        """There is nothing of ours before it. Whether that is durable by now: it is written down
        once a second at most, so ask again."""
        if position != self.position:
            if now_us < self._state_at_us + STATE_EVERY_US:
                return False
            self.position = position
            self.keep(now_us)
        return True

    @property
    def lineage(self) -> int:
        return self._log.lineage

    @property
    def last(self) -> int:
        """The offset of the last record."""
        return self._log.last

    def keep(self, now_us: int) -> None:
        """The position, where no change carries it. What is lost stays so until a doubt says it."""
        if self.position is not None and not self.lost:
            state = SourceState(
                *(self._log.lineage, self._log.last, self.ordinal, self.position, self._app),
                *(self.last_doubt, self.doubted_at_us),
            )
            with storage_errors("writing down how far the database was read"):
                write_record(self._disk, self._state_path, state)
            self._state_at_us = now_us

    def marker(self, flow: str) -> int:
        """Up to where this flow has passed everything on. A new one begins with what there is."""
        found, _ = read_markers(self._disk, f"{self._directory}/{LOG}")
        marker = found.get(flow)
        return marker.offset if marker is not None and marker.lineage == self.lineage else 0

    def last_reset(self, flow: str) -> ResetApp | None:
        """That this flow has passed, if it has passed all there is."""
        if not self.ordinal or self.marker(flow) < self.last:
            return None
        return ResetApp(0, self._app, self.ordinal)

    def set_marker(self, flow: str, offset: int) -> None:
        self._log.set_marker(flow, Marker(self._log.lineage, offset))

    def tidy(self, now_us: int) -> bool:
        return self._log.tidy(now_us)

    def close(self, now_us: int) -> None:
        self.keep(now_us)
        self._log.close()

    def _move(self, position: Position | None, now_us: int, durable: bool) -> None:
        """`durable`: the log has it; if not, it may be confirmed only when `state` has it."""
        moved = position != self.position
        self.position = position
        if moved and (not durable or now_us >= self._state_at_us + STATE_EVERY_US):
            self.keep(now_us)


def begin_restored(disk: Disk, directory: str, ordinal: int) -> None:
    """Of a source whose log is left out: `ordinal` is begun in all shards."""
    path = f"{directory}/{STATE}"
    state = read_record(disk, path, SourceState)
    write_record(disk, path, msgspec.structs.replace(state, ordinal=ordinal, restored=True))


def read_state(disk: Disk, directory: str) -> SourceState | None:
    try:
        return read_record(disk, f"{directory}/{STATE}", SourceState)
    except (FileNotFoundError, Damaged):
        return None


def _later(reader: LogReader, state: SourceState) -> tuple[SourceState, str]:
    """With what the log has beyond the state. A hole in it is a loss like any other."""
    after = state.offset
    while after < reader.end():
        read = reader.read(Marker(state.lineage, after))
        if not isinstance(read, Batch):
            return state, "a part of it cannot be read"
        for update in read.updates():
            state = _with(state, update)
        after = read.last
    return state, ""


def _with(state: SourceState, update: Update) -> SourceState:
    found: dict[str, Any] = {}
    if update.reset:
        found = {"doubt": doubt_of(update), "doubted_at": update.published_at}
        found["ordinal"] = max(state.ordinal, update.version)
    if update.source is not None:
        found["position"] = read_position(update.source)
    return msgspec.structs.replace(state, **found) if found else state
