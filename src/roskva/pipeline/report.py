"""What the pipeline says of itself: a small file of JSON, replaced every second.

The node puts it into its own status as it is. The file is beside the sockets of the node's
processes and goes with them, so one that is there is of this run.
"""

import os
import time
from pathlib import Path
from typing import Final, Literal

import msgspec

from roskva.pipeline.processes import tree

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")

State = Literal["off", "starting", "running", "failed"]


class BatchTimes(msgspec.Struct, frozen=True):
    """A micro-batch that had something to do."""

    batch: int
    at: float
    rows: int
    total_ms: int
    stages_ms: dict[str, int]
    """As Spark names them."""


class Part(msgspec.Struct, kw_only=True):
    """The bridge, or an ingest."""

    name: str
    state: State = "starting"
    batches: int = 0
    batch_ms: int | None = None
    """What the last micro-batch took."""
    recent: list[BatchTimes] = []
    """One per second at most, the oldest first."""
    last_error: str = ""
    lag_updates: int | None = None
    """Of the bridge: what the feed has and the matchers have not, if there is a bridge to ask."""
    lag_seconds: float | None = None
    delivered: int | None = None
    """Ranges that a matcher took over from the bridge, and not from the fast path."""
    gaps: list[int] = []
    """Shards whose gap is being closed beside the query."""
    gaps_closed: int = 0
    rows: int | None = None
    published: int | None = None
    superseded: int | None = None
    dead_letters: int | None = None


class Report(msgspec.Struct, kw_only=True):
    state: State
    why: str = ""
    """It is off."""
    pid: int = 0
    started_at: float = 0.0
    written_at: float = 0.0
    rss_bytes: int = 0
    """Of all its processes."""
    cpu_seconds: float = 0.0
    parts: list[Part] = []


def write_report(file: Path, report: Report) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(report))
    os.replace(temporary, file)


class Usage:
    """Memory and processor time of this process and all below it."""

    def __init__(self) -> None:
        self._gone = 0.0
        self._last: dict[int, float] = {}

    def now(self) -> tuple[int, float]:
        memory, seconds = 0, {}
        for pid in tree(os.getpid()):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            memory += pages * _PAGE
            seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        self._gone += sum(self._last[pid] for pid in self._last.keys() - seconds.keys())
        self._last = seconds
        return memory, round(self._gone + sum(seconds.values()), 2)


def stamped(report: Report, usage: Usage) -> Report:
    report.written_at = time.time()
    report.rss_bytes, report.cpu_seconds = usage.now()
    return report
