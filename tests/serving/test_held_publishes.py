"""kill −9 of state processes under a steady load: publishers wait, and get no error."""

import asyncio
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.loops import run_within
from tests.serving.followers import by_library
from tests.serving.nodes import PATIENCE_S, Node, await_that

KEYS = [f"test/object-{i}" for i in range(200)]
REQUESTS_PER_SECOND, UPDATES = 100, 10
"""A thousand publishes per second."""
BETWEEN_KILLS_S = 6.0
"""Two state processes in turn: each has run for long enough to be followed by another at once."""

StartNode = Callable[..., Node]


def test_a_state_process_that_is_killed_makes_publishers_wait_and_no_more(
    start_node: StartNode, tmp_path: Path
) -> None:
    """With more patience than by default: this machine may have other things to do."""
    settings = tmp_path / "roskva.toml"
    settings.write_text("[limits]\npublish_patience_s = 60.0\n")
    flags = ("--registrars", "2", "--matchers", "2", "--config", str(settings))
    _kill(start_node(*flags), 2)


@pytest.mark.verify
def test_twenty_kills_of_state_processes_are_no_error_to_any_publisher(
    start_node: StartNode, capsys: pytest.CaptureFixture[str]
) -> None:
    found = _kill(start_node("--registrars", "2", "--matchers", "2"), 20)
    with capsys.disabled():
        sys.stdout.write(f"\n{found}\n")


def _kill(node: Node, kills: int) -> str:
    found: list[str] = []

    async def kill() -> None:
        found.append(await _kills(node, kills))

    run_within(4 * PATIENCE_S + kills * BETWEEN_KILLS_S, kill())
    return found[0]


async def _kills(node: Node, kills: int) -> str:
    load = Load(node.url)
    async with by_library(node, KEYS) as record, asyncio.TaskGroup() as tasks:
        publishing = tasks.create_task(load.run())
        for kill in range(kills):
            await asyncio.sleep(BETWEEN_KILLS_S)  # that much load is the point
            await asyncio.to_thread(node.signal, f"state-{kill % 2}", signal.SIGKILL)
        await asyncio.to_thread(node.await_ready)
        load.enough = True
        await publishing
        assert load.errors == []
        await asyncio.to_thread(
            await_that,
            lambda: all(record.latest.get(k) == v for k, v in load.acknowledged.items()),
            PATIENCE_S,
        )
    assert all(node.read(key) == version for key, version in load.acknowledged.items())
    return (
        f"{kills} kills, {load.published:,} publishes at {load.published / load.took_s:,.0f} per "
        f"second: {len(load.errors)} errors, 0 lost; the longest wait {load.longest_s:.2f} s"
    )


class Load:
    """Requests leave at their time, whatever became of the others; none is repeated."""

    def __init__(self, url: str) -> None:
        self.acknowledged: dict[str, int] = {}
        """The highest version of each object."""
        self.errors: list[object] = []
        self.published = 0
        self.longest_s = self.took_s = 0.0
        self.enough = False
        self._versions = dict.fromkeys(KEYS, 0)
        # A node hangs up on who is idle for 5 s, and nobody shall ask again at that very moment.
        limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
        self._http = httpx.AsyncClient(base_url=url, timeout=90.0, limits=limits)

    async def run(self) -> None:
        began = time.monotonic()
        dice, count = random.Random(0), 0
        async with self._http, asyncio.TaskGroup() as tasks:
            while not self.enough:
                tasks.create_task(self._publish(dice.sample(KEYS, UPDATES)))
                count += 1
                due = began + count / REQUESTS_PER_SECOND
                await asyncio.sleep(max(0.0, due - time.monotonic()))
        self.took_s = time.monotonic() - began

    async def _publish(self, keys: list[str]) -> None:
        updates = []
        for key in keys:
            self._versions[key] += 1
            app, _, name = key.partition("/")
            updates.append({"app": app, "name": name, "version": self._versions[key]})
        versions = {key: self._versions[key] for key in keys}
        asked_at = time.monotonic()
        answer = await self._http.post("/v1/publish", json=updates)
        self.longest_s = max(self.longest_s, time.monotonic() - asked_at)
        for key, result in zip(keys, answer.json()["results"], strict=True):
            if "version" in result:
                self.published += 1
                self.acknowledged[key] = max(self.acknowledged.get(key, 0), versions[key])
            else:
                self.errors.append(result)
