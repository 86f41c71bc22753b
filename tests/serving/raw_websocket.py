"""A WebSocket client that says what it likes, in JSON."""

import asyncio
import json
from typing import Any

from tests.serving.nodes import PATIENCE_S
from websockets.asyncio.client import ClientConnection, connect
from websockets.typing import Subprotocol

NONCE = "AAAAAAAAAAA="


def raw_websocket(port: int, credential: str | None = None) -> connect:
    headers = {} if credential is None else {"Authorization": f"Bearer {credential}"}
    return connect(
        f"ws://127.0.0.1:{port}/v1/ws",
        subprotocols=[Subprotocol("roskva.v1.json")],
        additional_headers=headers,
    )


def hello(**fields: Any) -> dict[str, Any]:
    return {"type": "hello", "v": "1.0", "nonce": NONCE, **fields}


def register(session: str, number: int, *keys: str) -> dict[str, Any]:
    operations = [[key] for key in keys]
    return {
        "type": "client",
        "v": "1.0",
        "session": session,
        "number": str(number),
        "operations": operations,
    }


async def say(socket: ClientConnection, *messages: dict[str, Any]) -> None:
    for message in messages:
        await socket.send(json.dumps(message))


async def hear(socket: ClientConnection, *fields: str) -> dict[str, Any]:
    """The next message that has one of these."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            message: dict[str, Any] = json.loads(await socket.recv())
            if any(field in message for field in fields):
                return message
