"""A node of several processes: who they are, and that they run.

The parent holds the ports and starts the others: state processes, each with its range of the
shards, and registrars, which share the ports. One that ends is started again, at once the first
time and ever later if it keeps ending. The parent serves nobody itself.
"""

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from roskva.config import Config
from roskva.links.parent import NOT_AGAIN, told
from roskva.links.running import Process
from roskva.server.node import Role
from roskva.server.process import Assignment

_log = logging.getLogger(__name__)
_LONGEST_PAUSE_S: Final = 10.0
_HEALTHY_S: Final = 30.0
"""A process that ran for so long has a clean record again."""
_STOP_S: Final = 10.0
_LONGEST_RUN_PATH: Final = 80
"""Bytes; the path of a Unix socket has at most 107, and the names in the directory need a few."""


def processes(config: Config, shards: int, run_dir: Path) -> tuple[Process, ...]:
    """One, or state processes that share the shards and registrars that own none."""
    if not (config.node.registrars or config.node.matchers):
        return (Process("node", str(run_dir / "node"), list(range(shards))),)
    states = max(1, config.node.matchers)
    registrars = max(1, config.node.registrars)
    return (
        *(
            Process(f"state-{i}", str(run_dir / f"state-{i}"), _share(shards, states, i))
            for i in range(states)
        ),
        *(Process(f"registrar-{i}", str(run_dir / f"registrar-{i}")) for i in range(registrars)),
    )


def _share(shards: int, owners: int, i: int) -> list[int]:
    return list(range(shards * i // owners, shards * (i + 1) // owners))


@contextmanager
def run_directory(data: Path) -> Iterator[Path]:
    """For the sockets between the processes: with the data, unless that makes too long a path."""
    path = data.resolve() / "run"
    if len(os.fsencode(path)) > _LONGEST_RUN_PATH:
        path = Path(tempfile.mkdtemp(prefix="roskva-"))
    shutil.rmtree(path, ignore_errors=True)  # of a node that was killed
    path.mkdir(mode=0o700)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class Supervisor:
    def __init__(
        self,
        config: Config,
        processes: tuple[Process, ...],
        http: socket.socket,
        mqtt: socket.socket | None,
        beside: "Child | None" = None,
    ) -> None:
        """The sockets are bound and not listening: they hold the ports for the registrars.
        `beside`: what else is to be kept running, and needed by nobody."""
        roles = [
            Role(process.name, process.shards, not process.shards, processes)
            for process in processes
        ]
        http_port: int = http.getsockname()[1]
        mqtt_port: int | None = None if mqtt is None else mqtt.getsockname()[1]
        self._assignments = [Assignment(role, config, http_port, mqtt_port) for role in roles]
        self._beside = beside

    async def run(self, started: Callable[[], None]) -> None:
        stop, stop_states = asyncio.Event(), asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        async with asyncio.TaskGroup() as tasks:
            serving = []
            for assignment in self._assignments:
                child = Child(assignment.role.name, "roskva.server.process", told(assignment))
                if assignment.role.front:
                    serving.append(tasks.create_task(keep(child, stop)))
                else:
                    tasks.create_task(keep(child, stop_states))
            started()
            if self._beside is not None:
                tasks.create_task(keep(self._beside, stop))
            await asyncio.wait(serving)
            stop_states.set()  # by now the last acks have reached them


class Child(msgspec.Struct, frozen=True):
    """A process of ours: its name for people, the module it runs, and what it is told."""

    name: str
    module: str
    told: bytes


async def keep(child: Child, stop: asyncio.Event) -> None:
    pause_s = 0.0
    while not stop.is_set():
        began = time.monotonic()
        code = await _run_once(child, stop)
        if stop.is_set() or code == NOT_AGAIN:
            return
        if time.monotonic() - began > _HEALTHY_S:
            pause_s = 0.0
        _log.warning("%s ended with %s: starting it again in %.1f s", child.name, code, pause_s)
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(_LONGEST_PAUSE_S, max(0.1, 2 * pause_s))


async def _run_once(child: Child, stop: asyncio.Event) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", child.module, stdin=asyncio.subprocess.PIPE
    )
    assert process.stdin is not None
    process.stdin.write(child.told)
    ended = asyncio.ensure_future(process.wait())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([ended, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not ended.done():
            process.terminate()
            try:
                await asyncio.wait_for(asyncio.shield(ended), _STOP_S)
            except TimeoutError:
                process.kill()
    finally:
        stopping.cancel()
    return await ended
