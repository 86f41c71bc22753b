"""How a query goes, as it is reported."""

import time
from typing import Any, Final

from roskva.wire.admin import BatchTimes, PartNow

_RECENT: Final = 60


def note_progress(part: PartNow, progress: Any) -> None:
    """`progress`: the last that Spark says of its query."""
    part.state = "running"
    part.batches = progress["batchId"] + 1
    part.batch_ms = progress["durationMs"].get("triggerExecution")
    times = dict(progress["durationMs"])
    total, recent = times.pop("triggerExecution", 0), part.recent
    batch = progress["batchId"]
    if "addBatch" not in times or (recent and recent[-1].batch == batch):
        return  # it looked, and there was nothing; or it is known
    rows = progress["numInputRows"]
    noted = BatchTimes(batch, round(time.time(), 1), rows, total, times)
    part.recent = [*recent, noted][-_RECENT:]


def short(error: str) -> str:
    return error.strip().splitlines()[0][:300] if error.strip() else "no reason was given"
