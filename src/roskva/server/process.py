"""How a process of a node runs: its loop, its signals, its end.

A child is told what it is on its standard input, which stays open for as long as its parent lives.
When it ends, however the parent died, so does the child: nothing is left behind that holds a port
or a lock.
"""

import asyncio
import logging
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import uvloop

from roskva.config import Config
from roskva.errors import RoskvaError
from roskva.server.directory import DataDirectory
from roskva.server.keys import token_keys
from roskva.server.listening import listen
from roskva.server.node import Node, Role


class Assignment(msgspec.Struct, frozen=True):
    """What a child is told: plain values, and nothing of its parent's state."""

    role: Role
    config: Config
    http_port: int
    mqtt_port: int | None


def run(node: Node, started: Callable[[], None] = lambda: None) -> None:
    """Until SIGTERM or SIGINT."""

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        await node.run(stop, started)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())


def child() -> None:
    """The main function of a child process."""
    # Ctrl-C goes to the whole group of processes; it is the parent that stops us.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log_to_stderr()
    assignment = _assignment()
    if assignment is None:
        sys.exit(1)
    _die_with_the_parent()
    try:
        run(_node(assignment))
    except RoskvaError as error:
        logging.error("%s: %s", assignment.role.name, error)
        sys.exit(1)


def log_to_stderr() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    for chatty in ("uvicorn", "websockets"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def told(assignment: Assignment) -> bytes:
    pickled = pickle.dumps(assignment)
    return len(pickled).to_bytes(4) + pickled


def _assignment() -> Assignment | None:
    """None: the parent was gone before it could tell."""
    stdin = sys.stdin.buffer
    length = int.from_bytes(stdin.read(4))
    pickled = stdin.read(length)
    if not pickled or len(pickled) < length:
        return None
    assignment: Assignment = pickle.loads(pickled)
    return assignment


def _node(assignment: Assignment) -> Node:
    config, role = assignment.config, assignment.role
    data = DataDirectory.open(Path(config.node.data))
    http = mqtt = None
    if role.front:
        http = listen(config.node.host, assignment.http_port, shared=True)
        if assignment.mqtt_port is not None:
            mqtt = listen(config.node.host, assignment.mqtt_port, shared=True)
    return Node(role, config, data, token_keys(data.path), http, mqtt)


def _die_with_the_parent() -> None:
    """On a thread, so that it holds also while the loop is busy.

    It reads the descriptor itself: `sys.stdin` would be locked when the interpreter ends.
    """
    stdin = sys.stdin.fileno()

    def wait() -> None:
        while os.read(stdin, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


if __name__ == "__main__":
    child()
