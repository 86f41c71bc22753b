"""`roskva demo`: a real node, three kinds of client, and what happens when processes die."""

import asyncio
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import httpx
import typer
from rich.console import Console

import roskva
from roskva.cli.demo_viewers import CurlViewer, MqttViewer, PythonViewer, Viewer
from roskva.links.running import Running, running

_APP: Final = "shop"
_NAME: Final = "price-list"
_PATIENCE_S: Final = 20.0
_MISSED: Final = 100


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: roskva demo")(demo)


def demo() -> None:
    """See Roskva at work: a node in a temporary directory, published to, and killed in parts."""
    console = Console(highlight=False)
    logging.getLogger("roskva").setLevel(logging.ERROR)  # the demo itself says what goes wrong
    with tempfile.TemporaryDirectory(prefix="roskva-demo-") as directory:
        try:
            held = asyncio.run(_Demo(console, Path(directory)).run())
        except KeyboardInterrupt:
            raise typer.Exit(130) from None
    raise typer.Exit(0 if held else 1)


class _Demo:
    def __init__(self, console: Console, directory: Path) -> None:
        self._console = console
        self._data = directory / "data"
        self._viewers: list[Viewer] = []
        self._held = True

    async def run(self) -> bool:
        self._say(
            "[bold]Roskva tells clients that what they cache has changed:[/] “the latest version "
            "is now N”. It keeps no queues: whoever was away is told the latest version, once.\n"
        )
        async with self._node() as node, roskva.Publisher(node.url, app=_APP) as publisher:
            try:
                await self._clients(node)
                await self._story(node.url, publisher)
            finally:
                for viewer in self._viewers:
                    await viewer.stop()
        if self._held:
            self._say("[bold green]Every client knew the latest version at the end.[/]")
            self._say(
                "Start a node of your own with [bold]roskva serve[/]; the README goes on from here."
            )
        return self._held

    async def _story(self, url: str, publisher: roskva.Publisher) -> None:
        self._say("A price list changes: its backend publishes version 1.")
        await self._publish(publisher, 1)
        self._say(
            "\n[red]✗ kill −9[/] of a registrar: the process that held connections of clients."
        )
        await self._kill(url, "registrar-0")
        self._say("Nothing is lost with it: they connect to the other one. Version 2 is published.")
        await self._publish(publisher, 2)
        self._say("\n[red]✗ kill −9[/] of the state process: it held all versions and the feed.")
        await self._kill(url, "state-0")
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
        self._say(f"  and was told {told} time, not {_MISSED}: an absence costs nothing.\n")

    # The node.

    @asynccontextmanager
    async def _node(self) -> AsyncIterator[Running]:
        command = ["serve", "--port", "0", "--mqtt-port", "0", "--registrars", "2", "--no-pipeline"]
        self._say("[dim]$ roskva serve --registrars 2[/]")
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "roskva", *command, "--data", str(self._data)),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            node = await self._started(process)
            await _until_ready(node.url)
            self._say("One state process owns the data; two registrars share the ports.\n")
            yield node
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.wait()

    async def _started(self, process: asyncio.subprocess.Process) -> Running:
        async with asyncio.timeout(_PATIENCE_S):
            while (found := running(self._data)) is None:
                if process.returncode is not None:
                    raise RuntimeError("the node did not start: try `roskva doctor`")
                await asyncio.sleep(0.05)
        return found

    async def _kill(self, url: str, name: str) -> None:
        async with httpx.AsyncClient() as http:
            while True:  # whichever registrar answers knows them all; the one we killed does not
                with suppress(httpx.HTTPError):
                    processes = (await http.get(f"{url}/v1/status")).json()["processes"]
                    pids = [p["pid"] for p in processes if p["name"] == name and "pid" in p]
                    if pids:
                        os.kill(pids[0], signal.SIGKILL)
                        return
                await asyncio.sleep(0.1)

    # The clients.

    async def _clients(self, node: Running) -> None:
        self._say(f"Three programs want to know about [bold]{_APP}/{_NAME}[/]:")
        key = f"{_APP}/{_NAME}"
        self._viewers = [PythonViewer(node.url, _APP, _NAME)]
        if shutil.which("curl"):
            self._viewers.append(CurlViewer(node.url, key))
        if shutil.which("mosquitto_sub") and node.mqtt_port is not None:
            self._viewers.append(MqttViewer(node.mqtt_port, key))
        for missing in {"curl", "mosquitto_sub"} - {v.program for v in self._viewers}:
            self._say(f"  [yellow]{missing} is not installed: going on without it[/]")
        for viewer in self._viewers:
            await viewer.start()
            self._say(f"  [bold]{viewer.name:14}[/] {viewer.what}")
        async with asyncio.timeout(_PATIENCE_S):
            for viewer in self._viewers:
                await viewer.until_it_heard()
        self._say("All are told [italic]unknown[/] for now: nothing was ever published.\n")

    async def _publish(self, publisher: roskva.Publisher, version: int) -> None:
        await publisher.publish(_NAME, version)
        await self._all_know(version)

    async def _all_know(self, version: int) -> None:
        for viewer in self._viewers:
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    await viewer.until_it_knows(version)
            except TimeoutError:
                self._held = False
                self._say(f"  [red]{viewer.name} still believes in {viewer.version}[/]")
            else:
                self._say(f"  [green]✓[/] {viewer.name:14} knows version {version}")

    def _say(self, text: str) -> None:
        self._console.print(text)


async def _until_ready(url: str) -> None:
    async with asyncio.timeout(_PATIENCE_S), httpx.AsyncClient() as http:
        while True:
            with suppress(httpx.HTTPError):
                if (await http.get(f"{url}/readyz")).status_code == 200:
                    return
            await asyncio.sleep(0.1)
