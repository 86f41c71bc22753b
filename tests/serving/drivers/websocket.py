"""A client written from docs/protocol.md alone, on the plain `websockets` library."""

import asyncio
import base64
import hashlib
import os
from typing import Any, ClassVar, Self

import msgspec
from tests.serving.drivers.base import Driver, Told
from tests.serving.nodes import Node
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

Message = dict[str, Any]


class WebSocketDriver(Driver):
    can_declare = True
    fenced = "fenced, 1012"
    subprotocol: ClassVar[str]

    def __init__(self, node: Node, application: str = "", app: str = "test") -> None:
        super().__init__(node, application)
        self.app = app
        self.token: Any = None
        self.session: Any = None
        self.number = 0
        self.statuses: dict[str, int] = {}
        """The number of the message that each object's last status answers."""
        self.heard: list[Message] = []
        """Everything the server said on this connection, as it came."""
        self.socket: ClientConnection | None = None

    # The two formats.

    def encode(self, message: Message) -> str | bytes:
        raise NotImplementedError

    def decode(self, frame: str | bytes) -> Message:
        raise NotImplementedError

    def binary(self, value: Any) -> bytes:
        raise NotImplementedError

    # The conversation.

    async def _connect(self) -> None:
        self.heard, self.number, self.session = [], 0, None
        self._heard = asyncio.Event()
        self.socket = await connect(
            f"ws://127.0.0.1:{self.node.port}/v1/ws",
            subprotocols=[Subprotocol(self.subprotocol)],
            compression=None,
        )
        self._reading = asyncio.create_task(self._read(self.socket))
        who: Message = {"app": self.app} if self.token is None else {"token": self.token}
        hello = {"type": "hello", "v": "1.0", "nonce": os.urandom(8), **who}
        await self.socket.send(self.encode(hello | {"application": self.application}))
        while self.session is None:
            await self.hear()

    async def hear(self) -> None:
        """Until the server says something."""
        self._heard.clear()
        if self.ended.done():
            raise AssertionError(f"the server ended it: {self.ended.result()}")
        await self._heard.wait()

    async def disconnect(self) -> None:
        socket, self.socket = self.socket, None
        if socket is not None:
            await socket.close()
            await self._reading

    async def _register(self, keys: list[str], version: int | None) -> None:
        await self.say(operations=[[key, True, version] for key in keys])
        number = self.number
        while any(self.statuses.get(key, 0) < number for key in keys):
            await self.hear()

    async def ack(self, told: Told) -> None:
        await self.say(acks=[[told.object, told.version, told.receipt]])

    def epoch_of(self, told: Told) -> int:
        return int(told.receipt)

    async def say(self, **parts: Any) -> None:
        assert self.socket is not None
        self.number += 1
        envelope = {"type": "client", "v": "1.0", "session": self.session, "number": self.number}
        await self.socket.send(self.encode(envelope | {"digest": digest(self.keys)} | parts))

    def twin(self) -> Self:
        twin = type(self)(self.node, self.application)
        twin.keys, twin.token = list(self.keys), self.token
        return twin

    async def _read(self, socket: ClientConnection) -> None:
        try:
            while True:
                message = self.decode(await socket.recv())
                self._take(message)
                self._heard.set()
                await self._answer(message)
        except ConnectionClosed:
            errors = [m["error"]["code"] for m in self.heard if m.get("error")]
            self._end(", ".join([*errors, str(socket.close_code)]))
            self._heard.set()

    def _take(self, message: Message) -> None:
        self.heard.append(message)
        grant = message.get("grant")
        if grant:
            self.token = self.token_of(grant)
            self.session = int(message["session"])
        for object, version, epoch, payload, *_ in message.get("notifications", []):
            content = None if payload is None else self.binary(payload)
            self.take(Told(object, None if version is None else int(version), content, int(epoch)))
        for object, _, number, *_ in message.get("statuses", []):
            self.statuses[object] = int(number)

    async def _answer(self, message: Message) -> None:
        """The server may have lost the registrations: then it asks for them."""
        if message.get("sync_request") is not None:
            await self.say(syncs=[[b"", self.keys]])
        elif message.get("digest") and [int(n) for n in message["digest"][:2]] != digest(self.keys):
            await self.say()

    def token_of(self, grant: Message) -> bytes:
        return self.binary(grant["token"])


class MsgpackDriver(WebSocketDriver):
    subprotocol = "roskva.v1.msgpack"

    def encode(self, message: Message) -> bytes:
        return msgspec.msgpack.encode(message)

    def decode(self, frame: str | bytes) -> Message:
        assert isinstance(frame, bytes), "a text frame"
        message: Message = msgspec.msgpack.decode(frame)
        return message

    def binary(self, value: Any) -> bytes:
        assert isinstance(value, bytes)
        return value


class JsonDriver(WebSocketDriver):
    subprotocol = "roskva.v1.json"

    def encode(self, message: Message) -> str:
        return msgspec.json.encode(_as_json(message)).decode()

    def decode(self, frame: str | bytes) -> Message:
        assert isinstance(frame, str), "a binary frame"
        message: Message = msgspec.json.decode(frame)
        return message

    def binary(self, value: Any) -> bytes:
        assert isinstance(value, str)
        return base64.b64decode(value, validate=True)


def _as_json(value: Any) -> Any:
    match value:
        case bool() | None | str():
            return value
        case int():
            return str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {key: _as_json(one) for key, one in value.items()}
        case list():
            return [_as_json(one) for one in value]
    raise TypeError(value)


def digest(keys: list[str]) -> list[int]:
    hashes = (int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") for key in keys)
    return [len(keys), sum(hashes) % 2**64]
