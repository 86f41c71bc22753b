"""What the pipeline costs beside a node: processor time and memory of all its processes.

At rest, with 300 updates/s that the fast path brings over, with a matcher that hangs meanwhile, and
with the same updates by Spark alone. Processor time is what the kernel counted over a minute (in
the short version a quarter of one); memory is at its end, where pages that processes share count
once (PSS).
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import httpx

from benchmarks.pipeline_node import await_bridge, pipeline, serving
from benchmarks.result import Result, Settings
from roskva.links.processes import Process, running
from roskva.model import ObjectId, shard_of
from roskva.pipeline.machine import tree

RATE: Final = 300
_TOGETHER: Final = 6
"""Updates in a request."""
_OBJECTS: Final = 200
_SETTLED_S: Final = 20.0
"""After its start the JVM compiles what runs, also where nothing has to be done."""
_APP: Final = "cost"
_HELD: Final = "state-0"


def measure_cost(settings: Settings, scratch: Path) -> list[Result]:
    """Each figure with those of the shares of a core, then memory."""
    window = _Window(60.0 if settings.full else 15.0, settings)
    found: list[Result] = []
    with serving(scratch / "cost", "--matchers", "2") as url:
        await_bridge(url)
        time.sleep(_SETTLED_S)
        found += window.measured("at rest", url, 0.05)
        with _published(url, _names(scratch / "cost", without=None)):
            time.sleep(_SETTLED_S)
            found += window.measured(f"at {RATE} updates/s on the fast path", url, 0.1)
        others = _names(scratch / "cost", without=_HELD)
        with _stopped(url), _published(url, others):
            found += window.measured("… while one of two matchers hangs", url)
    with serving(scratch / "probed", probe=True) as url:
        await_bridge(url)
        time.sleep(_SETTLED_S)
        found += window.measured("at rest, with the prober", url)
    with serving(scratch / "spark", "--no-fast-path") as url:
        await_bridge(url)
        with _published(url, _names(scratch / "spark", without=None)):
            time.sleep(_SETTLED_S)
            found += window.measured(f"at {RATE} updates/s by Spark alone", url)
    return found


class _Window:
    def __init__(self, seconds: float, settings: Settings) -> None:
        self._seconds, self._settings = seconds, settings

    def measured(self, when: str, url: str, target: float | None = None) -> list[Result]:
        self._settings.progress(f"the pipeline {when}")
        before = pipeline(url)
        time.sleep(self._seconds)
        after = pipeline(url)
        took = after["cpu_seconds"] - before["cpu_seconds"]
        cores = took / (after["written_at"] - before["written_at"])
        batches = after["parts"][0]["batches"] - before["parts"][0]["batches"]
        memory = sum(map(_own_share, tree(after["pid"])))
        note = f"{batches:,} micro-batches in {self._seconds:.0f} s"
        limit_mib = None if target is None else 1024.0
        return [
            Result(f"the pipeline {when}, processor", cores, "cores", target, note=note),
            Result(f"the pipeline {when}, memory", memory / (1 << 20), "MiB", limit_mib),
        ]


def _own_share(pid: int) -> int:
    """Bytes of its memory; of what several processes share, its share. None, once it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def _names(data: Path, without: str | None) -> list[str]:
    """Of objects, none of them in a shard of that process."""
    processes: list[Process] = running(data).processes  # type: ignore[union-attr]
    owner = {shard: process.name for process in processes for shard in process.shards}
    names = (f"object-{i}" for i in range(10 * _OBJECTS))
    answering = [
        name for name in names if owner[shard_of(ObjectId(_APP, name).key, len(owner))] != without
    ]
    return answering[:_OBJECTS]


@contextmanager
def _published(url: str, names: list[str]) -> Iterator[None]:
    stop = threading.Event()

    def publish() -> None:
        with httpx.Client(timeout=30.0) as client:
            began, version = time.monotonic(), time.time_ns() // 1000
            for count in range(1 << 60):
                at = count * _TOGETHER
                updates = [
                    {"app": _APP, "name": names[i % len(names)], "version": version + i}
                    for i in range(at, at + _TOGETHER)
                ]
                client.post(f"{url}/v1/publish", json=updates)
                if stop.wait(max(0.0, began + at / RATE - time.monotonic())):
                    return

    publishing = threading.Thread(target=publish)
    publishing.start()
    try:
        yield
    finally:
        stop.set()
        publishing.join()


@contextmanager
def _stopped(url: str) -> Iterator[None]:
    """Nobody can tell a process that is stopped from one that is busy."""
    processes = httpx.get(f"{url}/v1/status", timeout=30.0).json()["processes"]
    [pid] = [process["pid"] for process in processes if process["name"] == _HELD]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)
