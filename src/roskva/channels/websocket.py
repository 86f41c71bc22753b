"""WebSocket: the whole protocol, one message per frame, on the port of HTTP.

uvicorn hands a connection over when it asks for an upgrade. From then on frames are written
straight to its transport.
"""

import asyncio
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from websockets.datastructures import Headers
from websockets.exceptions import InvalidHandshake
from websockets.http11 import Request
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

from roskva.channels import hosts, peers
from roskva.channels.base import FULL, MAX_UNREAD_BYTES, Gateway
from roskva.channels.connections import Connections
from roskva.channels.conversation import Conversation
from roskva.channels.deadlines import Deadlines
from roskva.channels.hosts import Hosts
from roskva.channels.origins import REFUSED, Origins
from roskva.channels.peers import Addresses, Peers
from roskva.core.effects import Closed, Opened
from roskva.errors import BadMessage, RoskvaError, TooLarge
from roskva.host.delivery import MessageDelivery
from roskva.net.unread import reset, taken_by
from roskva.wire.codec import Format
from roskva.wire.messages import Notification, ServerMessage
from roskva.wire.websocket import (
    CloseCode,
    FrameReader,
    Opcode,
    as_json,
    close_frame,
    frame,
    packed,
)

PATH: Final = "/v1/ws"
_SUBPROTOCOLS: Final[dict[str, Format]] = {
    "roskva.v1.msgpack": "msgpack",
    "roskva.v1.json": "json",
}
_RANDOM_BYTES: Final = 28
_CLOSING_S: Final = 1.0
"""For the other side to close in its turn; else it might not read what was sent last."""

_PING: Final = frame(Opcode.PING, b"")


def close_code(kind: type[BadMessage]) -> CloseCode:
    """For frames that cannot be read, after which nothing else can be either."""
    return CloseCode.TOO_BIG if issubclass(kind, TooLarge) else CloseCode.PROTOCOL_ERROR


@dataclass(eq=False)
class WebSockets:
    """All WebSocket connections of a node. `connection` is what uvicorn makes them with."""

    front: Gateway
    peers: Peers
    addresses: Addresses
    connections: Connections
    names: Hosts
    origins: Origins
    max_bytes: int
    handshake_s: float
    write_s: float

    def __post_init__(self) -> None:
        self.unread: Deadlines[WebSocket] = Deadlines(self.write_s, WebSocket.check_reading)
        self.hellos: Deadlines[WebSocket] = Deadlines(self.handshake_s, WebSocket.is_late)
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


class WebSocket(Conversation, asyncio.Protocol):
    __slots__ = (
        *("_address", "_closing", "_handshake", "_heard", "_held", "_reader", "_server_state"),
        *("_sockets", "_staying", "_taken", "transport"),
    )
    transport: asyncio.Transport

    def __init__(self, sockets: WebSockets, config: Any, server_state: Any, app_state: Any) -> None:
        super().__init__(sockets.front, MessageDelivery(packed))
        self._sockets = sockets
        self._server_state = server_state
        self._handshake: ServerProtocol | None = ServerProtocol(
            subprotocols=[Subprotocol(name) for name in _SUBPROTOCOLS]
        )
        self._reader = FrameReader(sockets.max_bytes)
        self._address: str | None = None
        """By which its connections are counted."""
        self._heard = True
        self._held = False
        self._staying = False
        """It has a session."""
        self._taken: int | None = None
        """What its client had taken when that was looked at last."""
        self._closing = False

    # What the core says.

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        if message.session is not None and not self._staying:
            self._staying = self._sockets.connections.stays(self.transport)
            if not self._staying:
                self._hang_up(CloseCode.COME_BACK, FULL)
        if self._closing:
            return ()
        self.transport.write(self.delivery.encode(message))
        if self.delivery.lagging:
            self._hold()
        return message.notifications

    def close(self) -> None:
        self._hang_up(CloseCode.COME_BACK, "come back later")

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.delivery.connection = self
        self.delivery.address = self._front.writer.enter(self.transport)
        self._sockets.connections.enter(self.transport)
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
            self._sockets.unread.done(self)
            self.transport.resume_reading()
        self._front.step(self.delivery.resume())

    def connection_lost(self, error: Exception | None) -> None:
        self._front.writer.leave(self.delivery.address)
        self._closing = True
        self.delivery.end()
        self._server_state.connections.discard(self)
        self._sockets.unread.done(self)
        self._sockets.connections.leave(self.transport)
        self._sockets.addresses.leave(self._address)
        if self._handshake is None:
            self._sockets.open.discard(self)
            self._sockets.hellos.done(self)
            self._front.step(Closed(self.delivery))
        self.delivery.connection = None

    def shutdown(self) -> None:
        """uvicorn stops."""
        self._hang_up(CloseCode.COME_BACK, "this server is stopping")

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
        elif not self._sockets.names.allows(request.headers.get_all("Host")):
            response = handshake.reject(hosts.STATUS, f"{hosts.REFUSED}\n")
        elif not self._may_come_from(request.headers):
            response = handshake.reject(403, f"{REFUSED}\n")
        elif self._sockets.connections.full:
            response = handshake.reject(503, f"{FULL}\n")
            response.headers["Retry-After"] = str(peers.RETRY_AFTER_S)
        elif not self._may_have_one_more(request.headers):
            response = handshake.reject(429, f"{peers.TOO_MANY}\n")
            response.headers["Retry-After"] = str(peers.RETRY_AFTER_S)
        else:
            self._credential = peers.credential_of(request.headers.get("Authorization"))
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
            self.transport.write(close_frame(CloseCode.NORMAL, ""))
            self.transport.close()

    def _said_hello(self) -> None:
        self._sockets.hellos.done(self)

    def _certificate(self) -> str | None:
        return peers.certificate_name(self.transport)

    def _address_counted(self) -> str:
        return self._address or ""

    def _hang_up_on(self, error: RoskvaError) -> None:
        self._hang_up(CloseCode.PROTOCOL_ERROR, error.code)

    def is_late(self) -> None:
        self._hang_up(CloseCode.NO_HELLO, "no hello in time")

    def _hold(self) -> None:
        """It asks for more than it reads: nothing is read from it until it has."""
        if not self._held and self.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            self._held = True
            self._watch_reading()
            self.transport.pause_reading()

    def _watch_reading(self) -> None:
        self._taken = taken_by(self.transport)
        self._sockets.unread.begin(self)

    def check_reading(self) -> None:
        """It has asked for more than it reads, or is about to be closed."""
        if self._taken is not None and taken_by(self.transport) == self._taken:
            reset(self.transport)
        else:
            self._watch_reading()

    def ping(self) -> None:
        if not self._heard and not self._held:
            self.transport.abort()
        elif not self._closing and not self.delivery.lagging:
            self._heard = False
            self.transport.write(_PING)

    def _hang_up(self, code: CloseCode, reason: str) -> None:
        if self._closing:
            return
        self._end()
        self.transport.write(close_frame(code, reason))
        asyncio.get_running_loop().call_later(_CLOSING_S, self.transport.close)

    def _end(self) -> None:
        if not self._closing:
            self._watch_reading()
        self._closing = True
        self.delivery.end()
