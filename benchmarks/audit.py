"""The audit of many clients, a million in the long version: how long, how much memory, and is it
right?

The state is written first, which takes longer than the audit. Memory is that of all processes of
the job together: Spark, its Python workers, the command itself.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
import zlib
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow.parquet as pq

from benchmarks.population import plain_audit, write_population
from benchmarks.result import NotMeasured, Result, Settings
from roskva.pipeline.machine import what_is_missing

EACH: Final = 5
SAMPLE: Final = 64
"""One in so many clients is computed again, plainly."""
MAX_GIB: Final = 24.0
_ROSKVA: Final = str(Path(sys.prefix) / "bin/roskva")


def run(settings: Settings) -> list[Result]:
    missing = what_is_missing()
    if missing is not None:
        raise NotMeasured(missing)
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as directory:
        data = Path(directory) / "data"
        clients = 1_000_000 if settings.full else 20_000
        settings.progress(f"writing the state of {clients:,} clients")
        write_population(data, clients, EACH, clients // 10)
        settings.progress("auditing")
        return audited(data)


def audited(data: Path) -> list[Result]:
    began = time.monotonic()
    out = data / "behind.parquet"
    found, peak, cores = measured("audit", str(data), "--json", "--out", str(out))
    took = time.monotonic() - began
    stores = {int(path.name[6:]): path / "store" for path in data.glob("shard-*")}
    plain = {
        place: state for place, state in plain_audit(stores, SAMPLE).items() if state != "fresh"
    }
    wrong = len(plain.items() ^ sampled(out).items())
    registrations = found["registrations"]
    return [
        Result(
            f"audit of {registrations:,} registrations", took, "s", note=f"{cores:.0f} s of CPU"
        ),
        Result("memory at its highest", peak / 2**30, "GiB", MAX_GIB),
        Result(
            "differs from a plain computation",
            wrong,
            "registrations",
            0,
            note=f"{len(plain):,} that are not fresh, of one in {SAMPLE} clients",
        ),
    ]


def sampled(out: Path) -> dict[tuple[bytes, str], str]:
    """What the job has written of the same clients: who, what, and in which state."""
    limit = 2**32 // SAMPLE
    table = pq.read_table(out, columns=["client", "object", "state"])
    found = zip(*(column.to_pylist() for column in table.columns), strict=True)
    clients = ((bytes.fromhex(client), key, state) for client, key, state in found)
    return {(client, key): state for client, key, state in clients if zlib.crc32(client) < limit}


def measured(*words: str) -> tuple[dict[str, Any], int, float]:
    """What the job says, the memory of its processes at its highest, and their CPU seconds."""
    process = subprocess.Popen(
        [_ROSKVA, "job", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    watch = Watch(process.pid)
    told, _ = process.communicate()
    return msgspec.json.decode(told), watch.peak, watch.stop()


class Watch:
    """Of a process and all below it, as long as they are there."""

    def __init__(self, pid: int) -> None:
        self.peak = 0
        self._pid = pid
        self._cpu: dict[int, float] = {}
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        return sum(self._cpu.values())

    def _run(self) -> None:
        page, tick = os.sysconf("SC_PAGE_SIZE"), os.sysconf("SC_CLK_TCK")
        while not self._ended.wait(0.2):
            total = 0
            for pid, fields in _below(self._pid):
                total += int(fields[21]) * page
                self._cpu[pid] = (int(fields[11]) + int(fields[12])) / tick
            self.peak = max(self.peak, total)


def _below(root: int) -> list[tuple[int, list[str]]]:
    fields = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields[int(path.parent.name)] = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
    found, wanted = [], {root}
    for pid in sorted(fields):
        if pid in wanted or int(fields[pid][1]) in wanted:
            wanted.add(pid)
            found.append((pid, fields[pid]))
    return found
