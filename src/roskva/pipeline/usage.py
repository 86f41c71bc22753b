"""What the pipeline uses of the machine, for its report."""

import os
import time
from pathlib import Path
from typing import Final

from roskva.pipeline.processes import tree
from roskva.wire.admin import PipelineNow

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


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


def stamped(report: PipelineNow, usage: Usage) -> PipelineNow:
    report.written_at = time.time()
    report.rss_bytes, report.cpu_seconds = usage.now()
    return report
