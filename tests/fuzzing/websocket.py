"""WebSocket: frames, whole and in pieces; and connections after their handshake."""

from functools import cache
from typing import Any, Final

from tests.channels.mqtt_side import ADDRESSES, FakeTransport
from tests.fuzzing.core_front import CoreFront, Turning
from tests.fuzzing.target import Target
from tests.wire import examples

from roskva.channels.connections import Connections
from roskva.channels.hosts import Hosts
from roskva.channels.origins import Origins
from roskva.channels.peers import Peers
from roskva.channels.websocket import WebSockets
from roskva.errors import BadMessage
from roskva.wire import codec
from roskva.wire.websocket import FrameReader

_MAX: Final = 4096
_UPGRADE: Final = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
    b"Sec-WebSocket-Protocol: roskva.v1.msgpack\r\n\r\n"
)


def _frame(first: int, payload: bytes) -> bytes:
    size = len(payload)
    head = bytes([size | 0x80]) if size < 126 else b"\xfe" + size.to_bytes(2)
    return bytes([first]) + head + bytes(4) + payload


_FRAMES: Final = [
    _frame(0x82, b"one"),
    _frame(0x81, b'{"type":"hello"}'),
    _frame(0x82, b"x" * 300),
    _frame(0x02, b"in ") + _frame(0x89, b"ping") + _frame(0x00, b"") + _frame(0x80, b"parts"),
    _frame(0x8A, b"pong") + _frame(0x88, b"\x03\xe8bye"),
]


def _read(data: bytes, piece: int) -> tuple[list[tuple[int, bytes]], bool]:
    reader, messages = FrameReader(_MAX), list[tuple[int, bytes]]()
    try:
        for at in range(0, len(data), piece):
            messages += reader.read(data[at : at + piece])
    except BadMessage:
        return messages, True
    return messages, False


def _takes_frames(data: bytes) -> bool:
    whole, refused = _read(data, max(1, len(data)))
    in_pieces, refused_too = _read(data, 7)
    assert refused == refused_too, "pieces make a difference"
    # What came before a refusal in the same piece is not handed out.
    assert in_pieces[: len(whole)] == whole
    assert refused or in_pieces == whole
    return bool(in_pieces)


class _ServerState:
    def __init__(self) -> None:
        self.connections: set[Any] = set()


class _Connections:
    def __init__(self) -> None:
        self._turning = Turning()
        self._turning.run(self._open)

    def _open(self) -> None:
        self._front = CoreFront()
        self._sockets = WebSockets(
            *(self._front, Peers(()), ADDRESSES, Connections(1000)),
            *(Hosts(()), Origins((), True)),
            max_bytes=_MAX,
            handshake_s=3600.0,
            write_s=3600.0,
        )
        self._state = _ServerState()

    def takes(self, data: bytes) -> bool:
        transport = FakeTransport()
        conn = self._sockets.connection(None, self._state, {})

        def begin() -> None:
            conn.connection_made(transport)
            conn.data_received(_UPGRADE)  # whole, as uvicorn hands it over
            assert transport.written.startswith(b"HTTP/1.1 101")
            assert b"permessage-deflate" not in transport.written
            transport.written = b""
            if data:
                conn.data_received(data)

        def end() -> None:
            conn.connection_lost(None)
            self._front.pass_time(0.01)

        self._turning.run(begin, end)
        if self._front.broken is not None:
            raise self._front.broken
        assert not self._front.core.conns, "a session is left behind"
        return bool(transport.written)


@cache
def _connections() -> _Connections:
    return _Connections()


def _streams() -> list[bytes]:
    messages = [_frame(0x82, codec.encode(message)) for message in examples.FROM_CLIENT.values()]
    hello = messages[list(examples.FROM_CLIENT).index("hello of a new client")]
    return [hello + message for message in messages] + [b"".join(messages), *_FRAMES]


TARGETS: Final = [
    Target("websocket frames", _FRAMES, _takes_frames),
    Target(
        "websocket connections",
        _streams(),
        lambda data: _connections().takes(data),
        rounds=50_000,
    ),
]
