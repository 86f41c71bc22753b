"""Long polling over httpx: a request after the other, each with what was told so far."""

import asyncio
import base64
from typing import Any

import httpx
from tests.serving.drivers.base import Driver, Told
from tests.serving.nodes import Node

Position = dict[str, str | None]
"""Version and epoch, as they came."""


class PollDriver(Driver):
    has_identity = False
    can_be_source = False
    can_declare = True

    def __init__(self, node: Node, application: str = "") -> None:
        super().__init__(node, application)
        self.acked: dict[str, Position] = {}
        self._heard: dict[str, Position] = {}
        """On this connection, acked or not."""
        self._asking: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        if self.keys:
            self._heard = dict(self.acked)
            confirmed = asyncio.get_running_loop().create_future()
            self._asking = asyncio.create_task(self._ask_on(confirmed))
            await confirmed

    async def disconnect(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            await asyncio.wait([asking])

    async def _register(self, keys: list[str], version: int | None) -> None:
        await self.disconnect()
        for key in keys:
            self.acked.pop(key, None)
            if version is not None:
                self.acked[key] = {"version": str(version)}
        await self._connect()

    async def ack(self, told: Told) -> None:
        self.acked[told.object] = told.receipt

    async def _ask_on(self, confirmed: "asyncio.Future[None]") -> None:
        wait_s = 0.0
        try:
            async with httpx.AsyncClient(timeout=None) as http:
                while True:
                    answer = await http.post(f"{self.node.url}/v1/poll", json=self._body(wait_s))
                    if answer.status_code == 503:
                        error = answer.json()["error"]
                        if "stopping" in error["text"]:
                            return self._end(error["code"])
                        await asyncio.sleep(0.1)  # a shard does not answer
                        continue
                    self._take(answer.raise_for_status().json())
                    wait_s = 20.0
                    if not confirmed.done():
                        confirmed.set_result(None)
        except httpx.TransportError as error:
            self._end(f"{type(error).__name__}")
            if not confirmed.done():
                confirmed.set_exception(ConnectionError(str(error)))

    def _body(self, wait_s: float) -> dict[str, Any]:
        objects = [{"object": key, **self._heard.get(key, {})} for key in self.keys]
        return {"objects": objects, "wait_s": wait_s}

    def _take(self, answer: dict[str, Any]) -> None:
        for told in answer["notifications"]:
            position = {"version": told["version"], "epoch": told["epoch"]}
            self._heard[told["object"]] = position
            version = None if told["version"] is None else int(told["version"])
            payload = base64.b64decode(told["payload"]) if "payload" in told else None
            self.inbox.put_nowait(Told(told["object"], version, payload, position))
