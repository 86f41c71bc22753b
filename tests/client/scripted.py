"""A WebSocket server whose every word is said by the test."""

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import msgspec
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.typing import Subprotocol

from roskva.client.client import Client
from roskva.client.link import SUBPROTOCOL
from roskva.wire import codec
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    FromClient,
    Grant,
    Hello,
    Notification,
    Operation,
    OperationStatus,
    ServerMessage,
)

SESSION = 7
CLIENT_ID = b"c" * 16
TOKEN = b"token"
EPOCH = 1 << 20


class Conversation:
    """One connection, seen from the server."""

    def __init__(self, socket: ServerConnection) -> None:
        self.socket = socket
        self.at = asyncio.get_running_loop().time()

    async def hear(self) -> FromClient:
        frame = await self.socket.recv()
        assert isinstance(frame, bytes)
        return codec.decode_from_client(frame)

    async def hear_hello(self) -> Hello:
        hello = await self.hear()
        assert isinstance(hello, Hello)
        return hello

    async def hear_message(self) -> ClientMessage:
        message = await self.hear()
        assert isinstance(message, ClientMessage)
        return message

    async def say(self, **parts: object) -> None:
        message = ServerMessage(PROTOCOL, **parts)  # type: ignore[arg-type]
        await self.socket.send(codec.encode(message))

    async def greet(self, token: bytes = TOKEN, **parts: object) -> Hello:
        hello = await self.hear_hello()
        await self.say(session=SESSION, grant=Grant(CLIENT_ID, token, hello.nonce), **parts)
        return hello

    async def confirm(self) -> list[Operation]:
        """Hear operations, and say yes to them."""
        message = await self.hear_message()
        statuses = [
            OperationStatus(operation.object, operation.register, message.number)
            for operation in message.operations
        ]
        await self.say(session=SESSION, statuses=statuses)
        return message.operations

    async def notify(self, key: str, version: int | None, epoch: int = EPOCH) -> None:
        await self.say(notifications=[Notification(key, version, epoch)])

    async def hang_up(self, code: int = 1012) -> None:
        await self.socket.close(code)


class ScriptedServer:
    def __init__(self, subprotocols: Sequence[Subprotocol] = (SUBPROTOCOL,), port: int = 0) -> None:
        self._subprotocols = subprotocols or None
        self._port = port
        self._accepted: asyncio.Queue[Conversation] = asyncio.Queue()

    async def __aenter__(self) -> Self:
        self._server: Server = await serve(
            self._serve, "127.0.0.1", self._port, subprotocols=self._subprotocols, close_timeout=1
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.close()
        await self._server.wait_closed()

    async def accept(self) -> Conversation:
        return await self._accepted.get()

    async def _serve(self, socket: ServerConnection) -> None:
        self._accepted.put_nowait(Conversation(socket))
        await socket.wait_closed()


def quick(client: Client) -> Client:
    """With times for tests; the core's own tests see to the real ones."""
    client.config = msgspec.structs.replace(
        client.config,
        batch_delay=0.005,
        backoff_first=0.02,
        backoff_cap=0.1,
        answer_timeout=60.0,
        reissue_grace=0.05,
    )
    return client
