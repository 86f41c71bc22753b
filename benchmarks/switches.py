"""What a node has or does beside serving, each on and off: what clients notice of it, and what it
costs.

The first column is a node as all other benchmarks have it, unless they say otherwise: the thread
that syncs the feed has real-time priority where the system grants it, and neither prober nor
pipeline runs. The others differ from it in one thing each: without real-time priority; with the
prober, which probes once in each turn; with a pipeline, which reads every update once more.

1,000 clients, each on an object of its own, and 2,000 updates per second, so that much is synced.
Nodes take turns, and one that has none is stopped with all of its processes. A node is on one core;
its prober and its pipeline, on all of them. Server CPU is that of all its processes.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks import serving
from benchmarks.pipeline_node import await_bridge
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator, Load, Population
from benchmarks.serving.servers import Server, roskva, server_and_client_cores
from benchmarks.turns import OURS, figure, in_turns
from roskva.pipeline.machine import what_is_missing

CLIENTS: Final = 1000
RATE: Final = 2000.0
PIPELINED: Final = "with pipeline"
_QUIET_S: Final = 5.0
_WARMUP_S: Final = 0.7
"""What was due while it was stopped is done by then."""


def run(settings: Settings) -> list[Result]:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="roskva-bench-")))
        cores, client_cores = server_and_client_cores()
        generator = Generator(directory, client_cores)
        clients: dict[str, Population] = {}
        servers = []
        for name, start in _nodes().items():
            settings.progress(f"{name} starts")
            place = Path(tempfile.mkdtemp(dir=directory))
            node = stack.enter_context(start(place, os.sched_getaffinity(0)))
            server = msgspec.structs.replace(node, name=name)
            if name == PIPELINED:
                await_bridge(f"http://127.0.0.1:{server.http_port}")
            server.pin(cores)
            clients[name] = stack.enter_context(
                generator.population(server, subscribers=CLIENTS, objects=CLIENTS)
            )
            clients[name].connect()
            stack.callback(server.signal, signal.SIGCONT)  # or it would not hear that it is to end
            server.signal(signal.SIGSTOP)
            servers.append(server)

        def measure(server: Server) -> Load:
            server.signal(signal.SIGCONT)
            load = clients[server.name].measure(
                rate=RATE, seconds=2.0 if settings.full else 1.0, warmup=_WARMUP_S
            )
            clients[server.name].fresh(_QUIET_S)
            server.signal(signal.SIGSTOP)
            return load

        return results(in_turns(servers, settings, measure))


def _nodes() -> dict[str, Callable[[Path, set[int]], AbstractContextManager[Server]]]:
    unprivileged = Path(serving.__file__).with_name("unprivileged.py")
    found: dict[str, Callable[[Path, set[int]], AbstractContextManager[Server]]] = {
        OURS: roskva,
        "without real-time priority": partial(roskva, program=(sys.executable, str(unprivileged))),
        "with prober": partial(roskva, probe=True),
    }
    if what_is_missing() is None:
        found[PIPELINED] = partial(roskva, pipeline=True)
    return found


def results(turns: dict[str, list[Load]]) -> list[Result]:
    missing = what_is_missing()
    note = f"{PIPELINED}: {missing}" if PIPELINED not in turns and missing else ""
    figures: list[tuple[str, str, Callable[[Load], float]]] = [
        ("p50 from publish to receipt", "ms", lambda load: load.p50_us / 1000),
        ("… by its program's clock", "ms", lambda load: load.program_p50_us / 1000),
        ("p99 from publish to receipt", "ms", lambda load: load.p99_us / 1000),
        ("… by its program's clock", "ms", lambda load: load.program_p99_us / 1000),
        ("server CPU each", "µs", lambda load: load.cpu_us),
    ]
    return [
        figure(name, unit, turns, of, better="neither", note=note) for name, unit, of in figures
    ]
