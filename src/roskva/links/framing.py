"""Frames on a stream: four bytes of length, then so many bytes.

A stream that announces more than a frame may hold is closed: its other end is none of ours.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, cast

from roskva.wire.links import MAX_LINK_FRAME_BYTES

_log = logging.getLogger(__name__)
_LENGTH_BYTES: Final = 4
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""A process that lets so much lie does not read any more: the link is dropped, and opened anew when
it does."""


def with_length(frame: bytes) -> bytes:
    return len(frame).to_bytes(_LENGTH_BYTES) + frame


@dataclass(eq=False)
class Framed(asyncio.Protocol):
    opened: Callable[["Framed"], None]
    received: Callable[["Framed", bytes], None]
    lost: Callable[["Framed"], None]
    """If it was opened."""
    admits: Callable[[asyncio.Transport], bool] = lambda _: True
    """Whether the other end may be spoken to; if not, its transport was seen to."""
    _transport: asyncio.Transport | None = None

    def __post_init__(self) -> None:
        self._buffer = bytearray()

    def send(self, frame: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(with_length(frame))
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            transport.abort()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        connected = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        if self.admits(connected):
            self._transport = connected
            self.opened(self)

    def data_received(self, data: bytes) -> None:
        if self._transport is None:
            return
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            begin = start + _LENGTH_BYTES
            length = int.from_bytes(buffer[start:begin])
            if length > MAX_LINK_FRAME_BYTES:
                _log.error("a link announces a frame that is too large for one: dropping it")
                self.drop()
                return
            if len(buffer) - begin < length:
                break
            start = begin + length
            self.received(self, bytes(buffer[begin:start]))
        if start:
            del buffer[:start]

    def connection_lost(self, error: Exception | None) -> None:
        was_open, self._transport = self._transport is not None, None
        if was_open:
            self.lost(self)
