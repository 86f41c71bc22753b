"""WebSocket: the whole protocol, one message per frame, on the port of HTTP.

uvicorn hands a connection over when it asks for an upgrade. From then on frames are written
straight to its transport.
"""

import asyncio
import secrets
from functools import partial
from typing import Any, Final, cast

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from roskva.channels.base import MAX_UNREAD_BYTES, Gateway
from roskva.channels.deadlines import Deadlines
from roskva.channels.origins import REFUSED, Origins
from roskva.channels.peers import (
    RETRY_AFTER_S,
    TOO_MANY,
    Addresses,
    Peers,
    certificate_name,
    credential_of,
)
from roskva.core.effects import Closed, Opened
from roskva.errors import BadMessage, RoskvaError, TooLarge, Unauthorised, WrongProtocol
from roskva.host.delivery import MessageDelivery
from roskva.model import NOBODY, Principal
from roskva.net.writer import Transport
from roskva.wire.codec import Format, decode_from_client
from roskva.wire.messages import PROTOCOL, Hello, ServerError, ServerMessage
from roskva.wire.websocket import FrameReader, Opcode, as_json, close_frame, frame, packed

PATH: Final = "/v1/ws"
_SUBPROTOCOLS: Final[dict[str, Format]] = {
    "roskva.v1.msgpack": "msgpack",
    "roskva.v1.json": "json",
}
_RANDOM_BYTES: Final = 28
MAX_BAD_MESSAGES: Final = 10
"""A client that sends more of what is no message is not one of ours."""
_CLOSING_S: Final = 1.0
"""For the other side to close in its turn; else it might not read what was sent last."""

_NORMAL: Final = 1000
_PROTOCOL_ERROR: Final = 1002
_NO_HELLO: Final = 1008
_TOO_BIG: Final = 1009
_COME_BACK: Final = 1012
CORE_CLOSES: Final = _COME_BACK
"""After an error that says why."""

_PING: Final = frame(Opcode.PING, b"")


def close_code(kind: type[BadMessage]) -> int:
    """For frames that cannot be read, after which nothing else can be either."""
    return _TOO_BIG if issubclass(kind, TooLarge) else _PROTOCOL_ERROR


class WebSockets:
    """All WebSocket connections of a node. `connection` is what uvicorn makes them with."""

    def __init__(
        self,
        front: Gateway,
        peers: Peers,
        addresses: Addresses,
        origins: Origins,
        max_bytes: int,
        handshake_s: float,
    ) -> None:
        self.front = front
        self.peers = peers
        self.addresses = addresses
        self.origins = origins
        self.max_bytes = max_bytes
        self.hellos: Deadlines[WebSocket] = Deadlines(handshake_s, WebSocket.is_late)
        self.open: set[WebSocket] = set()
        self.connection = partial(WebSocket, self)

    async def ping(self, interval_s: float) -> None:
        """Everybody in turn; who did not answer the last one is gone."""
        while True:
            await asyncio.sleep(interval_s)
            for i, conn in enumerate(list(self.open)):
                conn.ping()
                if i % 500 == 499:
                    await asyncio.sleep(0)


class WebSocket(asyncio.Protocol):
    __slots__ = (
        *("_address", "_bad", "_closing", "_credential", "_format", "_front", "_handshake"),
        *("_heard", "_held", "_identifying", "_reader", "_server_state", "_sockets"),
        *("delivery", "transport"),
    )
    transport: Transport

    def __init__(self, sockets: WebSockets, config: Any, server_state: Any, app_state: Any) -> None:
        self._sockets = sockets
        self._front = sockets.front
        self._server_state = server_state
        self._handshake: ServerProtocol | None = ServerProtocol(
            subprotocols=[Subprotocol(name) for name in _SUBPROTOCOLS]
        )
        self._reader = FrameReader(sockets.max_bytes)
        self._format: Format = "msgpack"
        self.delivery = MessageDelivery(packed)
        self._credential: str | None = None
        """Of the handshake; a hello may bring another."""
        self._address: str | None = None
        """By which its connections are counted."""
        self._identifying = False
        self._heard = True
        self._held = False
        self._closing = False
        self._bad = 0

    # What the core says.

    def send(self, message: ServerMessage) -> None:
        if not self._closing:
            self.transport.write(self.delivery.encode(message))
            if self.delivery.lagging:
                self._hold()

    def close(self) -> None:
        self._hang_up(CORE_CLOSES, "come back later")

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(Transport, transport)
        self.delivery.connection = self
        self.delivery.address = self._front.writer.enter(self.transport)
        self._server_state.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._handshake is not None:
            self._shake_hands(self._handshake, data)
            return
        self._heard = True
        try:
            for opcode, payload in self._reader.read(data):
                self._received(opcode, payload)
        except BadMessage as error:
            self._hang_up(close_code(type(error)), str(error))

    def pause_writing(self) -> None:
        self._front.step(self.delivery.pause())

    def resume_writing(self) -> None:
        if self._held:
            self._held = False
            self.transport.resume_reading()
        self._front.step(self.delivery.resume())

    def connection_lost(self, error: Exception | None) -> None:
        self._front.writer.leave(self.delivery.address)
        self._end()
        self._server_state.connections.discard(self)
        self._sockets.addresses.leave(self._address)
        if self._handshake is None:
            self._sockets.open.discard(self)
            self._sockets.hellos.done(self)
            self._front.step(Closed(self.delivery))
        self.delivery.connection = None

    def shutdown(self) -> None:
        """uvicorn stops."""
        self._hang_up(_COME_BACK, "this server is stopping")

    # The handshake.

    def _shake_hands(self, handshake: ServerProtocol, data: bytes) -> None:
        handshake.receive_data(data)
        for event in handshake.events_received():
            assert isinstance(event, Request)
            self._answer(handshake, event)
        for part in handshake.data_to_send():
            if part:
                self.transport.write(part)
        if handshake.handshake_exc is not None:
            self._end()
            self.transport.close()
        elif handshake.subprotocol is not None:
            self._begin(handshake.subprotocol)

    def _answer(self, handshake: ServerProtocol, request: Request) -> None:
        if request.path.partition("?")[0] != PATH:
            response = handshake.reject(404, f"WebSockets are at {PATH}\n")
        elif not self._may_come_from(request.headers):
            response = handshake.reject(403, f"{REFUSED}\n")
        elif self._front.full:
            response = handshake.reject(503, "too many connections: come back later\n")
            response.headers["Retry-After"] = "10"
        elif not self._may_have_one_more(request.headers):
            response = handshake.reject(429, f"{TOO_MANY}\n")
            response.headers["Retry-After"] = str(RETRY_AFTER_S)
        else:
            self._credential = credential_of(request.headers.get("Authorization"))
            response = handshake.accept(request)
            if response.status_code == 101 and handshake.subprotocol is None:
                wanted = " or ".join(_SUBPROTOCOLS)
                response = handshake.reject(400, f"ask for the subprotocol {wanted}\n")
                handshake.handshake_exc = InvalidHandshake("no subprotocol of ours")
        handshake.send_response(response)

    def _may_come_from(self, headers: Headers) -> bool:
        told = ",".join(headers.get_all("X-Forwarded-Proto"))
        secure = self._sockets.peers.secure(self.transport, told)
        origin, host = headers.get("Origin"), headers.get("Host", "")
        return self._sockets.origins.allows(origin, host, secure)

    def _may_have_one_more(self, headers: Headers) -> bool:
        forwarded_for = ",".join(headers.get_all("X-Forwarded-For"))
        self._address = self._sockets.addresses.enter(self.transport, forwarded_for)
        return self._address is not None

    def _begin(self, subprotocol: str) -> None:
        self._format = _SUBPROTOCOLS[subprotocol]
        self.delivery.encode = packed if self._format == "msgpack" else as_json
        self._handshake = None
        self._sockets.open.add(self)
        self._sockets.hellos.begin(self)
        self._front.step(Opened(self.delivery, secrets.token_bytes(_RANDOM_BYTES)))

    # Frames.

    def _received(self, opcode: int, payload: bytes) -> None:
        if self._closing:
            if opcode == Opcode.CLOSE:
                self.transport.close()
        elif opcode <= Opcode.BINARY:
            self._message(payload)
        elif opcode == Opcode.PING:
            if not self.delivery.lagging:  # one that does not read does not miss it
                self.transport.write(frame(Opcode.PONG, payload))
        elif opcode == Opcode.CLOSE:
            self._end()
            self.transport.write(close_frame(_NORMAL, ""))
            self.transport.close()

    def _message(self, payload: bytes) -> None:
        try:
            message = decode_from_client(payload, self._format)
        except RoskvaError as error:
            self._refuse(error)
            return
        if type(message) is Hello:
            self._sockets.hellos.done(self)
            if message.app is not None:
                self._identify(message.app, message)
                return
        self._front.received(self.delivery, NOBODY, message)

    def _identify(self, app: str, hello: Hello) -> None:
        if self._identifying:
            self._refuse(BadMessage("a second hello before the first was answered"))
            return
        self._identifying = True
        credential = hello.credential or self._credential
        certificate = certificate_name(self.transport)
        self._front.identify(app, credential, certificate, partial(self._identified, hello))

    def _identified(self, hello: Hello, found: Principal | RoskvaError) -> None:
        self._identifying = False
        if isinstance(found, RoskvaError):
            self._refuse(found)
        elif found.key:
            self._refuse(Unauthorised("a publish key is for publishing: clients show a JWT"))
        else:
            self._front.received(self.delivery, found, hello)

    def _refuse(self, error: RoskvaError) -> None:
        """Drop the message and say so; nothing else has happened."""
        self._bad += 1
        self.send(ServerMessage(PROTOCOL, error=ServerError(error.code, str(error)[:1024])))
        if isinstance(error, WrongProtocol) or self._bad >= MAX_BAD_MESSAGES:
            self._hang_up(_PROTOCOL_ERROR, error.code)

    def is_late(self) -> None:
        self._hang_up(_NO_HELLO, "no hello in time")

    def _hold(self) -> None:
        """It asks for more than it reads: nothing is read from it until it has."""
        if not self._held and self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._held = True
            self.transport.pause_reading()

    def ping(self) -> None:
        if not self._heard and not self._held:
            self.transport.abort()
        elif not self._closing and not self.delivery.lagging:
            self._heard = False
            self.transport.write(_PING)

    def _hang_up(self, code: int, reason: str) -> None:
        if self._closing:
            return
        self._end()
        self.transport.write(close_frame(code, reason))
        asyncio.get_running_loop().call_later(_CLOSING_S, self.transport.close)

    def _end(self) -> None:
        self._closing = True
        self.delivery.end()
