"""The conformance cases that need no more than a running node, on every channel."""

from collections.abc import Callable

import pytest
from tests.loops import in_loop
from tests.serving.drivers import CHANNELS
from tests.serving.nodes import Node, versions_of
from tests.serving.test_explain import until

every_channel = pytest.mark.parametrize("channel", CHANNELS)
Fresh = Callable[[], str]


def channels(capability: str) -> pytest.MarkDecorator:
    able = [name for name, driver in CHANNELS.items() if getattr(driver, capability)]
    return pytest.mark.parametrize("channel", able)


@every_channel
@in_loop
async def test_c17_notifications_are_delivered_and_what_was_acked_is_not_told_again(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    first, second = fresh(), fresh()
    shared.publish(first, 7)
    shared.publish(second, 1)
    async with CHANNELS[channel](shared) as client:
        await client.register(first, second)
        assert {await client.took(), await client.took()} == {(first, 7), (second, 1)}
        shared.publish(first, 8)
        assert await client.took() == (first, 8)
        shared.publish(second, 2)
        assert await client.took() == (second, 2)
        await client.disconnect()

        await client.connect()
        shared.publish(second, 3)
        assert await client.took() == (second, 3)


@channels("tells_payload_and_version")
@in_loop
async def test_c17_a_notification_brings_the_payload_of_its_version(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    shared.publish(key, 3, text="drei Äpfel")
    async with CHANNELS[channel](shared) as client:
        await client.register(key)
        told = await client.told()
        assert (told.version, told.payload) == (3, "drei Äpfel".encode())
        await client.ack(told)
        shared.publish(key, 4, payload="AAH/")
        told = await client.told()
        assert (told.version, told.payload) == (4, b"\x00\x01\xff")


@every_channel
@in_loop
async def test_c28_what_was_not_acked_is_told_again_after_a_reconnect(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    shared.publish(key, 5)
    async with CHANNELS[channel](shared) as client:
        await client.register(key)
        assert (await client.told()).version == 5
        await client.disconnect()
        await client.connect()
        assert await client.took() == (key, 5)


@channels("can_be_source")
@in_loop
async def test_c60_the_source_is_not_told_of_its_own_change(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    shared.publish(key, 1)
    name = f"author-of-{key.partition('-')[2]}-{channel}"
    async with CHANNELS[channel](shared, name) as author, CHANNELS[channel](shared) as other:
        for client in (author, other):
            await client.register(key)
            assert await client.took() == (key, 1)
        await until(shared, f"clients/{name}", "Fresh")  # who has not acked is told
        shared.publish(key, 2, source=name)
        assert await other.took() == (key, 2)
        shared.publish(key, 3)
        assert await author.took() == (key, 3)

        # It missed 4, so 5 is told although it is its own.
        shared.publish(key, 4)
        assert (await author.told()).version == 4
        shared.publish(key, 5, source=name)
        assert await author.took() == (key, 5)


@every_channel
@in_loop
async def test_c61_reconnecting_with_nothing_changed_brings_no_notification(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    same, changed = fresh(), fresh()
    shared.publish(same, 9)
    shared.publish(changed, 1)
    async with CHANNELS[channel](shared) as client:
        await client.register(same, changed)
        assert {await client.took(), await client.took()} == {(same, 9), (changed, 1)}
        for version in (2, 3, 4):
            await client.disconnect()
            await client.connect()
            shared.publish(changed, version)
            assert await client.took() == (changed, version)
        assert client.inbox.empty()


@every_channel
@in_loop
async def test_c62_offline_through_1000_updates_is_one_notification(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key, later = fresh(), fresh()
    shared.publish(key, 0)
    shared.publish(later, 0)
    async with CHANNELS[channel](shared) as client:
        await client.register(key, later)
        assert {await client.took(), await client.took()} == {(key, 0), (later, 0)}
        await client.disconnect()
        for updates in versions_of([key], range(1, 1001)):
            shared.publish_all(updates)
        await client.connect()
        assert await client.took() == (key, 1000)
        shared.publish(later, 1)
        assert await client.took() == (later, 1)


@every_channel
@in_loop
async def test_c63_registering_before_the_first_publish_is_told_unknown_once(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    async with CHANNELS[channel](shared) as client:
        await client.register(key)
        assert await client.took() == (key, None)
        await client.disconnect()
        await client.connect()
        shared.publish(key, 0)
        assert await client.took() == (key, 0)


@channels("has_identity")
@in_loop
async def test_c67_the_newer_session_wins_and_the_older_is_told(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    shared.publish(key, 1)
    async with CHANNELS[channel](shared) as older:
        await older.register(key)
        assert await older.took() == (key, 1)
        newer = older.twin()
        async with newer:
            assert await older.told_the_end() == older.fenced
            shared.publish(key, 2)
            await newer.took_latest({key: 2})  # acks of the older one may have been lost with it
            assert older.inbox.empty()


@every_channel
@in_loop
async def test_c81_a_reset_is_told_as_unknown_and_the_next_version_however_small(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    shared.publish(key, 1_000_000)
    async with CHANNELS[channel](shared) as client:
        await client.register(key)
        assert await client.took() == (key, 1_000_000)
        shared.reset(key)
        assert await client.took() == (key, None)
        shared.publish(key, 2)
        await client.took_latest({key: 2})  # unknown again, if it overtook the ack
        await client.disconnect()
        shared.reset(key)
        shared.publish(key, 1)
        await client.connect()
        assert await client.took() == (key, None)
        assert await client.took() == (key, 1)


@channels("can_declare")
@in_loop
async def test_c82_declaring_an_older_version_is_told_again(
    shared: Node, fresh: Fresh, channel: str
) -> None:
    key = fresh()
    shared.publish(key, 5)
    async with CHANNELS[channel](shared) as client:
        await client.register(key)
        assert await client.took() == (key, 5)
        await client.register(key, version=5)
        await client.register(key, version=3)
        assert await client.took() == (key, 5)
        assert client.inbox.empty()
