"""The registrar of a node, with nothing before it and nothing behind."""

from roskva.config import Config
from roskva.core.identity import TokenKeys
from roskva.feed.commit import Handover
from roskva.server.access.authority import AllowAll
from roskva.server.registrar import RegistrarServer


def registrar_of_one_shard() -> RegistrarServer:
    keys = TokenKeys({1: bytes(32)}, 1)
    return RegistrarServer("one", 1, Config(), AllowAll(), keys, broken, Handover())


def broken(error: Exception) -> None:
    raise error
