"""Clients on bare sockets with small buffers, which stop reading when they are told to wait.

What they read is counted, and not kept: the versions of one object, in the order they came.
"""

import asyncio
import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterator

import msgspec
from tests.serving.nodes import Node
from websockets.client import ClientProtocol
from websockets.frames import Frame, Opcode
from websockets.typing import Subprotocol
from websockets.uri import parse_uri

RECEIVE_BUFFER = 4096


class SlowReader(ABC):
    """Reads only when asked to."""

    def __init__(self, node: Node, key: str, credential: str | None = None) -> None:
        self.node = node
        self.key = key
        self.credential = credential
        self.versions: list[int] = []
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)
        self._socket.setblocking(False)

    @abstractmethod
    async def register(self) -> None:
        """Until it is confirmed and the current version was told."""

    @abstractmethod
    async def read(self) -> None:
        """What has arrived, at least one byte; what it tells is acked where the channel asks."""

    async def read_until(self, version: int) -> None:
        while not self.versions or self.versions[-1] < version:
            await self.read()

    def close(self) -> None:
        self._socket.close()

    async def _connect(self, port: int) -> None:
        await asyncio.get_running_loop().sock_connect(self._socket, ("127.0.0.1", port))

    async def _send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self._socket, data)

    async def _receive(self) -> bytes:
        data = await asyncio.get_running_loop().sock_recv(self._socket, 65536)
        assert data, "the server has closed the connection"
        return data


class SlowWebSocket(SlowReader):
    async def register(self) -> None:
        self._protocol = ClientProtocol(
            parse_uri(f"ws://127.0.0.1:{self.node.port}/v1/ws"),
            subprotocols=[Subprotocol("roskva.v1.msgpack")],
        )
        self._session: int | None = None
        self._registered = False
        await self._connect(self.node.port)
        self._protocol.send_request(self._protocol.connect())
        await self._flush()
        while self._protocol.state.name != "OPEN":
            await self.read()
        shown = {} if self.credential is None else {"credential": self.credential}
        app = self.key.split("/")[0]
        await self._say({"type": "hello", "nonce": os.urandom(8), "app": app, **shown})
        while self._session is None:
            await self.read()
        await self._say(
            {"type": "client", "session": self._session, "number": 1, "operations": [[self.key]]}
        )
        while not self._registered or not self.versions:
            await self.read()

    async def read(self) -> None:
        self._protocol.receive_data(await self._receive())
        for event in self._protocol.events_received():
            if isinstance(event, Frame) and event.opcode is Opcode.BINARY:
                self._take(msgspec.msgpack.decode(event.data))
        await self._flush()  # pongs

    def _take(self, message: dict[str, object]) -> None:
        if "grant" in message:
            self._session = int(str(message["session"]))
        self._registered = self._registered or "statuses" in message
        notifications = message.get("notifications", [])
        assert isinstance(notifications, list)
        self.versions += [version for _, version, *_ in notifications]

    async def _say(self, message: dict[str, object]) -> None:
        self._protocol.send_binary(msgspec.msgpack.encode({"v": "1.0", **message}))
        await self._flush()

    async def _flush(self) -> None:
        await self._send(b"".join(self._protocol.data_to_send()))


class SlowMqtt(SlowReader):
    """MQTT 3.1.1; QoS 1, for otherwise nothing would be asked of the server."""

    async def register(self) -> None:
        self._unread = b""
        name = os.urandom(8).hex().encode()
        await self._connect(self.node.mqtt_port)
        await self._send(_packet(0x10, _string(b"MQTT"), b"\x04\x02\x00\x00", _string(name)))
        await self._send(_packet(0x82, b"\x00\x01", _string(self.key.encode()), b"\x01"))
        while not self.versions:
            await self.read()

    async def read(self) -> None:
        self._unread += await self._receive()
        acks = b""
        for kind, body in self._packets():
            if kind & 0xF0 == 0x30:
                topic = int.from_bytes(body[:2], "big")
                id, payload = body[2 + topic : 4 + topic], body[4 + topic :]
                self.versions.append(int(payload.split(b" ")[0]))
                acks += b"\x40\x02" + id
        if acks:
            await self._send(acks)

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while len(self._unread) >= 2:
            length, shift, at = 0, 0, 1
            while True:
                if at == len(self._unread):
                    return
                byte = self._unread[at]
                length |= (byte & 0x7F) << shift
                at, shift = at + 1, shift + 7
                if byte < 0x80:
                    break
            if len(self._unread) < at + length:
                return
            kind, body = self._unread[0], self._unread[at : at + length]
            self._unread = self._unread[at + length :]
            yield kind, body


def _string(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def _packet(kind: int, *parts: bytes) -> bytes:
    body = b"".join(parts)
    assert len(body) < 128
    return bytes([kind, len(body)]) + body
