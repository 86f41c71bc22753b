"""The processes of a node, as they know of each other.

**A child** is told what it is on its standard input, which stays open for as long as its parent
lives. When it ends, however the parent died, so does the child: nothing is left behind that holds a
port or a lock.

**A node that serves** leaves in its data directory, for others to find, where it listens.

**A process beside a node** says how it is in a small file of JSON, replaced every so often, and the
node puts that into its own status. The file is beside the sockets of the node's processes and goes
with them, so one that is there is of this run.
"""

import os
import pickle
import sys
import threading
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

NOT_AGAIN: Final = 78
"""The exit code of a child that would end the same way if it were started again."""

_LENGTH_BYTES: Final = 4
_FILE: Final = "node.json"

T = TypeVar("T")


# A parent and its children.


def pack_assignment(value: object) -> bytes:
    """What a parent writes: plain values, and nothing of its own state."""
    pickled = pickle.dumps(value)
    return len(pickled).to_bytes(_LENGTH_BYTES) + pickled


def read_assignment() -> Any:
    """What the parent has written; from now on this process ends with it."""
    stdin = sys.stdin.buffer
    length = int.from_bytes(stdin.read(_LENGTH_BYTES))
    pickled = stdin.read(length)
    if not pickled or len(pickled) < length:
        sys.exit(1)  # the parent was gone before it could write
    _end_with_the_parent()
    return pickle.loads(pickled)


def _end_with_the_parent() -> None:
    """On a thread, so that it holds also while the loop is busy.

    It reads the descriptor itself: `sys.stdin` would be locked when the interpreter ends.
    """
    stdin = sys.stdin.fileno()

    def wait() -> None:
        while os.read(stdin, 1):
            pass
        os._exit(1)

    threading.Thread(target=wait, name="parent", daemon=True).start()


# Where a node listens.


class Process(msgspec.Struct, frozen=True):
    """A process of a node, and the Unix socket where it answers."""

    name: str
    socket: str
    shards: list[int] = []
    """That it owns."""


class RunningNode(msgspec.Struct, frozen=True, omit_defaults=True):
    pid: int
    url: str
    started_at: float
    processes: list[Process]
    mqtt_port: int | None = None
    certificate: str | None = None
    """Of its TLS, for those on this machine who find it here."""


def running(data: Path) -> RunningNode | None:
    """The node that serves this directory, unless it was stopped; it may have been killed."""
    try:
        return msgspec.json.decode((data / _FILE).read_bytes(), type=RunningNode)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def announce(data: Path, node: RunningNode) -> None:
    replace_file(data / _FILE, msgspec.json.format(msgspec.json.encode(node)))


def withdraw(data: Path) -> None:
    (data / _FILE).unlink(missing_ok=True)


# How a process beside a node is.


def write_report(file: Path, report: msgspec.Struct) -> None:
    replace_file(file, msgspec.json.encode(report))


def replace_file(path: Path, content: bytes) -> None:
    """In one step, for whoever reads it meanwhile."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_bytes(content)
    temporary.replace(path)


def read_report(file: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
