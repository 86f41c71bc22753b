"""Client and publisher for threads: the same, seen from a thread without an event loop."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.client.scripted import EPOCH, Conversation, ScriptedServer
from tests.client.test_client import acks_of
from tests.loops import in_loop, until
from tests.publisher.scripted import ScriptedHttp

import roskva
from roskva import blocking
from roskva.wire.messages import Ack


async def opened(server: ScriptedServer) -> tuple[blocking.Client, Conversation]:
    client = await asyncio.to_thread(blocking.Client, server.url, "contacts")
    conversation = await server.accept()
    await conversation.greet()
    assert await asyncio.to_thread(client.next_event) == roskva.ReissueRegistrations()
    return client, conversation


def threads_left() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("roskva")]


@in_loop
async def test_registers_is_told_and_acks() -> None:
    def application(client: blocking.Client) -> list[roskva.ClientEvent]:
        told = []
        client.register("alice", version=41)
        for event in client:
            told.append(event)
            client.ack(event)
            if isinstance(event, roskva.Notify):
                client.close()
        return told

    async with ScriptedServer() as server:
        client, conversation = await opened(server)
        running = asyncio.create_task(asyncio.to_thread(application, client))
        await conversation.confirm()
        await conversation.notify("contacts/alice", 42)
        assert await acks_of(conversation) == [Ack("contacts/alice", 42, EPOCH)]
        status, notify = await running
        assert isinstance(status, roskva.RegistrationStatus)
        assert isinstance(notify, roskva.Notify)
        assert (notify.name, notify.version) == ("alice", 42)
    assert threads_left() == []


@in_loop
async def test_waiting_ends_in_time_and_takes_no_event_along() -> None:
    async with ScriptedServer() as server:
        client, conversation = await opened(server)
        assert await asyncio.to_thread(client.next_event, 0.01) is None
        assert await asyncio.to_thread(list, client.events(0.01)) == []
        await asyncio.to_thread(client.register, "alice")
        await conversation.confirm()
        assert isinstance(await asyncio.to_thread(client.next_event), roskva.RegistrationStatus)
        assert client.connected
        await asyncio.to_thread(client.unregister, "alice")
        await conversation.confirm()
        assert isinstance(await asyncio.to_thread(client.next_event), roskva.RegistrationStatus)
        await asyncio.to_thread(client.close)


@in_loop
async def test_closing_ends_threads_that_wait_for_events() -> None:
    async with ScriptedServer() as server:
        client, _ = await opened(server)
        waiting = [asyncio.create_task(asyncio.to_thread(list, client)) for _ in range(3)]
        await until(lambda: len(client._worker._inbox._arrived._waiters) == 3)
        await asyncio.to_thread(client.close)
        assert await asyncio.gather(*waiting) == [[], [], []]
        client.close()
        with pytest.raises(RuntimeError, match="closed"):
            client.register("bob")
        client.ack(roskva.Notify("contacts/alice", 1, EPOCH))


def test_what_cannot_be_entered_raises_and_leaves_no_thread(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        blocking.Client("ws://127.0.0.1:9", "contacts", identity=tmp_path / "no" / "such")
    with pytest.raises(roskva.BadName):
        blocking.Publisher("http://127.0.0.1:9", "No App")
    assert threads_left() == []


@in_loop
async def test_threads_that_publish_at_once_share_requests() -> None:
    def application(publisher: blocking.Publisher) -> list[int]:
        with ThreadPoolExecutor(20) as threads:
            return list(threads.map(lambda n: publisher.publish(f"object-{n}", n), range(200)))

    async with ScriptedHttp() as server:
        with await asyncio.to_thread(blocking.Publisher, server.url, "contacts") as publisher:
            server.go.clear()
            publishing = asyncio.create_task(asyncio.to_thread(application, publisher))
            await until(lambda: len(publisher._worker._buffer) == 20)
            server.go.set()
            assert await publishing == list(range(200))
            await asyncio.to_thread(publisher.reset, "object-1")
            await asyncio.to_thread(publisher.close)
    assert len(server.requests) < 200
    assert server.most_under_way == 1


@in_loop
async def test_one_line_publishes() -> None:
    async with ScriptedHttp() as server:
        assert await asyncio.to_thread(roskva.publish, server.url, "contacts/alice", 42) == 42
        with pytest.raises(roskva.BadName):
            roskva.publish(server.url, "alice", 42)
    assert server.versions() == [("alice", "42")]
    assert threads_left() == []
