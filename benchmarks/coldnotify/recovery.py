"""A role is killed with SIGKILL, and its supervisor starts it again: how long until all is well?

Measured as in the thesis: from the start of the process until nothing uses the processor any more;
but of both processes, and only if every client has its session and its registrations again.
"""

import os
import shutil
import signal
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.coldnotify.roles import (
    APART,
    REGISTRAR,
    STATE,
    await_successor,
    children,
    cpu_s,
    ended,
    processes,
    started_at,
)
from benchmarks.serving.generator import Generator, Population
from benchmarks.serving.servers import Server, roskva
from roskva.store import rows
from roskva.store.base import DeleteRow
from roskva.store.rocksdb import RocksStore

CLIENTS: Final = 1000
EACH: Final = 50
_SAMPLE_S: Final = 0.05
_IDLE: Final = 0.04
"""Of a core: what a node uses that has nothing to do, and twice as much. Not in every moment: it
tidies once in a second, which takes a few milliseconds on a machine that is slow."""
_PATIENCE_S: Final = 60.0
_ACKS_WRITTEN_S: Final = 2.5


class Loss(msgspec.Struct, frozen=True):
    role: str
    clean: bool = False
    """Clients with clean sessions: they have no row to come back to."""
    acks_written: bool = False
    """When it is killed: that is two seconds after they came. Whose acks are in no row yet is told
    once more."""
    forget: Callable[[Path], None] = lambda data: None
    """What is gone from the data directory when it starts again."""
    settle_s: float = 0.3
    """So long without work, and it is idle. Acks are written down with a delay of two seconds, and
    somebody whose row is gone is found then."""


def forget_versions(data: Path) -> None:
    """Every object row, and the feed that has them."""
    for shard in data.glob("shard-*"):
        shutil.rmtree(shard / "feed")
        store = RocksStore(shard / "store")
        found = [row for row, _ in store.scan(*rows.ranges(rows.OBJECT, 1)[0])]
        store.write([DeleteRow(row) for row in found], sync=True)
        store.close()


def forget_everything(data: Path) -> None:
    for shard in data.glob("shard-*"):
        shutil.rmtree(shard / "feed")
        shutil.rmtree(shard / "store")


LOSSES: Final = (
    Loss(REGISTRAR, clean=True),
    Loss(REGISTRAR, acks_written=True),
    Loss(REGISTRAR),
    Loss(STATE, forget=forget_versions),
    Loss(STATE, acks_written=True),
    Loss(STATE, forget=forget_everything, settle_s=3.0),
)


def recoveries(
    generator: Generator, directory: Path, loss: Loss, repetitions: int
) -> list[tuple[float, int]]:
    """Seconds, and how many notifications clients got meanwhile."""
    cores = os.sched_getaffinity(0)
    with (
        roskva(directory, cores, *APART) as server,
        generator.population(
            server,
            subscribers=CLIENTS,
            objects=EACH,
            each=EACH,
            clean=loss.clean,
            reconnect=True,
            pace=0,
            cores=cores,
        ) as clients,
    ):
        clients.connect()
        return [_recovery(server, clients, loss, directory / "data") for _ in range(repetitions)]


def _recovery(server: Server, clients: Population, loss: Loss, data: Path) -> tuple[float, int]:
    clients.publish(EACH, EACH)
    clients.fresh(5.0)
    pids = processes(server)
    if loss.acks_written:
        time.sleep(_ACKS_WRITTEN_S)
    _await_idle(list(pids.values()), loss.settle_s)
    messages = clients.fresh(0.1).messages
    before = children(server)
    _kill(server, pids[loss.role], lambda: loss.forget(data))
    pids[loss.role] = await_successor(server, before)
    began = started_at(pids[loss.role])
    done = _await_recovered(clients, list(pids.values()), loss.settle_s)
    return done - began, clients.fresh(0.1).messages - messages


def _kill(server: Server, pid: int, then: Callable[[], None]) -> None:
    """The supervisor sleeps meanwhile: it would start it again at once."""
    os.kill(server.pid, signal.SIGSTOP)
    try:
        os.kill(pid, signal.SIGKILL)
        while not ended(pid):
            time.sleep(0.001)
        then()
    finally:
        os.kill(server.pid, signal.SIGCONT)


def _await_recovered(clients: Population, pids: list[int], settle_s: float) -> float:
    while True:
        idle_since = _await_idle(pids, settle_s)
        answer = clients.connect()  # at once, if everybody is there
        if answer.seconds < _SAMPLE_S:
            return idle_since


def _await_idle(pids: list[int], settle_s: float) -> float:
    """Since when they are."""
    give_up_at = time.monotonic() + _PATIENCE_S
    samples: deque[tuple[float, float]] = deque()
    while (now := time.monotonic()) < give_up_at:
        used = sum(map(cpu_s, pids))
        samples.append((now, used))
        while len(samples) > 1 and samples[1][0] <= now - settle_s:
            samples.popleft()
        since, before = samples[0]
        if now - since >= settle_s and used - before <= _IDLE * (now - since):
            return since
        time.sleep(_SAMPLE_S)
    raise RuntimeError("the node does not come to rest")
