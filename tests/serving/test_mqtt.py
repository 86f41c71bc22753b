"""MQTT's own conformance cases, with paho as it is."""

import asyncio
import time
from collections.abc import Callable

import pytest
from tests.loops import in_loop
from tests.serving.drivers.mqtt import Mqtt3Driver, Mqtt5Driver, MqttDriver
from tests.serving.nodes import HTTP, Node, versions_of

Fresh = Callable[[], str]
StartNode = Callable[..., Node]


def collected(node: Node) -> int:
    """How many clients its shards have forgotten."""
    return sum(shard["collected"] for shard in HTTP.get(f"{node.url}/v1/status").json()["shards"])


def await_collected(node: Node, count: int) -> None:
    deadline = time.monotonic() + 60
    while collected(node) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


both_versions = pytest.mark.parametrize("driver", [Mqtt3Driver, Mqtt5Driver])


@both_versions
@in_loop
async def test_c83_each_packet_in_flight_has_its_own_id_and_puback_acks_what_it_carried(
    shared: Node, fresh: Fresh, driver: type[MqttDriver]
) -> None:
    first, second = fresh(), fresh()
    shared.publish(first, 1)
    shared.publish(second, 1)
    async with driver(shared) as client:
        await client.register(first)
        in_flight = [await client.told()]
        await client.register(second)
        in_flight.append(await client.told())
        for version in range(2, 10):
            shared.publish(first, version)
            in_flight.append(await client.told())
        assert len({told.receipt.mid for told in in_flight}) == len(in_flight)
        for told in in_flight:
            if told.version != 9:
                await client.ack(told)
        await client.disconnect()
        await client.connect()
        assert await client.took() == (first, 9)
        shared.publish(second, 2)
        assert await client.took() == (second, 2)


@pytest.mark.verify
@in_loop
async def test_c83_an_id_still_in_flight_is_passed_over_when_ids_have_gone_round(
    start_node: StartNode,
) -> None:
    node = start_node()
    held, busy = "test/held", [f"test/busy-{i}" for i in range(500)]
    node.publish(held, 1)
    node.publish_all(versions_of(busy, range(1))[0])
    async with Mqtt3Driver(node) as client:
        await client.register(held)
        kept = await client.told()
        await client.register(*busy)
        await client.took_latest(dict.fromkeys(busy, 0))
        seen = 0
        for version in range(1, 141):
            await asyncio.to_thread(
                node.publish_all, versions_of(busy, range(version, version + 1))[0]
            )
            left = set(busy)
            while left:
                told = await client.told()
                assert told.receipt.mid != kept.receipt.mid
                await client.ack(told)
                left.discard(told.object)
                seen += 1
        assert seen > 65_536
        await client.ack(kept)
        await client.disconnect()
        await client.connect()
        node.publish(held, 2)
        assert await client.took() == (held, 2)


@both_versions
@in_loop
async def test_c84_with_qos_0_the_current_version_is_told_on_every_connect_until_it_is_acked(
    shared: Node, fresh: Fresh, driver: type[MqttDriver]
) -> None:
    key = fresh()
    shared.publish(key, 4)
    async with driver(shared, qos=0) as client:
        await client.register(key)
        told = await client.told()
        assert (told.version, told.receipt.qos, told.receipt.retain) == (4, 0, True)
        shared.publish(key, 5)
        told = await client.told()
        assert (told.version, told.receipt.qos, told.receipt.retain) == (5, 0, False)
        for _ in range(2):
            await client.disconnect()
            await client.connect()
            told = await client.told()
            assert (told.version, told.receipt.qos) == (5, 1), "how it had subscribed is not kept"
        await client.ack(told)
        await client.disconnect()
        await client.connect()
        shared.publish(key, 6)
        assert await client.took() == (key, 6)


@both_versions
@in_loop
async def test_c85_nothing_is_sent_twice_on_a_connection_and_again_with_dup_on_the_next(
    start_node: StartNode, driver: type[MqttDriver]
) -> None:
    node = start_node("--registrars", "1")
    unacked, other = "test/unacked", "test/other"
    node.publish(unacked, 1)
    node.publish(other, 1)
    async with driver(node) as client:
        await client.register(unacked)
        first = await client.told()
        assert (first.version, first.receipt.dup, first.receipt.retain) == (1, False, True)
        await client.register(other)
        assert await client.took() == (other, 1)
        # Every session is compared anew with a shard that comes back.
        await asyncio.to_thread(node.crash, "state-0")
        node.publish(other, 2)
        assert await client.took() == (other, 2)
        assert client.inbox.empty()

        await client.disconnect()
        await client.connect()
        again = await client.told()
        assert (again.object, again.version, again.receipt.dup) == (unacked, 1, True)


@in_loop
async def test_no_more_is_in_flight_than_the_client_takes(shared: Node, fresh: Fresh) -> None:
    keys = [fresh() for _ in range(5)]
    for key in keys:
        shared.publish(key, 1)
    client = Mqtt5Driver(shared)
    client.receive_maximum = 2
    async with client:
        await client.register(*keys)
        left = set(keys)
        in_flight = [await client.told(), await client.told()]
        while in_flight:
            await client.subscribe("test/no-such-object/+")  # answered after what was sent before
            assert client.inbox.empty()
            told = in_flight.pop(0)
            left.remove(told.object)
            await client.ack(told)
            if len(left) > len(in_flight):
                in_flight.append(await client.told())
        assert not left


@both_versions
@in_loop
async def test_a_clean_session_forgets_the_subscriptions(
    shared: Node, fresh: Fresh, driver: type[MqttDriver]
) -> None:
    key, other = fresh(), fresh()
    shared.publish(key, 1)
    shared.publish(other, 1)
    async with driver(shared) as client:
        assert not client.resumed
        await client.register(key)
        assert await client.took() == (key, 1)
        await client.disconnect()
        await client.connect()
        assert client.resumed
        await client.disconnect()
        client.clean = True
        await client.connect()
        assert not client.resumed
        await client.register(other)
        shared.publish(key, 2)
        assert await client.took() == (other, 1)
        await client.disconnect()
        client.clean = False
        await client.connect()
        assert not client.resumed


@in_loop
async def test_a_session_is_forgotten_when_it_has_expired(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    shared.publish(key, 1)
    async with Mqtt5Driver(shared) as client:
        client.expiry_s = 1
        await client.disconnect()
        await client.connect()
        await client.register(key)
        assert await client.took() == (key, 1)
        before = collected(shared)
        await client.disconnect()
        await asyncio.to_thread(await_collected, shared, before + 1)
        await client.connect()
        assert not client.resumed


@both_versions
@in_loop
async def test_wildcards_and_bad_names_are_refused_and_qos_2_is_granted_as_1(
    shared: Node, fresh: Fresh, driver: type[MqttDriver]
) -> None:
    async with driver(shared, qos=2) as client:
        topics = [fresh(), "test/#", "test/+/x", "no-app", "BAD/name", "test/" + "x" * 256]
        granted, *refused = await client.subscribe(*topics)
        assert granted.value == 1
        assert all(code.is_failure for code in refused)


@both_versions
@in_loop
async def test_a_published_version_is_told_and_anything_else_is_refused(
    shared: Node, fresh: Fresh, driver: type[MqttDriver]
) -> None:
    key = fresh()
    async with driver(shared) as watcher, driver(shared) as publisher:
        await watcher.register(key)
        assert await watcher.took() == (key, None)
        accepted = await publisher.publish(key, b"41")
        assert not accepted.is_failure
        assert await watcher.took() == (key, 41)
        for payload in (b"", b"21.5", b"-1", b"9" * 30, b"\xff\xfe"):
            code = await publisher.publish(key, payload)
            # MQTT 3.1.1 has no word for it.
            assert str(code) == driver.not_a_version
        await publisher.publish(key, b"42")
        assert await watcher.took() == (key, 42)


@both_versions
@in_loop
async def test_with_assigned_versions_payloads_are_told_as_they_are_and_after_an_absence_the_last(
    latest_value: Node, fresh: Fresh, driver: type[MqttDriver]
) -> None:
    key = fresh()
    async with driver(latest_value) as watcher, driver(latest_value) as publisher:
        await publisher.publish(key, b"21.5")
        await watcher.register(key)
        told = await watcher.told()
        assert told.payload == b"21.5"
        await watcher.ack(told)
        for payload in (b"21.6", b"\x00\xff", b"x" * 1024):
            assert not (await publisher.publish(key, payload)).is_failure
            told = await watcher.told()
            assert told.payload == payload
            await watcher.ack(told)
        await watcher.disconnect()
        for celsius in range(30):
            await publisher.publish(key, b"%d.5" % celsius)
        await watcher.connect()
        told = await watcher.told()
        assert told.payload == b"29.5"
        await watcher.ack(told)
        too_large = await publisher.publish(key, b"x" * 1025)
        assert too_large.is_failure == (driver is Mqtt5Driver)
        await publisher.publish(key, b"last")
        assert (await watcher.told()).payload == b"last"
