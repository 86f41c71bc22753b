"""A node with something going on: updates, clients, one who does not ack, and one who is away."""

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, contextmanager

import msgspec
from tests.serving.drivers.mqtt import Mqtt5Driver
from tests.serving.drivers.websocket import MsgpackDriver
from tests.serving.nodes import Node, versions_of
from tests.serving.slow_readers import SlowWebSocket

import roskva
from roskva.pipeline.node import online

OBJECTS = [f"shop/price/{name}" for name in ("apples", "bread", "cheese", "dates", "eggs", "figs")]
PENDING = "shop/stock/bread"
CLIENTS = 10
PAUSE_S = 0.03


class Scene(msgspec.Struct, frozen=True):
    pending: str
    """The client that has not acked what it was told."""
    away: str
    """And one that is offline, with two objects to be told."""


@contextmanager
def traffic(node: Node) -> Iterator[Scene]:
    """In a thread, for as long as it is needed."""
    loop = asyncio.new_event_loop()
    ready: asyncio.Future[Scene] = loop.create_future()
    stop, begun = asyncio.Event(), threading.Event()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(_busy(node, ready, begun, stop))
        loop.close()

    thread = threading.Thread(target=run, name="traffic")
    thread.start()
    try:
        assert begun.wait(60)
        yield ready.result()
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(30)


async def _busy(
    node: Node, ready: "asyncio.Future[Scene]", begun: threading.Event, stop: asyncio.Event
) -> None:
    for key in (*OBJECTS, PENDING):
        await asyncio.to_thread(node.publish, key, 1)
    async with AsyncExitStack() as stack:
        scene = await _staged(node, stack)
        tasks = [
            asyncio.create_task(_follow(node, OBJECTS[i % 3 :: 2], f"till-{i}"))
            for i in range(CLIENTS)
        ]
        tasks.append(asyncio.create_task(_publish(node)))
        await asyncio.sleep(1)
        ready.set_result(scene)
        begun.set()
        await stop.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _staged(node: Node, stack: AsyncExitStack) -> Scene:
    silent = await stack.enter_async_context(MsgpackDriver(node, "tablet-7", app="shop"))
    await silent.register(PENDING)
    await silent.took()
    gone = MsgpackDriver(node, "phone-3", app="shop")
    async with gone:
        await gone.register(*OBJECTS[:2], PENDING)
        await gone.took_latest(dict.fromkeys([*OBJECTS[:2], PENDING], 1))
        away = _client(gone)
    await asyncio.to_thread(node.publish, PENDING, 2)
    await silent.told()
    fridge = await stack.enter_async_context(Mqtt5Driver(node, "fridge"))
    await fridge.register(OBJECTS[0])
    return Scene(_client(silent), away)


def _client(driver: MsgpackDriver) -> str:
    grant = next(message["grant"] for message in driver.heard if message.get("grant"))
    client: bytes = grant["client"]
    return client.hex()


async def _follow(node: Node, keys: list[str], application: str) -> None:
    async with roskva.Client(
        node.url, app="shop", application=application, auto_ack=True
    ) as client:
        for key in keys:
            await client.register(key.partition("/")[2])
        async for _ in client:
            pass


async def _publish(node: Node) -> None:
    version = 1
    async with roskva.Publisher(node.url, app="shop") as publisher:
        while True:
            version += 1
            for key in OBJECTS:
                name = key.partition("/")[2]
                await publisher.publish(name, version, source="warehouse", payload=b"3.20")
                await asyncio.sleep(PAUSE_S)


@contextmanager
def not_reading(node: Node, key: str) -> Iterator[None]:
    """One client that has stopped to read, and is known for it."""
    node.publish(key, 1)
    reader = SlowWebSocket(node, key)
    with ThreadPoolExecutor(1) as thread:  # for the browser has the loop of this one
        thread.submit(lambda: asyncio.run(reader.register())).result()
        version = 1
        while not any(thread.submit(online, node.data).result().values()):
            versions = range(version + 1, version + 51)
            node.publish_all(
                [{**update, "text": 1000 * "."} for update in versions_of([key], versions)[0]]
            )
            version += 50
        try:
            yield
        finally:
            reader.close()
