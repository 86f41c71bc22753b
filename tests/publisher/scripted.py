"""An HTTP server that answers as the test says, and remembers what it was asked."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Any, Self

Update = dict[str, Any]
Answer = tuple[int, object] | tuple[int, object, dict[str, str]]
"""Status, body and headers; the body as JSON, or bytes as they are."""


def accept(updates: list[Update]) -> Answer:
    return 200, {"results": [{"version": update.get("version", "77")} for update in updates]}


def error(code: str, retriable: bool = False) -> dict[str, Any]:
    return {"error": {"code": code, "text": f"it is {code}", "retriable": retriable}}


class ScriptedHttp:
    """Each publish request is answered by the next of `answers`, and when they are used up, yes."""

    def __init__(self, *answers: Callable[[list[Update]], Answer] | None, port: int = 0) -> None:
        self.answers = list(answers)
        """None: hang up without an answer."""
        self.requests: list[list[Update]] = []
        self.paths: list[str] = []
        self.connections = 0
        self.under_way = self.most_under_way = 0
        self.go = asyncio.Event()
        """Nothing is answered while it is not set."""
        self.go.set()
        self._port = port
        self._talking: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self._port)
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
        for task in self._talking:
            task.cancel()
        if self._talking:
            await asyncio.wait(self._talking)
        await self._server.wait_closed()

    def versions(self) -> list[tuple[str, str | None]]:
        """All that was asked to be published, in order."""
        return [
            (update["name"], update.get("version"))
            for request in self.requests
            for update in request
        ]

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.create_task(self._talk(reader, writer))
        self._talking.add(task)
        task.add_done_callback(self._talking.discard)

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError):
                while await self._exchange(reader, writer):
                    pass
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        updates = body if isinstance(body, list) else [body]
        self.paths.append(head[0].split()[1])
        self.requests.append(updates)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        await self.go.wait()
        self.under_way -= 1
        answer = self.answers.pop(0) if self.answers else accept
        if answer is None:
            return False
        writer.write(_encoded(*answer(updates)))
        await writer.drain()
        return True


def _encoded(status: int, body: object, headers: dict[str, str] | None = None) -> bytes:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}",
        f"content-length: {len(content)}",
        *(f"{name}: {value}" for name, value in (headers or {}).items()),
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content
