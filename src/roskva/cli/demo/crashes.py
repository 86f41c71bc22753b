"""The first part: three programs follow an object while processes of the node are killed.

They are a Python program, curl, and mosquitto_sub as they are.
"""

import asyncio
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
from rich.console import Console

import roskva
from roskva.cli.demo.node import PATIENCE_S, Deliveries, DemoNode

_APP: Final = "shop"
_NAME: Final = "price-list"
KEY: Final = f"{_APP}/{_NAME}"
_MISSED: Final = 100


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

    async def _note(self, version: int | None) -> None:
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
                        await self._note(version)
                    case roskva.NotifyUnknown():
                        await self._note(None)


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
            await self._note(None if version is None else int(version))


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
        await self._note(None if line == "?" else int(line))


@asynccontextmanager
async def three_programs(console: Console, node: DemoNode) -> AsyncIterator[list[Viewer]]:
    """That want to know, and have been told that there is nothing yet."""
    console.print(f"Three programs want to know about [bold]{KEY}[/]:")
    viewers: list[Viewer] = [PythonViewer(node.url, _APP, _NAME)]
    mqtt_port = node.announced.mqtt_port
    if shutil.which("curl"):
        viewers.append(CurlViewer(node.url, KEY))
    if shutil.which("mosquitto_sub") and mqtt_port is not None:
        viewers.append(MqttViewer(mqtt_port, KEY))
    for missing in {"curl", "mosquitto_sub"} - {viewer.program for viewer in viewers}:
        console.print(f"  [yellow]{missing} is not installed: going on without it[/]")
    try:
        for viewer in viewers:
            await viewer.start()
            console.print(f"  [bold]{viewer.name:14}[/] {viewer.what}")
        async with asyncio.timeout(PATIENCE_S):
            for viewer in viewers:
                await viewer.until_it_heard()
        console.print("All are told [italic]unknown[/] for now: nothing was ever published.\n")
        yield viewers
    finally:
        for viewer in viewers:
            await viewer.stop()


async def show_crashes(console: Console, node: DemoNode, viewers: list[Viewer]) -> bool:
    """Whether every one of them knew what it should, and a publisher noticed nothing but time."""
    held, say = True, console.print
    deliveries = Deliveries(node)
    await deliveries.taken()

    async def all_know(version: int) -> None:
        nonlocal held
        for viewer in viewers:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await viewer.until_it_knows(version)
            except TimeoutError:
                held = False
                say(f"  [red]{viewer.name} still believes in {viewer.version}[/]")
            else:
                say(f"  [green]✓[/] {viewer.name:14} knows version {version}")
        ways = await deliveries.taken()
        others = ways["bridge"] + ways["own"]
        say(f"  [dim]by the fast path: {ways['fast']}, by another way: {others}[/]")

    async with roskva.Publisher(node.url, app=_APP) as publisher:
        say("A price list changes: its backend publishes version 1.")
        await publisher.publish(_NAME, 1)
        await all_know(1)
        say("\n[red]✗ kill −9[/] of a registrar: the process that held connections of clients.")
        await node.kill("registrar-0")
        say("Nothing is lost with it: they connect to the other one. Version 2 is published.")
        await publisher.publish(_NAME, 2)
        await all_know(2)
        say("\n[red]✗ kill −9[/] of the state process that has the price list.")
        await node.kill(node.owner_of(KEY).name)
        began, repeated = time.monotonic(), publisher.repeated
        await publisher.publish(_NAME, 3)
        waited_s, had_to_repeat = time.monotonic() - began, publisher.repeated > repeated
        say(
            f"Publishing waited {waited_s:.1f} s for another to take its place, and got "
            f"{'an' if had_to_repeat else 'no'} error: version 3 is on disk, and acknowledged."
        )
        held = held and not had_to_repeat
        await all_know(3)
        away, last = viewers[-1], 3 + _MISSED
        say(f"\n[bold]{away.name}[/] goes away. Meanwhile {_MISSED} versions are published.")
        await away.stop()
        for version in range(4, last + 1):
            await publisher.publish(_NAME, version)
        heard = away.heard
        await away.start()
        say("It comes back, with the session it had:")
        await all_know(last)
    told = away.heard - heard
    often = {1: "once", 2: "twice"}.get(told, f"{told} times")
    say(f"  and was told {often}, not {_MISSED} times: an absence costs nothing.\n")
    return held
