"""How many connections each address has, and that none has too many.

Of this machine and of our proxies any number is fine: whoever is behind a proxy is counted by the
address that the proxy names, where the channel has words for that (HTTP's headers).
"""

import asyncio
import ipaddress
from typing import Final

from roskva.channels.peers import Peers

UNCOUNTED: Final = ""
RETRY_AFTER_S: Final = 10
TOO_MANY: Final = "too many connections from this address"


class Addresses:
    def __init__(self, peers: Peers, limit: int) -> None:
        self._peers = peers
        self._limit = limit
        self._counts: dict[str, int] = {}
        self.refused = 0

    def enter(self, transport: asyncio.BaseTransport, forwarded_for: str = "") -> str | None:
        """What to `leave` by when the connection ends; None: it has too many, and may not."""
        address = self._peers.address(transport, forwarded_for)
        if not address or ipaddress.ip_address(address).is_loopback:
            return UNCOUNTED
        if not forwarded_for and self._peers.is_proxy(transport):
            return UNCOUNTED
        count = self._counts.get(address, 0)
        if count >= self._limit:
            self.refused += 1
            return None
        self._counts[address] = count + 1
        return address

    def leave(self, address: str | None) -> None:
        if not address:
            return
        count = self._counts[address] - 1
        if count:
            self._counts[address] = count
        else:
            del self._counts[address]
