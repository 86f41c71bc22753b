"""What a node that serves leaves in its data directory for others to find: where it listens."""

import os
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = "node.json"


class Process(msgspec.Struct, frozen=True):
    """A process of a node, and the Unix socket where it answers."""

    name: str
    socket: str
    shards: list[int] = []
    """That it owns."""


class Running(msgspec.Struct, frozen=True, omit_defaults=True):
    pid: int
    url: str
    started_at: float
    processes: list[Process]
    mqtt_port: int | None = None
    certificate: str | None = None
    """Of its TLS, for those on this machine who find it here."""


def running(data: Path) -> Running | None:
    """The node that serves this directory, unless it was stopped; it may have been killed."""
    try:
        return msgspec.json.decode((data / _FILE).read_bytes(), type=Running)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def announce(data: Path, node: Running) -> None:
    temporary = data / f"{_FILE}.tmp"
    temporary.write_bytes(msgspec.json.format(msgspec.json.encode(node)))
    os.replace(temporary, data / _FILE)


def withdraw(data: Path) -> None:
    (data / _FILE).unlink(missing_ok=True)
