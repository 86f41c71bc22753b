"""Who is at the other end of a connection: its address, how many it has, and what it shows.

Behind a proxy the other end is the proxy. It says in X-Forwarded-For whom it speaks for, and in
X-Forwarded-Proto whether that one came over TLS. Anybody can send such headers, so they count only
if they come from the addresses of our proxies.

No address has too many connections. From this machine and from our proxies any number is fine:
whoever is behind a proxy is counted by the address that the proxy names, where the channel has
words for that (HTTP's headers), and then also if that is 127.0.0.1.
"""

import asyncio
import hmac
import ipaddress
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from roskva.answer import answer_of
from roskva.channels.base import Gateway
from roskva.config import Config, read_secret
from roskva.errors import Unauthorised
from roskva.model import Principal

if TYPE_CHECKING:
    from litestar.connection import ASGIConnection
    from litestar.types import Guard

IpAddress = ipaddress.IPv4Address | ipaddress.IPv6Address

UNCOUNTED: Final = ""
RETRY_AFTER_S: Final = 10
TOO_MANY: Final = "too many connections from this address"
_SCHEME: Final = "bearer "
_CUSTOMER_BITS: Final = 64


class Peers:
    def __init__(self, proxies: Sequence[str]) -> None:
        self._proxies = [ipaddress.ip_network(proxy) for proxy in proxies]

    def address(self, transport: asyncio.Transport, forwarded_for: str = "") -> str:
        """`forwarded_for`: what the headers of that name say, with commas between them."""
        peer = _peer(transport)
        return self._client(peer, forwarded_for) if self.is_proxy(transport) else peer

    def secure(self, transport: asyncio.Transport, forwarded_proto: str = "") -> bool:
        """Whether nobody could read along on the way."""
        if transport.get_extra_info("sslcontext") is not None:
            return True
        return forwarded_proto.strip().lower() in ("https", "wss") and self.is_proxy(transport)

    def is_proxy(self, transport: asyncio.Transport) -> bool:
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

    def _is_ours(self, address: IpAddress | None) -> bool:
        return address is not None and any(address in network for network in self._proxies)


def _peer(transport: asyncio.Transport) -> str:
    """Without port and scope; an IPv4 address as such, also where sockets speak both."""
    found = transport.get_extra_info("peername")
    if not isinstance(found, tuple):
        return ""  # it has gone already
    address = _parsed(str(found[0]))
    return "" if address is None else str(address)


def _parsed(text: str) -> IpAddress | None:
    """Some proxies add the port. What zone of this machine it is of says nothing of who it is."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _customer(address: IpAddress) -> str:
    if address.version == 6:
        return str(ipaddress.ip_network((address, _CUSTOMER_BITS), strict=False))
    return str(address)


def customer(text: str) -> str:
    address = _parsed(text)
    return "" if address is None else _customer(address)


class Addresses:
    def __init__(self, peers: Peers, limit: int) -> None:
        self._peers = peers
        self._limit = limit
        self._counts: dict[str, int] = {}
        self.refused = 0

    def name(self, transport: asyncio.Transport, forwarded_for: str = "") -> str:
        """By which it is counted; an IPv6 address by its /64, of which a customer has all."""
        is_proxy = self._peers.is_proxy(transport)
        address = _parsed(self._peers.address(transport, forwarded_for))
        if address is None or (is_proxy and not forwarded_for):
            return UNCOUNTED
        if address.is_loopback and not is_proxy:
            return UNCOUNTED
        return _customer(address)

    def customer(self, transport: asyncio.Transport) -> str:
        """By which the bytes that it publishes are counted, also if it is this machine."""
        return customer(self._peers.address(transport))

    def enter(self, transport: asyncio.Transport, forwarded_for: str = "") -> str | None:
        """What to `leave` by when the connection ends; None: it has too many, and may not."""
        name = self.name(transport, forwarded_for)
        if name == UNCOUNTED:
            return name
        count = self._counts.get(name, 0)
        if count >= self._limit:
            self.refused += 1
            return None
        self._counts[name] = count + 1
        return name

    def leave(self, address: str | None) -> None:
        if not address:
            return
        count = self._counts[address] - 1
        if count:
            self._counts[address] = count
        else:
            del self._counts[address]


# What it shows.


def certificate_name(transport: asyncio.Transport) -> str | None:
    """The common name in the certificate that the other end has shown, and we believe."""
    certificate = transport.get_extra_info("peercert") or {}
    named = (pair for part in certificate.get("subject", ()) for pair in part)
    return next((value for kind, value in named if kind == "commonName"), None)


class NotIdentified(Unauthorised):
    """In HTTP it matters who is asked who they are (401), and who may not (403)."""


def credential_of(authorization: str | None) -> str | None:
    if authorization is None or authorization[: len(_SCHEME)].lower() != _SCHEME:
        return None
    return authorization[len(_SCHEME) :].strip() or None


async def identified(front: Gateway, authorization: str | None) -> Principal:
    try:
        return await answer_of(partial(front.identify, None, credential_of(authorization), None))
    except Unauthorised as error:
        raise NotIdentified(str(error)) from None


BODY_OF: Final = "body_of"
"""In the state of a request: what is called with whose body it is."""


def credential_first(front: Gateway) -> "Guard":
    """Who asks is known before the body is read; it is `request.state.principal`."""

    async def guard(request: "ASGIConnection[Any, Any, Any, Any]", _: Any) -> None:
        principal = await identified(front, request.headers.get("authorization"))
        request.state.principal = principal
        if BODY_OF in request.state:
            request.state[BODY_OF](principal)

    return guard


class AdminDoor:
    """Who may see what a node says of itself.

    `open`: for everybody who gets as far as this, as long as there is no key."""

    def __init__(self, config: Config, *, open: bool) -> None:
        self._open = open
        self._key: bytes | None = None
        self.reload(config)

    def reload(self, config: Config) -> None:
        key = config.admin.key
        self._key = None if key is None else read_secret("key under [admin]", key).encode()

    def check(self, authorization: str | None) -> None:
        if self._key is None:
            if not self._open:
                raise Unauthorised("this is for the admin port or the admin key: see [admin]")
            return
        shown = credential_of(authorization) or ""
        if not hmac.compare_digest(shown.encode(), self._key):
            raise Unauthorised("this needs the admin key, as Authorization: Bearer …")
