"""Many readers of one feed at once: processes of them (`reading.py`), and one writer."""

import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.result import Result, Settings
from roskva.disk import RealDisk
from roskva.feed.log import Log
from roskva.model import Update

EVERY_S: Final = 0.01
AT_ONCE: Final = 10


def run(settings: Settings, directory: Path) -> list[Result]:
    counts = (1, 10, 100, 300, 1000) if settings.full else (1, 10, 100, 1000)
    delays: dict[int, list[list[float]]] = {count: [] for count in counts}
    for turn in range(settings.repetitions):
        for count in counts:
            settings.progress(f"{count:,} readers")
            place = directory / f"read-{turn}-{count}"
            delays[count].append(sorted(measured(place, count, 4.0 if settings.full else 1.5)))
    results = []
    for name, part in (("median", 0.5), ("p99", 0.99)):
        for count in counts:
            runs = [some[int(part * len(some))] for some in delays[count]]
            results.append(
                Result(
                    name,
                    statistics.median(runs),
                    "ms",
                    at=count,
                    at_unit="readers of one feed",
                    runs={"Roskva": runs},
                )
            )
    return results


def measured(directory: Path, count: int, seconds: float) -> list[float]:
    log = Log.open(RealDisk(), str(directory), lineage=1, now_us=_now_us())
    cores = sorted(os.sched_getaffinity(0))[:count]
    with ExitStack() as stack:
        reading = []
        for i, core in enumerate(cores):
            share = count // len(cores) + (i < count % len(cores))
            reading.append(stack.enter_context(_started(directory, share, core)))
        for process in reading:
            assert process.stdout is not None
            process.stdout.readline()  # it is reading
        _write(log, seconds)
        log.close()
        found: list[float] = []
        for process in reading:
            told, _ = process.communicate()
            found += msgspec.json.decode(told, type=list[float])
    return found


def _started(directory: Path, share: int, core: int) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("reading.py")), str(directory), str(share)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )


def _write(log: Log, seconds: float) -> None:
    began, version = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        version += 1
        log.append([Update(f"bench/{i}", version, published_at=_now_us()) for i in range(AT_ONCE)])
        log.commit(_now_us())
        time.sleep(max(0.0, began + version * EVERY_S - time.monotonic()))


def _now_us() -> int:
    return time.time_ns() // 1000
