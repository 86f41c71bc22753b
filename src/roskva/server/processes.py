"""The processes of a node: how one runs, its loop, its signals, its end; and who several are.

Of several, a parent holds the ports and starts the others: state processes, each with its range of
the shards, and registrars, which share the ports. One that ends is started again, at once the first
time and ever later if it keeps ending. The parent serves nobody itself.
"""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import uvloop

from roskva.config import Config, Source
from roskva.errors import RoskvaError
from roskva.links.processes import NOT_AGAIN, Process, pack_assignment, read_assignment
from roskva.logs import log_to_stderr
from roskva.net.address import Ports
from roskva.server.access.keys import token_keys
from roskva.server.directory import DataDirectory
from roskva.server.listeners import listen_all
from roskva.server.node import NodeProcess, Role
from roskva.server.reload import Reloads, load_again, on_hangup

_log = logging.getLogger("roskva.server.processes")  # also in a child, where it is the main module
_LONGEST_PAUSE_S: Final = 10.0
_HEALTHY_S: Final = 10.0
"""A process that ran for so long has a clean record again: it did start, and was not in the way of
another. Its place is taken at once then, while publishers wait for it."""
_STOP_S: Final = 10.0
_LONGEST_RUN_PATH: Final = 80
"""Bytes; the path of a Unix socket has at most 107, and the names in the directory need a few."""


# One process.


class Assignment(msgspec.Struct, frozen=True):
    """What a child is told: plain values, and nothing of its parent's state."""

    role: Role
    config: Config
    source: Source
    ports: Ports


def run(
    node: NodeProcess,
    started: Callable[[], None] = lambda: None,
    beside: Sequence["Child"] = (),
) -> None:
    """Until SIGTERM or SIGINT. What is kept running `beside` it begins when it has started."""

    async def serve() -> None:
        stop = asyncio.Event()
        _on_signals(stop, node.reloads.run)
        async with asyncio.TaskGroup() as tasks:

            def begun() -> None:
                started()
                for child in beside:
                    tasks.create_task(keep(child, stop))

            await node.run(stop, begun)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def _on_signals(stop: asyncio.Event, reload: Callable[[], None]) -> None:
    def told_to_stop(number: signal.Signals) -> None:
        if not stop.is_set():
            _log.info("stopping: %s", number.name)
        stop.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_stop, number)
    on_hangup(reload, stop.set)


def child() -> None:
    """The main function of a child process."""
    # Ctrl-C goes to the whole group of processes; it is the parent that stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assignment: Assignment = read_assignment()
    log_to_stderr(assignment.config.node.log, assignment.role.name)
    try:
        config, role = assignment.config, assignment.role
        data = DataDirectory.open(Path(config.node.data))
        sockets = listen_all(config, assignment.ports, shared=True) if role.front else None
        keys = token_keys(data.path)
        run(NodeProcess(role, config, data, keys, sockets, Reloads(assignment.source, config)))
    except RoskvaError as error:
        _log.error("cannot start: %s", error)
        sys.exit(1)


# Several.


def processes(config: Config, shards: int, run_dir: Path) -> tuple[Process, ...]:
    """One, or state processes that share the shards and registrars that own none."""
    if not config.node.several:
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
    else:
        # Of a node that was killed. Its pipeline may be on its way out, and leave a file there yet.
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(mode=0o700, exist_ok=True)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@dataclass
class Supervisor:
    config: Config
    source: Source
    processes: tuple[Process, ...]
    ports: Ports
    """Held by sockets that are bound and not listening, for the registrars."""
    beside: Sequence["Child"]
    """What else is to be kept running, and needed by nobody."""
    running: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)

    async def run(self, started: Callable[[], None]) -> None:
        stop, stop_states = asyncio.Event(), asyncio.Event()
        _on_signals(stop, self._reload)
        async with asyncio.TaskGroup() as tasks:
            serving = []
            for process in self.processes:
                role = Role(process.name, process.shards, not process.shards, self.processes)
                child = Child(role.name, "roskva.server.processes", partial(self._told, role))
                keeping = keep(child, stop if role.front else stop_states, self.running)
                task = tasks.create_task(keeping)
                if role.front:
                    serving.append(task)
            started()
            for child in self.beside:
                tasks.create_task(keep(child, stop))
            await asyncio.wait(serving)
            stop_states.set()  # by now the last acks have reached them

    def _told(self, role: Role) -> bytes:
        return pack_assignment(Assignment(role, self.config, self.source, self.ports))

    def _reload(self) -> None:
        """In every process, and in those that are started later."""
        found = load_again(self.source, self.config)
        if found is not None:
            self.config = found.config
            for process in self.running.values():
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGHUP)


class Child(msgspec.Struct, frozen=True):
    """A process of ours: its name for people, the module it runs, and what it is told."""

    name: str
    module: str
    tell: Callable[[], bytes]


async def keep(
    child: Child,
    stop: asyncio.Event,
    running: "dict[str, asyncio.subprocess.Process] | None" = None,
) -> None:
    """`running`: where to find its process, by its name."""
    pause_s = 0.0
    while not stop.is_set():
        began = time.monotonic()
        code = await _run_once(child, stop, {} if running is None else running)
        if stop.is_set() or code == NOT_AGAIN:
            return
        if time.monotonic() - began > _HEALTHY_S:
            pause_s = 0.0
        _log.warning("%s %s: starting it again %s", child.name, _end(code), _when(pause_s))
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), pause_s)
        pause_s = min(_LONGEST_PAUSE_S, max(0.1, 2 * pause_s))


def _end(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name}"


def _when(pause_s: float) -> str:
    return f"in {pause_s:.1f} s" if pause_s else "now"


async def _run_once(
    child: Child, stop: asyncio.Event, running: "dict[str, asyncio.subprocess.Process]"
) -> int:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        child.module,
        stdin=asyncio.subprocess.PIPE,
        # Until it can do what is asked for by it: else it would end.
        preexec_fn=partial(signal.signal, signal.SIGHUP, signal.SIG_IGN),
    )
    assert process.stdin is not None
    running[child.name] = process
    with suppress(RuntimeError, OSError):  # it was killed before it could be told
        process.stdin.write(child.tell())
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
        del running[child.name]
    return await ended


if __name__ == "__main__":
    child()
