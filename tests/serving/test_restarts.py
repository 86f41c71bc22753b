"""What must survive when processes stop, crash, or lose what they had: one client per channel."""

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from tests.channels import mqtt_side
from tests.loops import in_loop
from tests.serving.drivers.sse import SseDriver
from tests.serving.drivers.websocket import WebSocketDriver
from tests.serving.everybody import everybody
from tests.serving.nodes import PATIENCE_S, Node, await_that, versions_of

StartNode = Callable[..., Node]
OBJECTS = [f"test/{name}" for name in ("a", "b", "c", "d", "e")]
SENTINEL = "test/sentinel"


def publish(node: Node, version: int, *keys: str) -> None:
    for updates in versions_of(list(keys or OBJECTS), range(version, version + 1)):
        node.publish_all(updates)


def at(version: int | None) -> list[tuple[str, int | None]]:
    return [(key, version) for key in OBJECTS]


@in_loop
async def test_stopping_tells_everybody_when_to_come_back_and_loses_no_ack(
    start_node: StartNode,
) -> None:
    node = start_node()
    publish(node, 1, SENTINEL, *OBJECTS)
    async with everybody(node) as clients:
        await clients.register(SENTINEL, *OBJECTS)
        await clients.took((SENTINEL, 1), *at(1))
        acking = len(clients.drivers) - 2  # over HTTP events are acked by coming back
        acks = acking * (1 + len(OBJECTS))
        await asyncio.to_thread(await_that, lambda: node.counter("acks") >= acks, PATIENCE_S)
        await asyncio.to_thread(node.stop)

        for channel in ("websocket-msgpack", "websocket-json"):
            client = clients[channel]
            assert await client.told_the_end() == "unavailable, 1012"
            assert isinstance(client, WebSocketDriver)
            assert 0 <= int(client.heard[-1]["not_before_ms"]) < 10_000
        assert await clients["library"].told_the_end() == "unavailable"
        assert await clients["mqtt-5"].told_the_end() == "Server shutting down"
        await clients["mqtt-3.1.1"].told_the_end()
        sse = clients["sse"]
        assert await sse.told_the_end() == "the end of the stream"
        assert isinstance(sse, SseDriver)
        assert sse.retry_ms is not None
        assert 0 <= sse.retry_ms < 10_000
        assert await clients["poll"].told_the_end() == "unavailable"

        await clients.disconnect()
        await asyncio.to_thread(node.start)
        await clients.connect()
        publish(node, 2, SENTINEL)
        await clients.took((SENTINEL, 2))


def test_stopping_loses_no_ack_of_a_busy_client(start_node: StartNode) -> None:
    """The last ones are still in its socket."""
    node = start_node()
    publish(node, 0, SENTINEL)
    with socket.create_connection(("127.0.0.1", node.mqtt_port), PATIENCE_S) as busy:
        busy.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        busy.sendall(mqtt_side.connect(clean=False) + mqtt_side.subscribe(4, 1, (SENTINEL, 1)))
        for version in range(21):
            if version:
                publish(node, version, SENTINEL)
            busy.sendall(mqtt_side.puback(received(busy, b"%d" % version).id))
        node.stop()
    node.start()
    with socket.create_connection(("127.0.0.1", node.mqtt_port), PATIENCE_S) as busy:
        busy.sendall(mqtt_side.connect(clean=False) + mqtt_side.PINGREQ)
        publish(node, 21, SENTINEL)
        assert received(busy) == (SENTINEL, b"21")


def received(client: socket.socket, payload: bytes | None = None) -> mqtt_side.Told:
    """The next PUBLISH, or that with this payload."""
    with client.makefile("rb") as stream:
        while True:
            head = stream.read(2)
            packet = head + stream.read(head[1])
            if packet[0] >> 4 == 3:
                told = mqtt_side.Told(packet, 4)
                if payload is None or told == (SENTINEL, payload):
                    return told


@in_loop
async def test_c65_a_registrar_that_crashes_loses_nothing_for_its_clients(
    start_node: StartNode,
) -> None:
    node = start_node("--registrars", "2")
    publish(node, 1)
    async with everybody(node) as clients:
        await clients.register(*OBJECTS)
        await clients.took(*at(1))
        for version, name in enumerate(("registrar-0", "registrar-1"), start=2):
            await asyncio.to_thread(node.crash, name)
            publish(node, version)
            await clients.disconnect()
            await clients.connect()
            await clients.took_latest(dict.fromkeys(OBJECTS, version))


@in_loop
async def test_c66_when_all_state_is_lost_everybody_is_told_to_look(start_node: StartNode) -> None:
    node = start_node()
    publish(node, 5)
    async with everybody(node) as clients:
        await clients.register(*OBJECTS)
        await clients.took(*at(5))
        await clients.disconnect()
        await asyncio.to_thread(node.stop)
        for shard in node.data.glob("shard-*"):
            shutil.rmtree(shard / "store")
            shutil.rmtree(shard / "feed")
        await asyncio.to_thread(node.start)
        await clients.connect()
        for channel in ("mqtt-3.1.1", "mqtt-5"):
            assert not clients[channel].resumed  # type: ignore[attr-defined]
            await clients[channel].register(*OBJECTS)
        await clients.took(*at(None))
        publish(node, 6)
        await clients.took(*at(6))


@in_loop
async def test_c71_a_shard_restored_from_a_snapshot_catches_up(start_node: StartNode) -> None:
    node = start_node()
    publish(node, 1)
    async with everybody(node) as clients:
        await clients.register(*OBJECTS)
        await clients.took(*at(1))
        await clients.disconnect()
        await asyncio.to_thread(node.stop)
        stores = sorted(node.data.glob("shard-*/store"))
        for store in stores:
            shutil.copytree(store, store.with_name("snapshot"))
        await asyncio.to_thread(node.start)
        for version in (2, 3, 4):
            publish(node, version)
        await asyncio.to_thread(node.kill)
        for store in stores:
            shutil.rmtree(store)
            store.with_name("snapshot").rename(store)
        await asyncio.to_thread(node.start)
        await clients.connect()
        await clients.took(*at(4))


@in_loop
async def test_c72_when_the_feed_is_gone_everybody_is_told_unknown_once(
    start_node: StartNode,
) -> None:
    node = start_node()
    publish(node, 1)
    async with everybody(node) as clients:
        await clients.register(*OBJECTS)
        await clients.took(*at(1))
        await clients.disconnect()
        await asyncio.to_thread(node.stop)
        for feed in node.data.glob("shard-*/feed"):
            shutil.rmtree(feed)
        await asyncio.to_thread(node.start)
        await clients.connect()
        await clients.took(*at(None))
        await clients.disconnect()
        await clients.connect()
        publish(node, 2)
        await clients.took(*at(2))


@in_loop
async def test_c70_what_was_acknowledged_survives_kill_9(start_node: StartNode) -> None:
    node = start_node()
    acked: dict[str, int] = {}

    def publish_until_it_is_gone(key: str) -> None:
        for version in range(1_000_000):
            try:
                acked[key] = node.publish(key, version)
            except httpx.TransportError:
                return

    async with asyncio.TaskGroup() as tasks:
        for key in OBJECTS:
            tasks.create_task(asyncio.to_thread(publish_until_it_is_gone, key))
        await asyncio.to_thread(
            await_that, lambda: all(acked.get(key, 0) > 10 for key in OBJECTS), PATIENCE_S
        )
        await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)
    for key in OBJECTS:
        version = node.read(key)
        assert version is not None
        assert version >= acked[key]


@in_loop
async def test_c76_nothing_is_confirmed_while_the_shards_do_not_answer(
    start_node: StartNode,
) -> None:
    node = start_node("--registrars", "1", "--shards", "1")  # one link: who is not ready has none
    publish(node, 1)
    async with everybody(node) as watching, everybody(node) as clients:
        await watching.register(*OBJECTS)  # so that the registrar knows these objects
        await watching.took(*at(1))
        # Without a row they may be told from the cache, for as long as the link is thought alive.
        sse, poll = clients.drivers.pop("sse"), clients.drivers.pop("poll")
        state = node.signal("state-0", signal.SIGSTOP)
        registering = asyncio.create_task(clients.register(*OBJECTS))
        await asyncio.to_thread(await_that, lambda: not node.is_ready(), PATIENCE_S)
        assert not registering.done()
        await sse.register(*OBJECTS)  # a stream that confirms nothing; it is told from no cache
        polling = asyncio.create_task(poll.register(*OBJECTS))
        clients.drivers |= {"sse": sse, "poll": poll}
        assert all(client.inbox.empty() for client in clients.drivers.values())
        assert not polling.done()

        os.kill(state, signal.SIGCONT)
        await registering
        await polling
        await asyncio.to_thread(node.await_ready)
        await clients.took(*at(1))
        publish(node, 2)
        await clients.took(*at(2))
        await watching.took(*at(2))


@in_loop
async def test_c87_assigned_versions_rise_although_the_clock_went_back_an_hour(
    start_node: StartNode,
) -> None:
    program = str(Path(__file__).with_name("shifted_clock.py"))
    node = start_node("--versions", "assigned", command=(sys.executable, program, "3600"))
    before = [node.publish(key) for key in OBJECTS]
    async with everybody(node) as clients:
        await clients.register(*OBJECTS)
        await clients.took(*zip(OBJECTS, before, strict=True))
        await clients.disconnect()
        await asyncio.to_thread(node.kill)
        node.command = (sys.executable, program, "0")
        await asyncio.to_thread(node.start)
        after = [node.publish(key) for key in OBJECTS]
        assert all(new > old for old, new in zip(before, after, strict=True))
        await clients.connect()
        await clients.took(*zip(OBJECTS, after, strict=True))


@in_loop
async def test_c88_the_number_of_matchers_may_change_and_that_of_shards_may_not(
    start_node: StartNode,
) -> None:
    node = start_node("--registrars", "1", "--matchers", "2")
    publish(node, 1, SENTINEL, *OBJECTS)
    async with everybody(node) as clients:
        await clients.register(SENTINEL, *OBJECTS)
        await clients.took((SENTINEL, 1), *at(1))
        await clients.disconnect()
        for version, matchers in enumerate(("3", "0"), start=2):
            publish(node, version)
            await asyncio.to_thread(node.stop)
            await asyncio.to_thread(node.start, "--matchers", matchers)
            await clients.connect()
            await clients.took(*at(version))
            publish(node, version, SENTINEL)
            await clients.took((SENTINEL, version))
            await clients.disconnect()
    node.stop()
    refused = _refused_to_serve(node, "--shards", "8")
    assert "shards" in refused
    node.start("--matchers", "0")
    assert [node.read(key) for key in OBJECTS] == [3] * len(OBJECTS)


@pytest.mark.parametrize("flags", [(), ("--registrars", "2", "--matchers", "2")])
def test_a_node_says_where_it_listens_while_it_does(
    start_node: StartNode, flags: tuple[str, ...]
) -> None:
    node = start_node(*flags)
    found = node.announced()
    assert found["url"] == node.url
    assert found["mqtt_port"] == node.mqtt_port
    assert found["pid"] in node.processes()
    # One that does not answer for a while is not named.
    await_that(lambda: set(node.pids().values()) == set(node.processes()), PATIENCE_S)
    node.stop()
    assert not (node.data / "node.json").exists()


def test_a_second_node_on_the_same_data_is_refused_and_does_the_first_no_harm(
    start_node: StartNode,
) -> None:
    node = start_node("--registrars", "1")
    for flags in ((), ("--registrars", "1")):
        assert str(node.data) in _refused_to_serve(node, *flags)
    assert node.announced()["url"] == node.url
    node.crash("state-0")
    publish(node, 1)


def _refused_to_serve(node: Node, *flags: str) -> str:
    """The same data; returns why not."""
    words = [*node.command, "serve", "--data", str(node.data), "--port", "0", "--mqtt-port", "0"]
    words += ["--no-pipeline", *flags]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert ended.returncode != 0
    assert "Traceback" not in ended.stderr
    return ended.stderr
