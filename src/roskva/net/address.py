"""Where a node is. One URL is enough for everything: HTTP and WebSocket share its port."""

import random
from collections import deque
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

import msgspec

from roskva.errors import BadInput

WEBSOCKET_PATH: Final = "/v1/ws"

_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1"}
_SECURE: Final = {"http": False, "ws": False, "https": True, "wss": True}


class Ports(msgspec.Struct, frozen=True):
    """Of a node; 0 stands for any free one."""

    http: int
    mqtt: int | None
    admin: int | None


class NodeAddresses:
    """Of nodes that all will do. One that fails is left for the one that was left longest ago, and
    their order is drawn, so that those who leave the same one do not all run to the same other."""

    def __init__(self, urls: str | Sequence[str]) -> None:
        each = [urls] if isinstance(urls, str) else list(dict.fromkeys(urls))
        if not each:
            raise BadInput("give the address of a node, or several")
        if len({is_secure(url) for url in each}) > 1:
            raise BadInput("of several addresses either all have TLS or none: https:// or http://")
        self._each = deque(random.sample(each, len(each)))

    def __len__(self) -> int:
        return len(self._each)

    @property
    def current(self) -> str:
        return self._each[0]

    def leave(self) -> None:
        """The one in use, which has failed."""
        self._each.rotate(-1)


def is_secure(address: str) -> bool:
    return urlsplit(_joined(address, "http", "")).scheme == "https"


def http_url(address: str, path: str) -> str:
    """`path` at the node, whichever of its URLs is given."""
    return _joined(address, "http", path)


def websocket_url(address: str) -> str:
    return _joined(address, "ws", WEBSOCKET_PATH)


def in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def local_in_url(host: str) -> str:
    """Where this machine finds what listens on `host`."""
    return in_url(_ANYWHERE.get(host, host))


def _joined(address: str, scheme: str, path: str) -> str:
    try:
        parts = urlsplit(address)
        secure = _SECURE[parts.scheme]
        host = parts.hostname
        _ = parts.port  # checked when it is asked for
    except (ValueError, KeyError):
        host = None
    if not host or parts.query or parts.fragment:
        raise BadInput(f"a node's address looks like http://localhost:7600; got {address[:80]!r}")
    base = parts.path.rstrip("/").removesuffix(WEBSOCKET_PATH)
    return urlunsplit((scheme + "s" * secure, parts.netloc, base + path, "", ""))
