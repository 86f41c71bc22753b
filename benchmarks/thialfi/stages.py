"""Where the time of an update goes, from what a node has noted of some (`roskva/feed/trace.py`).

`roskva job latency` says much more, and needs Spark; means are all that is wanted here."""

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from roskva.disk import RealDisk
from roskva.feed.base import START, Batch, Marker, Missing
from roskva.feed.reader import LogReader
from roskva.feed.trace import DIRECTORY, STAGES


def mean_stages_ms(data: Path) -> dict[str, float]:
    """Milliseconds from the stage before to each, over all updates that passed every one; of the
    acks of an update the last."""
    noted: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for key, version, stage, at in _noted(data):
        times = noted[key, version]
        times[stage] = max(at, times.get(stage, 0)) if stage == "acked" else at
    stages = [stage for stage in STAGES if any(stage in times for times in noted.values())]
    whole = [times for times in noted.values() if all(stage in times for stage in stages)]
    return {
        stage: sum(max(0, times[stage] - times[before]) for times in whole) / len(whole) / 1000
        for before, stage in pairwise(stages)
    }


def _noted(data: Path) -> Iterator[tuple[str, int, str, int]]:
    for directory in sorted((data / DIRECTORY).iterdir()):
        reader = LogReader(RealDisk(), str(directory))
        after = START
        while isinstance(read := reader.read(Marker(reader.lineage, after)), Batch | Missing):
            after = read.last
            if isinstance(read, Batch):
                columns = ("object", "version", "source", "published_at")
                yield from zip(*(read.rows[name].to_pylist() for name in columns), strict=True)
