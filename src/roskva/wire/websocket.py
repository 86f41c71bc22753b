"""WebSocket frames (RFC 6455, section 5), as a server reads and writes them.

The handshake is the business of the `websockets` library. Frames are cut here, because an ack is
one small frame: read whole and in one piece, it takes a seventh of the time of a general parser.
No extensions are ever agreed on, so a frame to many is the same bytes for all.
"""

import struct
from enum import IntEnum
from typing import Final

from roskva.errors import BadMessage, TooLarge
from roskva.wire.codec import encode
from roskva.wire.messages import ServerMessage

try:
    from websockets.speedups import apply_mask
except ImportError:  # where the library was installed without a compiler
    from websockets.utils import apply_mask

_FIN: Final = 0x80
_MASKED: Final = 0x80
_MAX_CONTROL_BYTES: Final = 125


class Opcode(IntEnum):
    CONTINUATION = 0x0
    TEXT = 0x1
    BINARY = 0x2
    CLOSE = 0x8
    PING = 0x9
    PONG = 0xA


class CloseCode(IntEnum):
    """What this server closes with."""

    NORMAL = 1000
    PROTOCOL_ERROR = 1002
    NO_HELLO = 1008
    TOO_BIG = 1009
    COME_BACK = 1012
    """By the core, after an error that says why; or because the node stops."""


def frame(opcode: int, payload: bytes) -> bytes:
    size = len(payload)
    if size < 126:
        return bytes((_FIN | opcode, size)) + payload
    if size < 1 << 16:
        return struct.pack("!BBH", _FIN | opcode, 126, size) + payload
    return struct.pack("!BBQ", _FIN | opcode, 127, size) + payload


def packed(message: ServerMessage) -> bytes:
    return frame(Opcode.BINARY, encode(message))


def as_json(message: ServerMessage) -> bytes:
    return frame(Opcode.TEXT, encode(message, "json"))


def close_frame(code: CloseCode, reason: str) -> bytes:
    return frame(Opcode.CLOSE, code.to_bytes(2) + reason.encode()[: _MAX_CONTROL_BYTES - 2])


class FrameReader:
    """Bytes in, whole messages and control frames out, in their order.

    `BadMessage` and `TooLarge` end the connection: what follows cannot be understood any more.
    """

    __slots__ = ("_buffer", "_kind", "_max_bytes", "_parts")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._buffer: bytearray | None = None
        """A frame that is not all there. It grows in place: who sends it byte by byte makes us copy
        each byte once, and not the whole of it every time."""
        self._kind = Opcode.CONTINUATION
        """Of the message whose parts are gathered; CONTINUATION: none is."""
        self._parts = bytearray()

    def read(self, data: bytes) -> list[tuple[int, bytes]]:
        if self._buffer is None and len(data) >= 6 and not self._kind:
            # One small message, whole: nearly every ack and heartbeat.
            size = data[1] & 0x7F
            if len(data) == 6 + size and size < 126 and data[0] in (0x82, 0x81) and data[1] > 127:
                return [(data[0] & 0x0F, apply_mask(data[6:], data[2:6]))]
        buffer = self._buffer
        if buffer is None:
            buffer = bytearray(data)
        else:
            buffer += data
        messages: list[tuple[int, bytes]] = []
        at = 0
        while (end := self._frame_end(buffer, at)) is not None:
            self._take(buffer, at, end, messages)
            at = end
        if at:
            del buffer[:at]
        self._buffer = buffer or None
        return messages

    def _frame_end(self, buffer: bytearray, at: int) -> int | None:
        """Where the frame ends that begins here; None: it is not all there yet."""
        left = len(buffer) - at
        if left < 2:
            return None
        first, second = buffer[at], buffer[at + 1]
        if first & 0x70:
            raise BadMessage("a frame of an extension that was not agreed on")
        if not second & _MASKED:
            raise BadMessage("a frame of a client is masked")
        size, head = second & 0x7F, 6
        if first & 0x08 and (size > _MAX_CONTROL_BYTES or not first & _FIN):
            raise BadMessage("a control frame is short, and whole")
        if size == 126:
            head = 8
            if left < head:
                return None
            size = int.from_bytes(buffer[at + 2 : at + 4])
        elif size == 127:
            head = 14
            if left < head:
                return None
            size = int.from_bytes(buffer[at + 2 : at + 10])
        if size + len(self._parts) > self._max_bytes:
            raise TooLarge(f"a message has at most {self._max_bytes} bytes")
        return at + head + size if left >= head + size else None

    def _take(
        self, buffer: bytearray, at: int, end: int, messages: list[tuple[int, bytes]]
    ) -> None:
        first, size = buffer[at], buffer[at + 1] & 0x7F
        mask_at = at + (2 if size < 126 else 4 if size == 126 else 10)
        payload = apply_mask(buffer[mask_at + 4 : end], buffer[mask_at : mask_at + 4])
        opcode = first & 0x0F
        if opcode & 0x08:
            if opcode not in (Opcode.CLOSE, Opcode.PING, Opcode.PONG):
                raise BadMessage("a control frame of no kind we know")
            messages.append((opcode, payload))
            return
        if opcode == Opcode.CONTINUATION:
            if self._kind == Opcode.CONTINUATION:
                raise BadMessage("a continuation of nothing")
        elif opcode not in (Opcode.TEXT, Opcode.BINARY) or self._kind != Opcode.CONTINUATION:
            raise BadMessage("a frame out of its order")
        else:
            self._kind = Opcode(opcode)
        if self._parts or not first & _FIN:
            self._parts += payload
            payload = bytes(self._parts) if first & _FIN else b""
        if first & _FIN:
            messages.append((self._kind, payload))
            self._kind, self._parts = Opcode.CONTINUATION, bytearray()
