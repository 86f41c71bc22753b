"""By which names a node may be called, so that nobody else's name leads a page of theirs to it.

A page may read whatever has its own origin, and a browser says no Origin with such a GET. An origin
is a name, and whoever owns the name says where it leads: now to them, and a moment later to this
node (DNS rebinding). The Host header still has that name in it. So only names of this node are
answered. An address is always good, as nobody can lead it elsewhere, and so is no Host at all,
which no browser sends: that is how load balancers and Prometheus often ask.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from typing import Final

REFUSED: Final = (
    "this node does not go by the name that was asked for: put it into allowed_hosts under [node], "
    "or use the node's address"
)
STATUS: Final = 421
"""Misdirected Request."""
_ALWAYS: Final = "localhost"
_ALL: Final = "*"


class Hosts:
    def __init__(self, names: Iterable[str], *, any_name: bool = False) -> None:
        self._any_name = any_name
        self.take(names)

    def take(self, names: Iterable[str]) -> None:
        """In place of the names so far. `*.example.com` stands for one label, as in certificates;
        `*` alone for all."""
        self._names = frozenset(name.lower().rstrip(".") for name in (_ALWAYS, *names))

    def allows(self, hosts: Sequence[str]) -> bool:
        """What the Host headers of a request say, each with or without a port."""
        return self._any_name or _ALL in self._names or all(map(self._is_ours, hosts))

    def _is_ours(self, host: str) -> bool:
        name = _without_port(host)
        if not name or name in self._names or _is_address(name):
            return True
        _, dot, parent = name.partition(".")
        return bool(dot) and f"*.{parent}" in self._names


def _without_port(host: str) -> str:
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].lower().rstrip(".")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
