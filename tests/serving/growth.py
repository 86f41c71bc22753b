"""What a node takes and how fast that grows, by part: memory by process, disk by directory."""

import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.serving.keyed import KeyedNode

_TICKS: Final = os.sysconf("SC_CLK_TCK")
_MIB: Final = 1 << 20
_WARM_S: Final = 60.0
"""What a process takes in its first minute is no growth."""
_BY_COMMAND: Final = {
    "roskva.probe.child": "prober",
    "roskva.pipeline.child": "pipeline",
    "org.apache.spark": "pipeline (JVM)",
    "pyspark": "pipeline (workers)",
    "roskva.pipeline": "pipeline (workers)",
}
PIPELINE: Final = ("pipeline", "pipeline (JVM)", "pipeline (workers)")


class Process:
    """What the system says of one."""

    def __init__(self, pid: int) -> None:
        directory = Path(f"/proc/{pid}")
        shared_out = (directory / "smaps_rollup").read_text()
        self.memory = int(shared_out.partition("\nPss:")[2].split()[0]) << 10
        """What several have in common counts in parts."""
        fields = (directory / "stat").read_text().rpartition(")")[2].split()
        self.cpu_s = (int(fields[11]) + int(fields[12])) / _TICKS
        self.files = len(os.listdir(directory / "fd"))
        self.command = (directory / "cmdline").read_bytes().replace(b"\0", b" ").decode()


class Sample:
    """Of one moment."""

    def __init__(self, node: KeyedNode, named: dict[int, str]) -> None:
        """`named`: the processes that the node names itself, by their number."""
        self.at = time.monotonic()
        self.processes: dict[tuple[str, int], Process] = {}
        for pid in node.processes():
            try:
                process = Process(pid)
            except (FileNotFoundError, ProcessLookupError):
                continue
            self.processes[_part(process, named.get(pid)), pid] = process
        self.disk = disk(node.data)

    def of(self, parts: tuple[str, ...]) -> list[Process]:
        return [process for (part, _), process in self.processes.items() if part in parts]


def _part(process: Process, name: str | None) -> str:
    if name is not None:
        return name
    return next((part for word, part in _BY_COMMAND.items() if word in process.command), "others")


def disk(data: Path) -> dict[str, int]:
    """Bytes by part: the directories of shards, and the others of the data directory."""
    found: defaultdict[str, int] = defaultdict(int)
    for path in data.rglob("*"):
        *directories, _ = path.relative_to(data).parts
        below = [name for name in directories if not name.startswith("shard-")]
        part = below[0] if below else "others"
        try:
            found[part] += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return dict(found)


class Growth:
    """From samples, over a time with starts and crashes."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def memory(self) -> dict[str, tuple[float | None, int]]:
        """Of each part: bytes per hour, if it ran for long enough to tell, and what one process
        takes at most. Of one that started anew only what it has grown since is counted."""
        lives: defaultdict[tuple[str, int], list[tuple[float, int]]] = defaultdict(list)
        for sample in self.samples:
            for life, process in sample.processes.items():
                lives[life].append((sample.at, process.memory))
        grown: defaultdict[str, list[float]] = defaultdict(lambda: [0.0, 0.0, 0.0])
        for (part, _), seen in lives.items():
            total = grown[part]
            total[2] = max(total[2], *(size for _, size in seen))
            warm = [(at, size) for at, size in seen if at - seen[0][0] >= _WARM_S]
            if len(warm) > 1:
                total[0] += warm[-1][1] - warm[0][1]
                total[1] += warm[-1][0] - warm[0][0]
        return {
            part: (3600 * size / seconds if seconds else None, int(most))
            for part, (size, seconds, most) in sorted(grown.items())
        }

    def on_disk(self) -> dict[str, tuple[float | None, int]]:
        """Of each part: bytes per hour, and what it takes at the end."""
        first, last = self.samples[0], self.samples[-1]
        hours = (last.at - first.at) / 3600
        return {
            part: ((size - first.disk.get(part, 0)) / hours, size)
            for part, size in sorted(last.disk.items())
        }

    def report(self) -> str:
        lines = []
        for what, most, found in (
            ("memory", "at most", self.memory()),
            ("disk", "at the end", self.on_disk()),
        ):
            for part, (per_hour, size) in found.items():
                grows = "" if per_hour is None else f"{per_hour / _MIB:+10.1f} MiB/h"
                lines.append(f"{what:7} {part:20} {size / _MIB:9.1f} MiB {most:10} {grows}")
        return "\n".join(lines)
