"""A flow of a source on Spark: where it stands, what it has counted, and its dead letters.

    DATA/sources/SOURCE/changes/markers/ingest-NAME   up to where it has published everything
    DATA/pipeline/ingest-NAME/                        lock, dead-letters/, counters.json

The marker is the flow's own file among the markers of the log, where whoever writes the log looks
for what is still needed. It is written once a second: what is published again after a crash has the
same versions, so nobody is told twice.
"""

import logging
import time
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

import msgspec

from roskva.config import Config, SourceConfig
from roskva.disk import RealDisk, storage_errors
from roskva.feed.base import START, Batch, Marker
from roskva.feed.reader import LogReader
from roskva.feed.record import read_markers, write_marker
from roskva.links.processes import read_report, write_report
from roskva.pipeline.publish_sink import COUNTERS, DeadLetters, delete_dead_letters
from roskva.sources.changes import LOG, marker_of_ingest
from roskva.sources.losses import FlowLoss, made_up_for, note_loss, take_back
from roskva.sources.names import table_name
from roskva.wire.admin import PartNow

_log = logging.getLogger(__name__)
_KEEP_EVERY_S: Final = 1.0


class FlowCounters(msgspec.Struct):
    """Since the flow began; what was not kept before a crash is counted again, or not."""

    rows: int = 0
    """Changes that passed its filter."""
    published: int = 0
    superseded: int = 0
    dead: int = 0
    late: int = 0
    """That the node refused, as its app was reset meanwhile."""
    lost: int = 0


class SparkFlow:
    def __init__(self, name: str, config: Config, directory: Path, place: str) -> None:
        """`directory`: its own; `place`: that of its source."""
        self.name, self.ingest = name, config.ingest[name]
        source = self.ingest.path or ""
        self.table = table_in_log(self.ingest.table, config.source[source])
        """None: all."""
        self._directory, self._place = directory, place
        self.counted = read_report(directory / COUNTERS, FlowCounters) or FlowCounters()
        self.part = PartNow(name=f"ingest {name}", source=source, together=0)
        self.marker: Marker | None = None
        """None: the log has not begun."""
        self._kept: Marker | None = None
        self._keep_at = 0.0
        self._loss: FlowLoss | None = None
        self._behind_loss: Marker | None = None
        """Where it goes on when a doubt has made up for what it has lost."""

    # Where it stands.

    def find(self, reader: LogReader) -> Marker:
        """A new flow begins with what there is. So does one whose log was lost as a whole: what
        follows begins with a doubt."""
        if self.marker is None or self.marker.lineage != reader.lineage:
            found = read_markers(RealDisk(), f"{self._place}/{LOG}")[0]
            self.marker = found.get(marker_of_ingest(self.name))
        if self.marker is None or self.marker.lineage != reader.lineage:
            self.marker = Marker(reader.lineage, reader.start() - 1)
            self.keep()
        return self.marker

    def passed(self, marker: Marker) -> None:
        """Everything up to there is published."""
        before = self.marker
        if before is None or marker.lineage != before.lineage or marker.offset > before.offset:
            self.marker = marker

    def keep(self, now: float = 0.0) -> None:
        """`now`: once a second is enough."""
        marker = self.marker  # another thread moves it
        if marker is None or marker == self._kept or (now and now < self._keep_at):
            return
        self._keep_at = now + _KEEP_EVERY_S
        with storage_errors(f"writing where the ingest {self.name} is"):
            name = marker_of_ingest(self.name)
            write_marker(RealDisk(), f"{self._place}/{LOG}", name, marker)
            self._directory.mkdir(parents=True, exist_ok=True)
            write_report(self._directory / COUNTERS, self.counted)
        self._kept = marker

    # What it has lost.

    @property
    def waits(self) -> bool:
        """For a doubt."""
        return self._behind_loss is not None

    def lose(self, first: int, last: int, behind: Marker) -> None:
        """What was lost of the log, and where to go on. From another thread than `make_up`."""
        self.counted.lost += last - first + 1
        sentence = f"the flow {self.name} lost the changes {first} to {last}: they are gone"
        _log.error("%s", sentence)
        self._loss = FlowLoss(behind.lineage, 0, sentence)
        self._behind_loss = behind

    def make_up(self, reader: LogReader) -> None:
        """Ask for a doubt, and go on once it is there."""
        loss, behind = self._loss, self._behind_loss
        if loss is None or behind is None:
            return
        if not loss.end:
            self._loss = loss = msgspec.structs.replace(loss, end=reader.end())
            note_loss(RealDisk(), self._place, self.name, loss)
        if made_up_for(reader, loss):
            self.passed(behind)
            self.keep()
            take_back(RealDisk(), self._place, self.name)
            self._loss = self._behind_loss = None

    # Rows that cannot be published.

    def bury(self, reader: LogReader, rows: list[tuple[int, str]]) -> None:
        """Each with its offset, and the reason."""
        if not rows:
            return
        file = self._directory / "dead-letters" / f"{rows[0][0]:020}.jsonl"
        with DeadLetters(file) as dead:
            for offset, reason in rows:
                dead.add(reason, _record(reader, offset))
        self.counted.dead += len(rows)

    def tidy(self) -> None:
        delete_dead_letters(self._directory, self.ingest.dead_letter_days)

    # What it says of itself.

    def report(self, reader: LogReader | None) -> None:
        part, counted = self.part, self.counted
        part.rows, part.published = counted.rows, counted.published
        part.superseded, part.dead_letters = counted.superseded, counted.dead
        part.late, part.lost = counted.late, counted.lost
        if reader is not None and self.marker is not None:
            part.marker = self.marker.offset
            part.lag_updates = reader.count(self.marker.offset)
            part.lag_seconds = _lag_s(reader, self.marker)


def table_in_log(given: str | None, source: SourceConfig) -> str | None:
    """Of a table, as the settings name it."""
    if given is None:
        return None
    url = urlsplit(source.url or "")
    default = "public" if url.scheme.startswith("postgres") else unquote(url.path.strip("/"))
    schema, _, table = given.rpartition(".")
    return table_name(None if schema in ("", default) else schema, table)


def _lag_s(reader: LogReader, marker: Marker) -> float:
    oldest = reader.read(marker, max_rows=1)
    if not isinstance(oldest, Batch):
        return 0.0
    return round(max(0.0, time.time() - oldest.appended_at / 1e6), 3)


def _record(reader: LogReader, offset: int) -> str | None:
    """As it stands in the log."""
    read = reader.read(Marker(reader.lineage, max(START, offset - 1)), max_rows=1)
    if not isinstance(read, Batch) or read.base != offset:
        return None
    payload = read.updates()[0].payload
    return None if payload is None else payload.decode()
