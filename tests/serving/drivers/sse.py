"""Server-sent events over httpx: what EventSource does, by hand."""

import asyncio
import base64
import json

import httpx
from tests.serving.drivers.base import Driver, Told
from tests.serving.nodes import Node


class SseDriver(Driver):
    has_identity = False
    can_be_source = False
    can_declare = True

    def __init__(self, node: Node, application: str = "") -> None:
        super().__init__(node, application)
        self.acked: dict[str, str] = {}
        """The part of an object in the id of the last event that was acked."""
        self.retry_ms: int | None = None
        self._without_id: list[tuple[str, int | None, bytes | None]] = []
        """Written together with the next event that has one."""
        self._reading: asyncio.Task[None] | None = None

    @property
    def last_event_id(self) -> str:
        return ".".join(self.acked.get(key, "") for key in self.keys)

    async def _connect(self) -> None:
        if self.keys:
            opened = asyncio.get_running_loop().create_future()
            self._reading = asyncio.create_task(self._read(opened))
            await opened

    async def disconnect(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.cancel()
            await asyncio.wait([reading])

    async def _register(self, keys: list[str], version: int | None) -> None:
        """A stream is opened for its objects: another one, if there are more of them."""
        await self.disconnect()
        for key in keys:
            if version is None:
                self.acked.pop(key, None)
            else:
                self.acked[key] = str(version)
        await self._connect()

    async def ack(self, told: Told) -> None:
        parts: list[str] = told.receipt
        self.acked[told.object] = parts[self.keys.index(told.object)]

    async def _read(self, opened: "asyncio.Future[None]") -> None:
        headers = {"Last-Event-ID": self.last_event_id} if any(self.acked.values()) else {}
        url, objects = f"{self.node.url}/v1/events", {"object": self.keys}
        try:
            async with (
                httpx.AsyncClient(timeout=None) as http,
                http.stream("GET", url, params=objects, headers=headers) as answer,
            ):
                answer.raise_for_status()
                opened.set_result(None)
                self._without_id.clear()
                fields: dict[str, str] = {}
                async for line in answer.aiter_lines():
                    if line:
                        field, _, value = line.partition(": ")
                        fields[field] = value
                    else:
                        self._take(fields)
                        fields = {}
            self._end("the end of the stream")
        except httpx.TransportError as error:
            self._end(f"{type(error).__name__}")
            if not opened.done():
                opened.set_exception(ConnectionError(str(error)))

    def _take(self, fields: dict[str, str]) -> None:
        if "retry" in fields:
            self.retry_ms = int(fields["retry"])
        if fields.get("event") == "notify":
            data = json.loads(fields["data"])
            version = None if data["version"] is None else int(data["version"])
            payload = base64.b64decode(data["payload"]) if "payload" in data else None
            self._without_id.append((data["object"], version, payload))
            if "id" in fields:
                parts = fields["id"].split(".")
                for told in self._without_id:
                    self.inbox.put_nowait(Told(*told, parts))
                self._without_id.clear()
