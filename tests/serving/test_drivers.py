"""The drivers themselves: what a test's client puts up with, and what it does not."""

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
from tests.loops import in_loop
from tests.serving.drivers import CHANNELS
from tests.serving.drivers.base import Told
from tests.serving.nodes import PATIENCE_S, Node, await_that

OF_SESSIONS = ["library", "websocket-msgpack"]
"""Each driver that knows why it may be told again."""


@pytest.mark.parametrize("acked", [True, False])
@in_loop
async def test_a_version_told_twice_is_noticed_whether_acked_or_not(
    shared: Node, fresh: Callable[[], str], acked: bool
) -> None:
    key = fresh()
    shared.publish(key, 4)

    async def is_told_twice() -> None:
        async with CHANNELS["websocket-msgpack"](shared) as client:
            await client.register(key)
            told = await client.told()
            if acked:
                await client.ack(told)
            client.take(Told(*told))

    with pytest.raises(AssertionError, match=f"{key} 4 once more"):
        await is_told_twice()


@pytest.mark.parametrize("channel", OF_SESSIONS)
@in_loop
async def test_after_a_link_was_opened_again_a_version_may_be_told_once_more(
    start_node: Callable[..., Node], fresh: Callable[[], str], channel: str
) -> None:
    node, key = start_node("--registrars", "1"), fresh()
    node.publish(key, 1)
    async with CHANNELS[channel](node) as client:
        await client.register(key)
        told = await client.told()
        before, by_then = node.counter("links_opened"), dict(client.told_before)
        state = node.signal("state-0", signal.SIGSTOP)
        await asyncio.to_thread(await_that, lambda: not node.is_ready(), PATIENCE_S)
        os.kill(state, signal.SIGCONT)
        await asyncio.to_thread(
            await_that, lambda: node.counter("links_opened") > before, PATIENCE_S
        )
        await asyncio.to_thread(node.await_ready)
        await asyncio.to_thread(await_that, lambda: client.told_before != by_then, PATIENCE_S)
        assert client.inbox.empty()
        await client.ack(told)
        node.publish(key, 2)
        assert await client.took() == (key, 2)


@in_loop
async def test_after_a_scan_of_its_session_a_version_may_be_told_once_more(
    start_node: Callable[..., Node], fresh: Callable[[], str]
) -> None:
    node, key = start_node(), fresh()
    node.publish(key, 1)
    async with CHANNELS["websocket-msgpack"](node) as client:
        await client.register(key)
        told, by_then = await client.told(), dict(client.told_before)
        await asyncio.to_thread(await_that, lambda: client.told_before != by_then, PATIENCE_S)
        assert node.counter("notifications_resent") == 1
        assert client.inbox.empty()
        await client.ack(told)
