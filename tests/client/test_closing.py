"""However a client is left: what was acked is sent if it can be, and nothing stays behind."""

import asyncio
from contextlib import suppress

import pytest
from tests.client.scripted import EPOCH, Conversation, ScriptedServer
from tests.client.test_client import acks_of, contacts, next_of, registered
from tests.loops import in_loop, in_virtual_time
from websockets.exceptions import ConnectionClosed

from roskva.client.client import Client
from roskva.core.effects import Notify
from roskva.wire.messages import Ack


@in_loop
async def test_what_was_acked_is_sent_when_the_client_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roskva.client.client._FLUSH_TIMEOUT", 60.0)
    monkeypatch.setattr("roskva.client.link._HANG_UP_TIMEOUT", 60.0)
    names = [f"{number:04}-{'x' * 200}" for number in range(300)]  # more than one message holds
    async with ScriptedServer() as server:
        async with contacts(server.url) as client:
            for name in names:
                await client.register(name)
            conversation = await server.accept()
            await conversation.greet()
            confirmed = 0
            while confirmed < len(names):
                confirmed += len(await conversation.confirm())
            for name in names:
                await conversation.notify(f"contacts/{name}", 1)
            for _ in names:
                client.ack(await next_of(client, Notify))
        acked: set[str] = set()
        with suppress(ConnectionClosed):
            while True:
                acked.update(ack.object for ack in await acks_of(conversation))
    assert acked == {f"contacts/{name}" for name in names}


@in_loop
async def test_last_event_is_acked_by_leaving_in_peace() -> None:
    async with ScriptedServer() as server:
        async with contacts(server.url, auto_ack=True) as client:
            conversation = await registered(server, client, "alice")
            await conversation.notify("contacts/alice", 1)
            await next_of(client, Notify)
        assert await acks_of(conversation) == [Ack("contacts/alice", 1, EPOCH)]


@in_loop
async def test_error_of_the_application_passes_as_it_is_and_acks_nothing() -> None:
    conversation: Conversation

    async def application(server: ScriptedServer) -> None:
        nonlocal conversation
        async with contacts(server.url, auto_ack=True) as client:
            conversation = await registered(server, client, "alice")
            await conversation.notify("contacts/alice", 1)
            await next_of(client, Notify)
            raise LookupError

    async with ScriptedServer() as server:
        with pytest.raises(LookupError):
            await application(server)
        with pytest.raises(ConnectionClosed):
            await conversation.hear()


@in_loop
async def test_closed_client_says_so() -> None:
    async with ScriptedServer() as server:
        async with contacts(server.url) as client:
            conversation = await registered(server, client, "alice")
            await conversation.notify("contacts/alice", 1)
            event = await next_of(client, Notify)
        with pytest.raises(RuntimeError, match="closed"):
            await client.register("bob")
        with pytest.raises(RuntimeError, match="closed"):
            await client.unregister("alice")
        client.ack(event)
        assert [event async for event in client] == []
        assert not client.connected
        with pytest.raises(RuntimeError, match="once"):
            await client.__aenter__()


@in_loop
async def test_client_that_was_not_entered_says_so() -> None:
    client = Client("ws://localhost:7600", "contacts")
    with pytest.raises(RuntimeError, match="async with"):
        await client.register("alice")
    with pytest.raises(RuntimeError, match="async with"):
        await anext(client)


@in_loop
async def test_closing_ends_whoever_waits_for_an_event() -> None:
    async with ScriptedServer() as server:
        async with contacts(server.url) as client:
            await registered(server, client, "alice")
            waiting = asyncio.create_task(next_of(client, Notify))
            await asyncio.sleep(0)
        with pytest.raises(AssertionError, match="closed"):
            await waiting


@in_virtual_time
async def test_server_that_does_not_take_leave_delays_nobody_for_long() -> None:
    async with ScriptedServer() as server:
        client = contacts(server.url)
        async with client:
            conversation = await registered(server, client, "alice")
            conversation.socket.transport.pause_reading()
            left_at = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - left_at < 3
        conversation.socket.transport.abort()


@in_loop
async def test_cancelled_application_leaves_nothing_behind() -> None:
    async def application(server: ScriptedServer) -> None:
        async with contacts(server.url) as client:
            await registered(server, client, "alice")
            async for _ in client:
                pass

    async with ScriptedServer() as server:
        running = asyncio.create_task(application(server))
        for _ in range(50):
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running


@in_loop
async def test_event_that_was_not_awaited_to_the_end_is_not_lost() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await registered(server, client, "alice")
        for version in range(1, 50):
            waiting = asyncio.create_task(next_of(client, Notify))
            await asyncio.sleep(0)
            waiting.cancel()
            await conversation.notify("contacts/alice", version)
            with pytest.raises(asyncio.CancelledError):
                await waiting
            event = await next_of(client, Notify)
            assert event.version == version
            client.ack(event)


@in_loop
async def test_failing_part_of_the_client_ends_the_application() -> None:
    async def application(server: ScriptedServer) -> None:
        async with contacts(server.url) as client:
            assert client._core is not None
            client._core.__dict__["step"] = None
            await anext(client)

    async with ScriptedServer() as server:
        with pytest.raises(ExceptionGroup):
            await application(server)
