"""How many connected clients fit: each with a session that persists, registered for five objects.

A process may have 20,000 open files here, so the node has four registrars beside the state process,
and the clients are four processes, each with a loopback address of its own. Everything shares the
cores. When all are connected, the node is left alone for some seconds to see what idle clients
cost; then every object is updated, and everybody has to receive that. At last all processes of the
node are killed and it is started again: the time is from the kill until everybody is back and,
again, has received an update of every object. Clients come as fast as four registrars take them,
1,000 handshakes a second each.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator, Population
from benchmarks.serving.servers import Server, roskva, tree

TITLE: Final = "Limits: connected clients"
CLIENTS: Final = 60_000
SHORT_CLIENTS: Final = 8_000
OBJECTS: Final = 2_000
EACH: Final = 5
PROCESSES: Final = 4
PACE: Final = 900 * PROCESSES
IN_FLIGHT: Final = 100
_IDLE_S: Final = 5.0
_QUIET_S: Final = 20.0


class Held(msgspec.Struct, frozen=True):
    clients: int
    connect_s: float
    connect_cpu_s: float
    memory_bytes: int
    """That they added."""
    idle_cores: float
    fresh_s: float
    """From the first update of all objects until everybody had the last."""
    back_s: float
    back_fresh_s: float
    stale: int
    processes: int


def run(settings: Settings) -> list[Result]:
    clients = CLIENTS if settings.full else SHORT_CLIENTS
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        return results(_held(Path(name), clients, settings))


def _held(directory: Path, clients: int, settings: Settings) -> Held:
    cores = os.sched_getaffinity(0)
    generator = Generator(directory, cores)
    flags = ("--registrars", str(PROCESSES))
    with (
        roskva(directory, cores, *flags) as server,
        generator.population(
            server,
            subscribers=clients,
            objects=OBJECTS,
            each=EACH,
            clean=False,
            reconnect=True,
            workers=PROCESSES,
            pace=PACE,
            cores=cores,
        ) as population,
    ):
        memory, cpu_s = server.rss_bytes(), server.cpu_s()
        settings.progress(f"{clients:,} connect")
        connected = population.connect()
        connect_cpu_s = server.cpu_s() - cpu_s
        settings.progress(f"{clients:,} are idle")
        idle_cores = _idle(server)
        memory = server.rss_bytes() - memory
        processes = len(tree(server.pid))
        fresh_s, stale = _update_everything(population)
        settings.progress(f"{clients:,} come back")
        killed = time.monotonic()
        server.kill()
        with roskva(directory, cores, *flags, again=server):
            back_s = population.connect().ended - killed
            _, stale_again = _update_everything(population)
            back_fresh_s = time.monotonic() - killed
    return Held(
        clients=clients,
        connect_s=connected.seconds,
        connect_cpu_s=connect_cpu_s,
        memory_bytes=memory,
        idle_cores=idle_cores,
        fresh_s=fresh_s,
        back_s=back_s,
        back_fresh_s=back_fresh_s,
        stale=stale + stale_again,
        processes=processes,
    )


def _idle(server: Server) -> float:
    before, began = server.cpu_s(), time.monotonic()
    time.sleep(_IDLE_S)
    return (server.cpu_s() - before) / (time.monotonic() - began)


def _update_everything(population: Population) -> tuple[float, int]:
    began = population.publish(OBJECTS, IN_FLIGHT).began
    fresh = population.fresh(_QUIET_S)
    return fresh.ended - began, fresh.stale


def results(held: Held) -> list[Result]:
    clients = held.clients
    if held.stale:
        raise RuntimeError(f"{held.stale:,} clients × objects stay stale")
    target = CLIENTS if clients >= CLIENTS else None
    deliveries = clients * EACH
    return [
        Result(
            "connected clients",
            clients,
            "",
            target,
            "higher",
            f"{held.processes} processes; the long version has {CLIENTS:,}" if not target else "",
        ),
        Result("… memory each, over all processes", held.memory_bytes / clients / 1024, "KB"),
        Result("… CPU each, idle", held.idle_cores / clients * 1e6, "µs/s"),
        Result("… CPU each, to connect and register", held.connect_cpu_s / clients * 1e6, "µs"),
        Result("all have connected and registered after", held.connect_s, "s"),
        Result(
            f"all have an update of each of {OBJECTS:,} objects after",
            held.fresh_s,
            "s",
            note=f"{deliveries:,} deliveries",
        ),
        Result("all are back after kill −9 and a start", held.back_s, "s"),
        Result("… and have an update of each object", held.back_fresh_s, "s"),
    ]
