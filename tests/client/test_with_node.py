"""Both libraries with a real node that dies under them."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.client.test_client import next_of
from tests.loops import in_loop
from tests.serving.nodes import Node

import roskva

OBJECTS = [f"object-{number}" for number in range(5)]
VERSIONS = 300


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    try:
        node.start()
        yield node
    finally:
        node.end()


async def follow(client: roskva.Client, last: int) -> None:
    """Until every object is known to stand at its last version."""
    known: dict[str, int] = {}
    async for event in client:
        if isinstance(event, roskva.Notify):
            assert event.version > known.get(event.name, 0)
            known[event.name] = event.version
        client.ack(event)
        if known == dict.fromkeys(OBJECTS, last):
            return


@in_loop
async def test_node_is_killed_and_nobody_misses_anything(node: Node, tmp_path: Path) -> None:
    killed = asyncio.Event()

    async def publish_all(publisher: roskva.Publisher, name: str) -> None:
        for version in range(1, VERSIONS + 1):
            assert await publisher.publish(name, version) == version
            if version == VERSIONS // 2:
                await killed.wait()

    async with (
        roskva.Publisher(node.url, "shop") as publisher,
        roskva.Client(node.url, "shop", tmp_path / "identity") as client,
        asyncio.TaskGroup() as tasks,
    ):
        for name in OBJECTS:
            await client.register(name)
            await next_of(client, roskva.RegistrationStatus)
        for name in OBJECTS:
            tasks.create_task(publish_all(publisher, name))
        await follow(client, VERSIONS // 2)
        killed.set()
        await asyncio.to_thread(node.kill)
        await asyncio.to_thread(node.start)
        client.online()
        await follow(client, VERSIONS)


@in_loop
async def test_client_that_was_away_wakes_to_one_notification_per_object(
    node: Node, tmp_path: Path
) -> None:
    async def run(expected: int) -> list[int]:
        """Of a program that keeps its identity; which versions it was told."""
        told: list[int] = []
        async with roskva.Client(node.url, "shop", tmp_path / "identity", auto_ack=True) as client:
            for name in OBJECTS:
                await client.register(name)
            async for event in client:
                if isinstance(event, roskva.Notify):
                    told.append(event.version)
                if len(told) == expected:
                    break
            await asyncio.sleep(0.3)  # nothing more may come
            assert not any(isinstance(e, roskva.Notify) for e in client._inbox.waiting.values())
        return told

    async with roskva.Publisher(node.url, "shop") as publisher:
        await asyncio.gather(*(publisher.publish(name, 1) for name in OBJECTS))
        assert await run(5) == [1] * 5
        await asyncio.gather(*(publisher.publish(n, v) for v in range(2, 1001) for n in OBJECTS))
        assert await run(5) == [1000] * 5
