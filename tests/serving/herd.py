"""Thousands of clients in one process: each a bare WebSocket that comes back as soon as it may.

They register for one object when they are new. From then on they show their token, and expect their
registration to be where they left it.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from tests.loops import until

from roskva.errors import Overloaded
from roskva.wire.codec import decode_from_server, encode
from roskva.wire.messages import PROTOCOL, Ack, ClientMessage, Hello, Operation, ServerMessage

UPGRADE: Final = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: roskva.v1.msgpack\r\n\r\n"
)
_AGAIN_S: Final = 0.2
"""Between two tries to reach a node that is not there."""


class Herd:
    def __init__(
        self, port: int, key: str, count: int, credentials: Sequence[str | None] = (None,)
    ) -> None:
        """`credentials`: what each shows the first time, in turns."""
        self.port = port
        self.key = key
        self.members = [Member(self, credentials[i % len(credentials)]) for i in range(count)]
        self.turned_away = 0
        self.wrong = 0
        """Told that the version is unknown, or an older one than before."""
        self.closed = False

    async def __aenter__(self) -> "Herd":
        self.come()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.leave()

    def come(self) -> None:
        self.closed = False
        for member in self.members:
            member.come()

    async def leave(self) -> None:
        """Without a word; they may come again."""
        self.closed = True
        for member in self.members:
            member.leave()
        dialling = [member.dialling for member in self.members if member.dialling is not None]
        await asyncio.gather(*dialling)
        await until(lambda: not any(member.connected for member in self.members))

    def back(self) -> int:
        """Those with a session, and with their registration in it."""
        return sum(member.registered for member in self.members)

    def told(self, version: int) -> int:
        return sum(member.version == version for member in self.members)

    async def until(self, happened: Callable[[], bool], within_s: float) -> float:
        """How long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not happened():
            assert loop.time() - began < within_s, f"{self.back()} of {len(self.members)} are back"
            await asyncio.sleep(0.02)
        return loop.time() - began


class Member(asyncio.Protocol):
    def __init__(self, herd: Herd, credential: str | None) -> None:
        self._herd = herd
        self._credential = credential
        self._token: bytes | None = None
        self._transport: asyncio.Transport | None = None
        self._not_before_s = 0.0
        self._again: asyncio.TimerHandle | None = None
        self.dialling: asyncio.Task[Any] | None = None
        self.registered = False
        self.version: int | None = None
        self._begin()

    def _begin(self) -> None:
        self._buffer = b""
        self._upgraded = False
        self._session = 0
        self._number = 0
        self.registered = False

    def come(self) -> None:
        if not self._herd.closed:
            self.dialling = asyncio.ensure_future(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self, "127.0.0.1", self._herd.port)
        except OSError:
            self._again = loop.call_later(_AGAIN_S, self.come)
        finally:
            self.dialling = None

    @property
    def connected(self) -> bool:
        return self._transport is not None

    def leave(self) -> None:
        if self._again is not None:
            self._again.cancel()
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._begin()
        if self._herd.closed:
            self._transport.abort()
        else:
            self._transport.write(UPGRADE)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.registered = False
        if not self._herd.closed:
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(self._not_before_s, self.come)
            self._not_before_s = 0.0

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded:
            head, end, rest = self._buffer.partition(b"\r\n\r\n")
            if not end:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self._upgraded, self._buffer = True, rest
            self._send(self._hello())
        while (frame := self._frame()) is not None:
            opcode, payload = frame
            if opcode == 2:
                self._hear(decode_from_server(payload))
            elif opcode == 9:
                self._write(0x8A, payload)
            elif opcode == 8 and self._transport is not None:
                self._transport.close()

    def _frame(self) -> tuple[int, bytes] | None:
        buffer = self._buffer
        if len(buffer) < 2:
            return None
        size, head = buffer[1], 2
        if size == 126:
            if len(buffer) < 4:
                return None
            size, head = int.from_bytes(buffer[2:4]), 4
        if len(buffer) < head + size:
            return None
        self._buffer = buffer[head + size :]
        return buffer[0] & 0x0F, buffer[head : head + size]

    # The protocol.

    def _hello(self) -> Hello:
        if self._token is not None:
            return Hello(PROTOCOL, os.urandom(8), token=self._token)
        app = self._herd.key.partition("/")[0]
        return Hello(PROTOCOL, os.urandom(8), app, credential=self._credential)

    def _hear(self, message: ServerMessage) -> None:
        if message.not_before_ms is not None:
            self._not_before_s = message.not_before_ms / 1000
        if message.error is not None and message.error.code == Overloaded.code:
            self._herd.turned_away += 1
        if message.session is not None:
            self._session = message.session
        if message.grant is not None:
            known, self._token = self._token, message.grant.token
            if known is None:
                self._say(operations=[Operation(self._herd.key)])
        if message.digest is not None and message.digest.count == 1:
            self.registered = True
        self.registered |= any(status.registered for status in message.statuses)
        for told in message.notifications:
            self._herd.wrong += told.version is None or told.version < (self.version or 0)
            self.version = told.version
            self._say(acks=[Ack(told.object, told.version, told.epoch)])

    def _say(self, **parts: Any) -> None:
        self._number += 1
        self._send(ClientMessage(PROTOCOL, self._session, self._number, **parts))

    def _send(self, message: Hello | ClientMessage) -> None:
        self._write(0x82, encode(message))

    def _write(self, first: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes([size | 0x80]) if size < 126 else b"\xfe" + size.to_bytes(2)
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(bytes([first]) + head + bytes(4) + payload)
