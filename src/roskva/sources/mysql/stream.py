"""A binary log as it comes over a connection: packets, and an event in each. No driver is needed.

A packet has three bytes of length, a number, and content; one of the greatest length goes on in the
next one. The first byte of the content says whether it is an event. While there is nothing to say
the server sends heartbeats: one that is silent for longer is gone, or has forgotten us.
"""

import select
import socket
import ssl
import time
from typing import Final

from roskva.errors import Unavailable

HEARTBEAT_S: Final = 5.0
_SILENCE_S: Final = 4 * HEARTBEAT_S
_HEAD_BYTES: Final = 4
_GREATEST: Final = 0xFFFFFF
_READ_BYTES: Final = 1 << 18
_OK, _END, _ERROR = 0x00, 0xFE, 0xFF


class RefusedByServer(Unavailable):
    def __init__(self, number: int, sentence: str) -> None:
        super().__init__(sentence)
        self.number = number


class BinlogStream:
    """`connection`: nothing of an answer has been read from it."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._socket.setblocking(False)
        self._data = bytearray()
        self._at = 0
        self._silent_s = 0.0

    def event(self, timeout_s: float) -> bytes | None:
        """The next one; None if there is none after so long."""
        packet = self._packet()
        until = time.monotonic() + timeout_s
        while packet is None:
            if not self._receive(until - time.monotonic()):
                return None
            packet = self._packet()
        if packet[0] == _OK:
            return packet[1:]
        if packet[0] == _ERROR:
            text = packet[3:].decode(errors="replace")
            if text.startswith("#"):
                text = text[6:]
            raise RefusedByServer(int.from_bytes(packet[1:3], "little"), text)
        raise Unavailable("the server has ended its log")

    def _packet(self) -> bytes | None:
        """Out of what has come; None if it is not there as a whole."""
        data, at, parts = self._data, self._at, list[slice]()
        while True:
            start = at + _HEAD_BYTES
            if len(data) < start:
                return None
            size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            at = start + size
            if len(data) < at:
                return None
            parts.append(slice(start, at))
            if size < _GREATEST:
                break
        self._at = at
        packet = b"".join(data[part] for part in parts)
        if not packet:
            raise Unavailable("the server has sent an empty packet")
        return packet

    def _receive(self, patience_s: float) -> bool:
        if self._at:
            del self._data[: self._at]
            self._at = 0
        try:
            content = self._socket.recv(_READ_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            if patience_s <= 0:
                return False
            self._wait(patience_s)
            return True
        except OSError as error:
            raise Unavailable(f"the connection to the database broke: {error}") from error
        if not content:
            raise Unavailable("the database has closed the connection")
        self._silent_s = 0.0
        self._data += content
        return True

    def _wait(self, patience_s: float) -> None:
        began = time.monotonic()
        if not select.select([self._socket], [], [], patience_s)[0]:
            self._silent_s += time.monotonic() - began
            if self._silent_s > _SILENCE_S:
                raise Unavailable(f"the database was silent for {self._silent_s:.0f} s")
