"""Who is at the other end of a connection: the one place to ask for its address.

Behind a proxy the other end is the proxy. It says in X-Forwarded-For whom it speaks for, and in
X-Forwarded-Proto whether that one came over TLS. Anybody can send such headers, so they count only
if they come from the addresses of our proxies.
"""

import asyncio
import ipaddress
from collections.abc import Sequence

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Peers:
    def __init__(self, proxies: Sequence[str]) -> None:
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]

    def address(self, transport: asyncio.BaseTransport, forwarded_for: str = "") -> str:
        """`forwarded_for`: what the headers of that name say, with commas between them."""
        peer = _peer(transport)
        return self._client(peer, forwarded_for) if self.is_proxy(transport) else peer

    def secure(self, transport: asyncio.BaseTransport, forwarded_proto: str = "") -> bool:
        """Whether nobody could read along on the way."""
        if transport.get_extra_info("sslcontext") is not None:
            return True
        return forwarded_proto.strip().lower() in ("https", "wss") and self.is_proxy(transport)

    def is_proxy(self, transport: asyncio.BaseTransport) -> bool:
        return bool(self._proxies) and self._is_ours(_parsed(_peer(transport)))

    def _client(self, peer: str, forwarded_for: str) -> str:
        """Each proxy appends whom it heard from: the last one that is no proxy of ours is the
        client, and what is before it was said by nobody we know."""
        found = peer
        for text in reversed(forwarded_for.split(",")):
            address = _parsed(text.strip())
            if address is None:
                return found
            found = str(address)
            if not self._is_ours(address):
                return found
        return found

    def _is_ours(self, address: Address | None) -> bool:
        return address is not None and any(address in network for network in self._proxies)


def certificate_name(transport: asyncio.BaseTransport) -> str | None:
    """The common name in the certificate that the other end has shown, and we believe."""
    certificate = transport.get_extra_info("peercert") or {}
    named = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((value for kind, value in named if kind == "commonName"), None)


def _peer(transport: asyncio.BaseTransport) -> str:
    """Without port and scope; an IPv4 address as such, also where sockets speak both."""
    found = transport.get_extra_info("peername")
    if not isinstance(found, tuple):
        return ""  # it has gone already
    address = _parsed(str(found[0]).partition("%")[0])
    return "" if address is None else str(address)


def _parsed(text: str) -> Address | None:
    """Some proxies add the port."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
