"""The processes of a node that has its roles apart: who they are, and what each has used."""

import os
import time
from pathlib import Path
from typing import Final

import httpx

from benchmarks.serving.servers import Server

STATE: Final = "state-0"
REGISTRAR: Final = "registrar-0"
ROLES: Final = {REGISTRAR: "registrar", STATE: "matcher, feed and rows"}
"""Which role each has."""
APART: Final = ("--registrars", "1")

_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_NS: Final = 1e9


def processes(server: Server) -> dict[str, int]:
    """The process id of each."""
    told = httpx.get(f"http://127.0.0.1:{server.http_port}/v1/status", timeout=30.0).json()
    return {each["name"]: each["pid"] for each in told["processes"]}


def cpu_s(pid: int) -> float:
    """Of all its threads, to the nanosecond; `/proc/PID/stat` counts hundredths of a second."""
    used = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        try:
            used += int(task.read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):  # a thread that ended
            continue
    return used / _NS


def started_at(pid: int) -> float:
    """As `time.monotonic()` has it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / _TICKS_PER_S
    return time.monotonic() - age_s


def ended(pid: int) -> bool:
    """With all its threads, even if nobody has waited for it yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except FileNotFoundError:
        return True


def children(server: Server) -> set[int]:
    told = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text()
    return {int(pid) for pid in told.split()}


def await_successor(server: Server, before: set[int]) -> int:
    """The process that the supervisor has started in place of one that is gone."""
    give_up_at = time.monotonic() + 30.0
    while not (new := children(server) - before):
        if time.monotonic() > give_up_at:
            raise RuntimeError("the supervisor starts nothing")
        time.sleep(0.002)
    return new.pop()
