"""uvicorn's HTTP, with an end to how much a request may say before its body, and for how long.

With httptools, uvicorn gathers the head of a request whatever its length, and waits for the rest
whatever it takes: clients that never come to the end of it would fill our memory, or take all the
connections we may have. The body has a limit of its own.
"""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from roskva.channels.deadlines import Deadlines
from roskva.channels.peers import RETRY_AFTER_S, UNCOUNTED, Addresses, Peers

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 100
MAX_BODIES_BYTES: Final = 128 * 1024 * 1024
"""Of all bodies of a process that are on their way."""


def _last_answer(status: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "content-length: 0", "connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


_TOO_LATE: Final = _last_answer("408 Request Timeout")
_TOO_MANY: Final = _last_answer("429 Too Many Requests", f"retry-after: {RETRY_AFTER_S}")
_BUSY: Final = _last_answer("503 Service Unavailable", "retry-after: 1")


class Entrance:
    """What the connections of a port have in common."""

    def __init__(
        self, peers: Peers, addresses: Addresses, handshake_s: float, body_s: float
    ) -> None:
        self.peers = peers
        self.addresses = addresses
        self.body_bytes = 0
        """Received, of bodies that are not complete yet."""
        self.heads: Deadlines[BoundedHttp] = Deadlines(handshake_s, BoundedHttp.is_late)
        self.bodies: Deadlines[BoundedHttp] = Deadlines(body_s, BoundedHttp.is_late)


class BoundedHttp(HttpToolsProtocol):
    _in_head = True
    _head_bytes = 0
    _body_bytes = 0
    _address: str | None = None

    def __init__(self, entrance: Entrance, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._entrance = entrance

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._address = self._entrance.addresses.enter(transport)
        if self._address is None:
            transport.write(_TOO_MANY)
            transport.close()
        else:
            self._entrance.heads.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The head of a request has at most {MAX_HEAD_BYTES} bytes.")

    def on_message_begin(self) -> None:
        self._in_head, self._head_bytes = True, 0
        if self not in self._entrance.heads:
            self._entrance.heads.begin(self)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            raise ValueError("too many headers")  # for the parser: it refuses the request

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._entrance.heads.done(self)
        self._entrance.bodies.begin(self)
        if self._entrance.peers.is_proxy(self.transport):
            self._hear_proxy()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._entrance.body_bytes += len(body)
        if self._entrance.body_bytes > MAX_BODIES_BYTES and not self.transport.is_closing():
            self.transport.write(_BUSY)
            self.transport.close()
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._entrance.bodies.done(self)
        self._body_is_done()
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._leave()  # it is counted as a WebSocket from now on
        super().handle_websocket_upgrade()

    def is_late(self) -> None:
        """It is told so if it has begun to say anything, and nothing is being answered yet."""
        answering = self.cycle is not None and self.cycle.response_started
        if answering and not self.cycle.response_complete:
            self.transport.abort()
            return
        if self._head_bytes or not self._in_head:
            self.transport.write(_TOO_LATE)
        self.transport.close()

    def _hear_proxy(self) -> None:
        """Whoever asks for this request's client and scheme gets the ones in front of the proxy."""
        told = {
            wanted: ",".join(v.decode("latin-1") for name, v in self.headers if name == wanted)
            for wanted in (b"x-forwarded-for", b"x-forwarded-proto")
        }
        peers = self._entrance.peers
        self.scope["client"] = (peers.address(self.transport, told[b"x-forwarded-for"]), 0)
        secure = peers.secure(self.transport, told[b"x-forwarded-proto"])
        self.scope["scheme"] = "https" if secure else "http"

    def _body_is_done(self) -> None:
        self._entrance.body_bytes -= self._body_bytes
        self._body_bytes = 0

    def _leave(self) -> None:
        self._entrance.heads.done(self)
        self._entrance.bodies.done(self)
        self._body_is_done()
        self._entrance.addresses.leave(self._address)
        self._address = UNCOUNTED


class LateApp:
    """An app of HTTP that is made when it is first asked for.

    The framework takes a third of a second to load, and a registrar that comes back has clients to
    serve who need none of it. Whoever asks first waits, and nobody else: it is made beside the
    loop.
    """

    def __init__(self, make: "Callable[[], ASGIApp]") -> None:
        self._make = make
        self._made: asyncio.Future[ASGIApp] | None = None

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        if self._made is None:
            self._made = asyncio.get_running_loop().run_in_executor(None, self._make)
        app = await asyncio.shield(self._made)
        await app(scope, receive, send)
