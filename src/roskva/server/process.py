"""How a process of a node runs: its loop, its signals, its end."""

import asyncio
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec
import uvloop

from roskva.config import Config, Source
from roskva.errors import RoskvaError
from roskva.links.processes import read_assignment
from roskva.logs import log_to_stderr
from roskva.server.access.keys import token_keys
from roskva.server.directory import DataDirectory
from roskva.server.listening import Ports, listen_all
from roskva.server.node import Node, Role
from roskva.server.reload import Reloads, on_hangup


class Assignment(msgspec.Struct, frozen=True):
    """What a child is told: plain values, and nothing of its parent's state."""

    role: Role
    config: Config
    source: Source
    ports: Ports


def run(
    node: Node,
    started: Callable[[], None] = lambda: None,
    beside: Sequence[Callable[[asyncio.Event], Awaitable[None]]] = (),
) -> None:
    """Until SIGTERM or SIGINT. What runs `beside` the node begins when it has started."""

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        on_hangup(node.reloads.run, stop.set)
        async with asyncio.TaskGroup() as tasks:

            def begun() -> None:
                started()
                for work in beside:
                    tasks.create_task(_awaited(work(stop)))

            await node.run(stop, begun)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


async def _awaited(work: Awaitable[None]) -> None:
    await work


def child() -> None:
    """The main function of a child process."""
    # Ctrl-C goes to the whole group of processes; it is the parent that stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    assignment: Assignment = read_assignment()
    log_to_stderr(assignment.config.node.log)
    try:
        run(_node(assignment))
    except RoskvaError as error:
        logging.error("%s: %s", assignment.role.name, error)
        sys.exit(1)


def _node(assignment: Assignment) -> Node:
    config, role = assignment.config, assignment.role
    data = DataDirectory.open(Path(config.node.data))
    listeners = listen_all(config, assignment.ports, shared=True) if role.front else None
    keys = token_keys(data.path)
    return Node(role, config, data, keys, listeners, Reloads(assignment.source, config))


if __name__ == "__main__":
    child()
