"""kill −9 of any process, at any time, under load, again and again.

Publishers repeat until they are acknowledged, clients reconnect, the node's parent restarts its
children, and this test restarts the parent. At the end every client stands at the last version of
every object, everything that was acknowledged is there, and no process is left behind.
"""

import asyncio
import os
import random
import time
from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from tests.loops import run_within
from tests.serving.followers import EVERY_WAY, Record
from tests.serving.nodes import Node

import roskva

TOPOLOGIES = [(), ("--registrars", "2"), ("--registrars", "2", "--matchers", "2")]
KEYS = [f"test/object-{i}" for i in range(8)]
OF_EACH_KIND = 2
LONGEST_CALM_S = 0.4
PAUSE_S = 0.02
CONVERGED_WITHIN_S = 60.0

StartNode = Callable[..., Node]


every_topology = pytest.mark.parametrize(
    "flags", TOPOLOGIES, ids=["one-process", "registrars", "registrars-and-matchers"]
)


@every_topology
def test_killing_any_process_at_any_time_loses_nothing(
    start_node: StartNode, flags: tuple[str, ...]
) -> None:
    _kill(start_node(*flags), 10)


@pytest.mark.verify
@every_topology
def test_killing_any_process_many_times_loses_nothing(
    start_node: StartNode, flags: tuple[str, ...]
) -> None:
    _kill(start_node(*flags), int(os.environ.get("ROSKVA_KILL_ROUNDS", "100")))


def _kill(node: Node, rounds: int) -> None:
    """So many in all topologies together."""
    kills = -(-rounds // len(TOPOLOGIES))
    run_within(CONVERGED_WITHIN_S + 20 * kills, _kill_loop(node, kills))


async def _kill_loop(node: Node, kills: int) -> None:
    seed = random.SystemRandom().randrange(2**32)
    dice = random.Random(seed)
    load = Load(node)
    await load.publish_once()
    async with AsyncExitStack() as stack:
        records = [
            await stack.enter_async_context(follow(node, KEYS))
            for follow in EVERY_WAY
            for _ in range(OF_EACH_KIND)
        ]
        async with asyncio.TaskGroup() as tasks:
            publishing = tasks.create_task(load.keep_publishing())
            for _ in range(kills):
                await asyncio.sleep(dice.uniform(0, LONGEST_CALM_S))
                await asyncio.to_thread(_kill_one, node, dice)
            await asyncio.to_thread(node.await_ready)
            load.enough = True
            await publishing
        await _converged(records, load.acked, f"with seed {seed}")
    for key in KEYS:
        assert node.read(key) == load.acked[key]
    assert not [wrong for record in records for wrong in record.wrong]


def _kill_one(node: Node, dice: random.Random) -> None:
    node.kill_any(dice)
    if dice.random() < 0.75:  # else the next may be hit before this one is back
        node.await_ready()


class Load:
    def __init__(self, node: Node) -> None:
        self.acked: dict[str, int] = {}
        self.enough = False
        self._url = node.url

    async def publish_once(self) -> None:
        async with roskva.Publisher(self._url, "test") as publisher:
            await self._publish_all(publisher, 1)

    async def keep_publishing(self) -> None:
        async with roskva.Publisher(self._url, "test") as publisher:
            version = 1
            while not self.enough:
                version += 1
                await self._publish_all(publisher, version)
                await asyncio.sleep(PAUSE_S)

    async def _publish_all(self, publisher: roskva.Publisher, version: int) -> None:
        async with asyncio.TaskGroup() as tasks:
            for key in KEYS:
                tasks.create_task(self._publish(publisher, key, version))

    async def _publish(self, publisher: roskva.Publisher, key: str, version: int) -> None:
        self.acked[key] = await publisher.publish(key.partition("/")[2], version)


async def _converged(records: list[Record], wanted: dict[str, int], context: str) -> None:
    give_up_at = time.monotonic() + CONVERGED_WITHIN_S
    while behind := [r for r in records if r.latest != wanted]:
        assert time.monotonic() < give_up_at, (
            f"{context}: not at {wanted}: {[(r.channel, r.latest) for r in behind]}"
        )
        await asyncio.sleep(0.05)
