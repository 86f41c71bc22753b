"""The first part: three programs follow an object while processes of the node are killed."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from rich.console import Console

import roskva
from roskva.cli.demo.node import PATIENCE_S, DemoNode
from roskva.cli.demo.viewers import CurlViewer, MqttViewer, PythonViewer, Viewer

_APP: Final = "shop"
_NAME: Final = "price-list"
KEY: Final = f"{_APP}/{_NAME}"
_MISSED: Final = 100


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
    """Whether every one of them knew what it should."""
    story = _Story(console, node, viewers)
    async with roskva.Publisher(node.url, app=_APP) as publisher:
        await story.run(publisher)
    return story.held


class _Story:
    def __init__(self, console: Console, node: DemoNode, viewers: list[Viewer]) -> None:
        self._say = console.print
        self._node = node
        self._viewers = viewers
        self.held = True

    async def run(self, publisher: roskva.Publisher) -> None:
        self._say("A price list changes: its backend publishes version 1.")
        await self._publish(publisher, 1)
        self._say(
            "\n[red]✗ kill −9[/] of a registrar: the process that held connections of clients."
        )
        await self._node.kill("registrar-0")
        self._say("Nothing is lost with it: they connect to the other one. Version 2 is published.")
        await self._publish(publisher, 2)
        self._say("\n[red]✗ kill −9[/] of the state process that has the price list.")
        await self._node.kill(self._node.owner_of(KEY).name)
        self._say("Publishing waits until it is back: then version 3 is on disk, and acknowledged.")
        await self._publish(publisher, 3)
        away = self._viewers[-1]
        self._say(f"\n[bold]{away.name}[/] goes away. Meanwhile {_MISSED} versions are published.")
        await away.stop()
        last = 3 + _MISSED
        for version in range(4, last + 1):
            await publisher.publish(_NAME, version)
        heard = away.heard
        await away.start()
        self._say("It comes back, with the session it had:")
        await self._all_know(last)
        told = away.heard - heard
        often = {1: "once", 2: "twice"}.get(told, f"{told} times")
        self._say(f"  and was told {often}, not {_MISSED} times: an absence costs nothing.\n")

    async def _publish(self, publisher: roskva.Publisher, version: int) -> None:
        await publisher.publish(_NAME, version)
        await self._all_know(version)

    async def _all_know(self, version: int) -> None:
        for viewer in self._viewers:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await viewer.until_it_knows(version)
            except TimeoutError:
                self.held = False
                self._say(f"  [red]{viewer.name} still believes in {viewer.version}[/]")
            else:
                self._say(f"  [green]✓[/] {viewer.name:14} knows version {version}")
