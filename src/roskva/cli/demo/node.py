"""The node of the demo: `roskva serve` in processes of its own, which are there to be killed."""

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import httpx
from rich.console import Console

from roskva.links.processes import Process, RunningNode, running
from roskva.model import shard_of
from roskva.pipeline.machine import tree

PATIENCE_S: Final = 60.0
_HELD_S: Final = 2.0
_FLAGS: Final = ("--registrars", "2", "--matchers", "2", "--shards", "4", "--no-probe")


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
            await self._get("/readyz", lambda told: told.is_success)
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
        found: dict[str, Any] = (await self._get("/v1/status", lambda told: True)).json()
        return found

    async def ways(self) -> dict[str, Counter[str]]:
        """By which updates came to each state process that answers, since it started."""
        found: dict[str, Counter[str]] = {}
        status = await self.status()
        pids = {process["name"]: process.get("pid") for process in status["processes"]}
        for shard in status["shards"]:
            name = shard["process"]
            found.setdefault(f"{name} {pids[name]}", Counter()).update(shard["ways"])
        return found

    async def until_bridged(self) -> None:
        """Spark has started, and delivers."""
        while True:
            parts = (await self.status())["pipeline"]["parts"]
            if any(part["name"] == "bridge" and part["state"] == "running" for part in parts):
                return
            await asyncio.sleep(0.2)

    async def kill(self, name: str) -> None:
        """With −9. Another is started in its place."""
        os.kill(await self.pid(name), signal.SIGKILL)

    async def pid(self, name: str) -> int:
        """A registrar that was just killed does not say its own."""

        def pids(told: httpx.Response) -> list[int]:
            return [p["pid"] for p in told.json()["processes"] if p["name"] == name and "pid" in p]

        return pids(await self._get("/v1/status", lambda told: bool(pids(told))))[0]

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
        below = tree(self._process.pid)
        return {pid for pid in below if "roskva.server.processes" in _command_line(pid)}

    async def _started(self) -> RunningNode:
        async with asyncio.timeout(PATIENCE_S):
            while (found := running(self.data)) is None:
                if self._process.returncode is not None:
                    raise RuntimeError("the node did not start: try `roskva doctor`")
                await asyncio.sleep(0.05)
        return found

    async def _get(self, path: str, good: Callable[[httpx.Response], bool]) -> httpx.Response:
        """The first good answer."""
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient(base_url=self.url) as http:
            while True:
                with suppress(httpx.HTTPError):
                    if good(told := await http.get(path)):
                        return told
                await asyncio.sleep(0.1)

    async def _stop(self) -> None:
        with suppress(ProcessLookupError):
            self._process.terminate()
        await self._process.wait()


class Deliveries:
    """How many updates came by which way, since it was made or last asked; also over the end of a
    process, but for the last moment of it."""

    def __init__(self, node: DemoNode) -> None:
        self._node = node
        self._before: dict[str, Counter[str]] = {}
        self._counted = Counter[str]()

    async def count(self) -> None:
        """What came until now; at best right before a process is killed."""
        now = await self._node.ways()
        for process, ways in now.items():
            self._counted += ways - self._before.get(process, Counter())
        self._before |= now

    async def taken(self) -> Counter[str]:
        await self.count()
        taken, self._counted = self._counted, Counter()
        return taken


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _command_line(pid: int) -> str:
    """Nothing, if there is no such process any more."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""
