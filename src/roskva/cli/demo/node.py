"""The node of the demo: `roskva serve` in processes of its own, which are there to be killed."""

import asyncio
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx
from rich.console import Console

from roskva.links.processes import Process, RunningNode, running
from roskva.model import shard_of

PATIENCE_S: Final = 60.0
_HELD_S: Final = 2.0
_FLAGS: Final = ("--registrars", "2", "--matchers", "2", "--shards", "4")


class DemoNode:
    """Used as `async with`."""

    def __init__(self, console: Console, data: Path, settings: Path) -> None:
        self.data = data
        self._console = console
        self._settings = settings

    async def __aenter__(self) -> Self:
        self._console.print("[dim]$ roskva serve --registrars 2 --matchers 2[/]")
        ports = ("--port", "0", "--mqtt-port", "0")
        where = ("--data", str(self.data), "--config", str(self._settings))
        self._process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "roskva", "serve", *ports, *where, *_FLAGS),
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            self.announced = await self._started()
            await self._until_ready()
        except BaseException:
            await self._stop()
            raise
        self._console.print(
            "Two [italic]state[/] processes share the objects and keep them on disk. Two "
            "[italic]registrars[/] share the ports and talk to clients.\n"
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    @property
    def url(self) -> str:
        return self.announced.url

    def owner_of(self, key: str) -> Process:
        """The state process that has this object."""
        states = self.states()
        shard = shard_of(key, sum(len(state.shards) for state in states))
        return next(state for state in states if shard in state.shards)

    def states(self) -> list[Process]:
        return [process for process in self.announced.processes if process.shards]

    async def status(self) -> dict[str, Any]:
        """From whichever registrar answers: each knows them all."""
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                with suppress(httpx.HTTPError):
                    found: dict[str, Any] = (await http.get(f"{self.url}/v1/status")).json()
                    return found
                await asyncio.sleep(0.1)

    async def kill(self, name: str) -> None:
        """With −9. Another is started in its place."""
        os.kill(await self.pid(name), signal.SIGKILL)

    async def pid(self, name: str) -> int:
        async with asyncio.timeout(PATIENCE_S):
            while True:  # a registrar that was just killed does not say its own
                processes = (await self.status())["processes"]
                pids = [p["pid"] for p in processes if p["name"] == name and "pid" in p]
                if pids:
                    return int(pids[0])
                await asyncio.sleep(0.1)

    async def keep_down(self, pid: int, seconds: float) -> int:
        """Kill it, and whoever is started in its place; returns how often.

        These are stopped at once and killed a little later: the more often a process ends, the
        longer its supervisor waits before it starts another, and the last one is let go.
        """
        spared = self._children() - {pid}
        os.kill(pid, signal.SIGKILL)
        killed, stopped = {pid}, dict[int, float]()
        up_at = time.monotonic() + seconds
        try:
            while (now := time.monotonic()) < up_at:
                for child in self._children() - spared - killed - stopped.keys():
                    _signal(child, signal.SIGSTOP)
                    stopped[child] = now
                for child in [c for c, since in stopped.items() if now - since > _HELD_S]:
                    _signal(child, signal.SIGKILL)
                    killed.add(child)
                    del stopped[child]
                await asyncio.sleep(0.02)
        finally:
            for child in stopped:
                _signal(child, signal.SIGCONT)
        return len(killed)

    def _children(self) -> set[int]:
        """The processes that serve, not the pipeline."""
        parent = self._process.pid
        tasks = Path(f"/proc/{parent}/task")
        found = {int(pid) for task in tasks.iterdir() for pid in _words(task / "children")}
        return {pid for pid in found if "roskva.server.processes" in _command_line(pid)}

    async def _started(self) -> RunningNode:
        async with asyncio.timeout(PATIENCE_S):
            while (found := running(self.data)) is None:
                if self._process.returncode is not None:
                    raise RuntimeError("the node did not start: try `roskva doctor`")
                await asyncio.sleep(0.05)
        return found

    async def _until_ready(self) -> None:
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                with suppress(httpx.HTTPError):
                    if (await http.get(f"{self.url}/readyz")).status_code == 200:
                        return
                await asyncio.sleep(0.1)

    async def _stop(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _words(file: Path) -> list[str]:
    try:
        return file.read_text().split()
    except OSError:
        return []


def _command_line(pid: int) -> str:
    """The command line of a process, if there is one."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
