"""The registrar of a node, with nothing before it and nothing behind."""

from pathlib import Path

from roskva.config import Config
from roskva.core.identity import TokenKeys
from roskva.feed.commit import Handover
from roskva.server.access.authority import AllowAll
from roskva.server.registrar import RegistrarServer
from roskva.server.space import DiskSpace


def registrar_of_one_shard(config: Config | None = None) -> RegistrarServer:
    keys = TokenKeys({1: bytes(32)}, 1)
    space = DiskSpace(Path(), 0)
    return RegistrarServer(
        "one", 1, config or Config(), AllowAll(), keys, broken, Handover(), space
    )


def broken(error: Exception) -> None:
    raise error
