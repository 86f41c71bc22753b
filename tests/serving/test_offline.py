"""The promise in one test: whoever was away is told the last version of each object, once.

The node is killed in the moment in which everybody has acked, so most of these acks are in no row:
what they were of is told once more, if it still stands. Acks that are lost for certain, and are
asked for once and not twice, are in `tests/core/test_acked.py`, in virtual time.
"""

import asyncio
from collections.abc import Callable

from tests.loops import in_loop
from tests.serving.everybody import everybody
from tests.serving.nodes import Node, versions_of

OBJECTS = [f"test/{name}" for name in ("a", "b", "c", "d", "e")]
SENTINEL = "test/sentinel"
VERSIONS = 2000


@in_loop
async def test_offline_through_10_000_updates_and_a_crash_is_one_notification_per_object(
    start_node: Callable[..., Node],
) -> None:
    node = start_node()
    node.publish_all(versions_of([SENTINEL, *OBJECTS], range(1))[0])
    async with everybody(node) as clients:
        await clients.register(SENTINEL, *OBJECTS)
        await clients.took((SENTINEL, 0), *((key, 0) for key in OBJECTS))
        await asyncio.to_thread(node.kill)
        await clients.disconnect()
        await asyncio.to_thread(node.start)
        batches = versions_of(OBJECTS, range(1, VERSIONS + 1))
        assert sum(map(len, batches)) == 10_000
        for number, updates in enumerate(batches):
            if number in (3, 7):
                await asyncio.to_thread(node.kill)
                await asyncio.to_thread(node.start)
            node.publish_all(updates)
        await clients.connect()
        latest = [(key, VERSIONS) for key in OBJECTS]
        node.publish(SENTINEL, 1)
        await clients.took(*latest, (SENTINEL, 1), again=((SENTINEL, 0),))
        node.publish(SENTINEL, 2)
        await clients.took((SENTINEL, 2))
