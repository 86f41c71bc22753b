"""The clients of the demo: a Python program, curl, and mosquitto_sub as they are."""

import asyncio
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any

import msgspec

import roskva


class Viewer(ABC):
    """Knows a version, or None: unknown."""

    name: str
    program: str
    what: str

    def __init__(self) -> None:
        self.version: int | None = None
        self.heard = 0
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _watch(self) -> None:
        """Until cancelled."""

    async def start(self) -> None:
        self._task = asyncio.create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def until_it_heard(self) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.heard > 0)

    async def until_it_knows(self, version: int) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: self.version == version)

    async def _hear(self, version: int | None) -> None:
        async with self._changed:
            self.version = version
            self.heard += 1
            self._changed.notify_all()


class PythonViewer(Viewer):
    name, program = "Python", "python"
    what = "roskva.Client, over WebSocket"

    def __init__(self, url: str, app: str, object: str) -> None:
        super().__init__()
        self._url, self._app, self._object = url, app, object

    async def _watch(self) -> None:
        async with roskva.Client(self._url, app=self._app, auto_ack=True) as client:
            await client.register(self._object)
            async for event in client:
                match event:
                    case roskva.Notify(version=version):
                        await self._hear(version)
                    case roskva.NotifyUnknown():
                        await self._hear(None)


class ProgramViewer(Viewer):
    """A program that prints what it hears, line by line; started again when it ends."""

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    async def _line(self, line: str) -> None: ...

    async def _watch(self) -> None:
        while True:
            process = await asyncio.create_subprocess_exec(
                *self._command(),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
            assert process.stdout is not None
            try:
                async for line in process.stdout:
                    await self._line(line.decode().rstrip("\n"))
            except asyncio.CancelledError:
                process.kill()
                raise
            finally:
                await process.wait()
            await asyncio.sleep(0.2)


class CurlViewer(ProgramViewer):
    name = program = "curl"
    what = "a stream of events, as a browser's EventSource reads it"

    def __init__(self, url: str, key: str) -> None:
        super().__init__()
        self._url = f"{url}/v1/events?object={key}"
        self._last_id = ""

    def _command(self) -> list[str]:
        return ["curl", "-sN", "-H", f"Last-Event-ID: {self._last_id}", self._url]

    async def _line(self, line: str) -> None:
        field, _, value = line.partition(": ")
        if field == "id":
            self._last_id = value
        elif field == "data":
            data: dict[str, Any] = msgspec.json.decode(value)
            version = data["version"]
            await self._hear(None if version is None else int(version))


class MqttViewer(ProgramViewer):
    name = program = "mosquitto_sub"
    what = "any MQTT program, with a session that is kept"

    def __init__(self, port: int, key: str) -> None:
        super().__init__()
        self._port, self._key = port, key

    def _command(self) -> list[str]:
        address = ["-h", "127.0.0.1", "-p", str(self._port)]
        return ["mosquitto_sub", *address, "-c", "-i", "demo", "-q", "1", "-t", self._key]

    async def _line(self, line: str) -> None:
        await self._hear(None if line == "?" else int(line))
