"""uvicorn's HTTP, with an end to how much a request may say before its body, and for how long.

With httptools, uvicorn gathers the head of a request whatever its length, and waits for the rest
whatever it takes: clients that never come to the end of it would fill our memory, or take all the
connections we may have. The body has a limit of its own, has to come at a minimum rate, and counts
for its address and its principal (`bodies.py`). Once a request is answered, the rest of its body is
read and dropped. Whoever does not read what is written to it is cut off.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from roskva.channels.base import MAX_UNREAD_BYTES
from roskva.channels.bodies import MIN_BYTES_PER_S, Bodies
from roskva.channels.connections import STAYS, Connections
from roskva.channels.deadlines import Deadlines
from roskva.channels.peers import BODY_OF, RETRY_AFTER_S, UNCOUNTED, Addresses, Peers
from roskva.model import Principal
from roskva.net.unread import reset, taken_by

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Receive, Scope, Send
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_HEADERS: Final = 100
MAX_PIPELINED: Final = 32
"""Requests of a connection that wait for the answers to earlier ones: each is far larger here than
on its way."""


def _last_answer(status: str, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", "content-length: 0", "connection: close", *headers, "", ""]
    return "\r\n".join(lines).encode()


_TOO_LATE: Final = _last_answer("408 Request Timeout")
_TOO_MANY: Final = _last_answer("429 Too Many Requests", f"retry-after: {RETRY_AFTER_S}")
_BUSY: Final = _last_answer("503 Service Unavailable", "retry-after: 1")
FULL: Final = _last_answer("503 Service Unavailable", f"retry-after: {RETRY_AFTER_S}")


class Entrance:
    """What the connections of a port have in common."""

    def __init__(
        self,
        peers: Peers,
        addresses: Addresses,
        connections: Connections,
        handshake_s: float,
        body_s: float,
        write_s: float,
    ) -> None:
        self.peers = peers
        self.addresses = addresses
        self.connections = connections
        self.unread: Deadlines[BoundedHttp] = Deadlines(write_s, BoundedHttp.check_reading)
        self.heads: Deadlines[BoundedHttp] = Deadlines(handshake_s, BoundedHttp.is_late)
        self.body_ends: Deadlines[BoundedHttp] = Deadlines(body_s, BoundedHttp.is_late)
        self.body_paces: Deadlines[BoundedHttp] = Deadlines(handshake_s, BoundedHttp.check_pace)
        self.least_bytes = MIN_BYTES_PER_S * handshake_s
        """Of a body, between two looks at its pace."""
        self.bodies: Bodies[BoundedHttp] = Bodies(BoundedHttp.give_up)


class BoundedHttp(HttpToolsProtocol):
    _in_head = True
    _head_bytes = 0
    _body_bytes = 0
    _paced_bytes = 0
    """What of it had arrived when its pace was looked at last."""
    _taken: int | None = None
    """What its client had taken when that was looked at last."""
    _address: str | None = None
    _answering: "RequestResponseCycle | None" = None
    """The request that came last may wait behind it."""

    def __init__(self, entrance: Entrance, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._entrance = entrance

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(MAX_UNREAD_BYTES)  # TLS would hold many times that
        self._entrance.connections.enter(transport)
        self._entrance.unread.begin(self)
        self._address = self._entrance.addresses.enter(transport)
        if self._address is None:
            transport.write(_TOO_MANY)
            transport.close()
        else:
            self._entrance.heads.begin(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._entrance.connections.leave(self.transport)
        super().connection_lost(exc)
        self.pipeline.clear()
        if self._answering is not None:  # uvicorn tells only the request that came last
            self._answering.disconnected = True
            self._answering.message_event.set()

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
        if [name for name, _ in self.headers].count(b"host") > 1:
            raise ValueError("two hosts")  # a proxy may have looked at the other one
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many requests at once")
        self._in_head = False
        entrance = self._entrance
        entrance.heads.done(self)
        entrance.body_ends.begin(self)
        entrance.body_paces.begin(self)
        address = self._address
        if entrance.peers.is_proxy(self.transport):
            address = entrance.addresses.name(self.transport, self._hear_proxy())
        entrance.bodies.begin(self)
        if address:
            entrance.bodies.count_for(self, address)
        self.scope["state"][BODY_OF] = self._body_is_of
        self.scope["state"][STAYS] = partial(entrance.connections.stays, self.transport)
        super().on_headers_complete()

    def _body_is_of(self, principal: Principal) -> None:
        if principal.name:
            self._entrance.bodies.count_for(self, (principal.app, principal.name))

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._entrance.bodies.arrived(self, len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._body_is_done()
        super().on_message_complete()
        self._take_turns()

    def on_response_complete(self) -> None:
        if self.cycle.response_complete:
            self._entrance.bodies.done(self)  # the rest is not kept
        super().on_response_complete()
        self._take_turns()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._take_turns()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._take_turns()

    def _take_turns(self) -> None:
        """Is it the client's, or ours?"""
        cycle, connections = self._answering, self._entrance.connections
        if cycle is None or cycle.response_complete or cycle.more_body:
            connections.waits(self.transport)
        elif self.flow.write_paused:
            connections.is_held_up(self.transport)
        else:
            connections.is_served(self.transport)

    def check_reading(self) -> None:
        taken = taken_by(self.transport)
        if taken is not None and taken == self._taken:
            reset(self.transport)
        else:
            self._taken = taken
            self._entrance.unread.begin(self)

    def handle_websocket_upgrade(self) -> None:
        self._leave()  # it is counted as a WebSocket from now on
        super().handle_websocket_upgrade()

    def _start_asgi_task(self, cycle: "RequestResponseCycle", app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def is_late(self) -> None:
        """It is told so if it has begun to say anything, and nothing is being answered yet."""
        answering = self.cycle is not None and self.cycle.response_started
        if answering and not self.cycle.response_complete:
            self.transport.abort()
            return
        if self._head_bytes > 0 if self._in_head else not answering:
            self.transport.write(_TOO_LATE)
        self.transport.close()

    def check_pace(self) -> None:
        arrived = self._body_bytes - self._paced_bytes
        if arrived < self._entrance.least_bytes and not self.flow.read_paused:
            self.is_late()
        else:
            self._paced_bytes = self._body_bytes
            self._entrance.body_paces.begin(self)

    def give_up(self) -> None:
        """There is too much of bodies, and this one has taken longest."""
        self.transport.write(_BUSY)
        self.transport.close()

    def _hear_proxy(self) -> str:
        """Whoever asks for this request's client and scheme gets the ones in front of the proxy.
        Returns for whom it speaks."""
        told = {
            wanted: ",".join(v.decode("latin-1") for name, v in self.headers if name == wanted)
            for wanted in (b"x-forwarded-for", b"x-forwarded-proto")
        }
        peers = self._entrance.peers
        self.scope["client"] = (peers.address(self.transport, told[b"x-forwarded-for"]), 0)
        secure = peers.secure(self.transport, told[b"x-forwarded-proto"])
        self.scope["scheme"] = "https" if secure else "http"
        return told[b"x-forwarded-for"]

    def _body_is_done(self) -> None:
        self._entrance.body_ends.done(self)
        self._entrance.body_paces.done(self)
        self._entrance.bodies.done(self)
        self._body_bytes = self._paced_bytes = 0

    def _leave(self) -> None:
        self._entrance.heads.done(self)
        self._entrance.unread.done(self)
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
