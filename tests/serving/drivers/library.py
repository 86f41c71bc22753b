"""`roskva.Client`, with a file that makes it the same client after a restart."""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tests.serving.drivers.base import Driver, Told
from tests.serving.nodes import Node

import roskva


class LibraryDriver(Driver):
    can_declare = True

    def __init__(self, node: Node, application: str = "") -> None:
        super().__init__(node, application)
        self.directory = Path(tempfile.mkdtemp(prefix="identity-"))
        self.statuses: set[str] = set()
        self.client: roskva.Client | None = None

    async def _connect(self) -> None:
        self.statuses = set()
        self._stepped = asyncio.Event()
        self.client = roskva.Client(
            self.node.url,
            "test",
            identity=self.directory / "identity",
            application=self.application,
        )
        await self.client.__aenter__()
        self._reading = asyncio.create_task(self._read(self.client))
        for key in self.keys:
            await self.client.register(key.partition("/")[2])
        # Its identity is written by a thread, and a twin needs it.
        while not (self.client.connected and (self.directory / "identity").exists()):
            await self._step()

    async def disconnect(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            await client.__aexit__(None, None, None)
            await self._reading

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            await super().__aexit__(kind, error, trace)
        finally:
            shutil.rmtree(self.directory)

    async def _register(self, keys: list[str], version: int | None) -> None:
        assert self.client is not None
        self.statuses -= set(keys)
        for key in keys:
            await self.client.register(key.partition("/")[2], version)
        while not self.statuses >= set(keys):
            await self._step()

    async def _step(self) -> None:
        self._stepped.clear()
        with suppress(TimeoutError):  # being connected and on disk are no events
            await asyncio.wait_for(self._stepped.wait(), 0.02)

    async def ack(self, told: Told) -> None:
        assert self.client is not None
        self.client.ack(told.receipt)

    def epoch_of(self, told: Told) -> int:
        event: roskva.Notify | roskva.NotifyUnknown = told.receipt
        return event.epoch

    def twin(self) -> "LibraryDriver":
        twin = type(self)(self.node, self.application)
        twin.keys = list(self.keys)
        shutil.copy(self.directory / "identity", twin.directory)
        return twin

    async def _read(self, client: roskva.Client) -> None:
        async for event in client:
            match event:
                case roskva.Notify(object=key, version=version, payload=payload):
                    self.take(Told(key, version, payload, event))
                case roskva.NotifyUnknown(object=key):
                    self.take(Told(key, None, None, event))
                case roskva.RegistrationStatus(object=key):
                    self.statuses.add(key)
                case roskva.Trouble(code=code):
                    self._end(code)
            self._stepped.set()
