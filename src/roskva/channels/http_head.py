"""uvicorn's HTTP, with an end to how much a request may say before its body, and for how long.

With httptools, uvicorn gathers the head of a request whatever its length, and waits for the rest
whatever it takes: clients that never come to the end of it would fill our memory, or take all the
connections we may have. The body has a limit of its own.
"""

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from roskva.channels.deadlines import Deadlines
from roskva.channels.peers import Peers

MAX_HEAD_BYTES: Final = 64 * 1024
_TOO_LATE: Final = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


class Entrance:
    """What the connections of a port have in common."""

    def __init__(self, peers: Peers, handshake_s: float, body_s: float) -> None:
        self.peers = peers
        self.heads: Deadlines[BoundedHttp] = Deadlines(handshake_s, BoundedHttp.is_late)
        self.bodies: Deadlines[BoundedHttp] = Deadlines(body_s, BoundedHttp.is_late)


class BoundedHttp(HttpToolsProtocol):
    _in_head = True
    _head_bytes = 0

    def __init__(self, entrance: Entrance, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self._entrance = entrance

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
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

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._entrance.heads.done(self)
        self._entrance.bodies.begin(self)
        if self._entrance.peers.is_proxy(self.transport):
            self._hear_proxy()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._entrance.bodies.done(self)
        super().on_message_complete()

    def handle_websocket_upgrade(self) -> None:
        self._leave()
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

    def _leave(self) -> None:
        self._entrance.heads.done(self)
        self._entrance.bodies.done(self)
