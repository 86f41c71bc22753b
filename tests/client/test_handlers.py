"""A function for each object: called with what is told of it, which is acked when it returns."""

import asyncio
import logging
import threading

import pytest
from tests.client.scripted import EPOCH, Conversation, ScriptedServer
from tests.client.test_client import acks_of, contacts, next_of
from tests.loops import in_loop, until

import roskva
from roskva import blocking
from roskva.client import handlers
from roskva.client.client import Client
from roskva.core.effects import (
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
)
from roskva.wire.messages import Ack, OperationStatus

News = Notify | NotifyUnknown


async def session(server: ScriptedServer, client: Client) -> Conversation:
    """In which the registrations that handlers made are confirmed."""
    conversation = await server.accept()
    await conversation.greet()
    await conversation.confirm()
    await next_of(client, RegistrationStatus)
    return conversation


@in_loop
async def test_is_told_instead_of_the_loop_and_acked_when_it_returned() -> None:
    told, go_on = asyncio.Queue[News](), asyncio.Event()
    async with ScriptedServer() as server, contacts(server.url) as client:

        @client.on("alice", version=41)
        async def alice(event: News) -> None:
            told.put_nowait(event)
            await go_on.wait()

        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 42)
        assert await told.get() == Notify("contacts/alice", 42, EPOCH)
        await client.register("bob")
        (bob,) = await conversation.confirm()  # it came before any ack
        assert bob.object == "contacts/bob"
        go_on.set()
        assert await acks_of(conversation) == [Ack("contacts/alice", 42, EPOCH)]
        await conversation.notify("contacts/alice", None)
        assert await told.get() == NotifyUnknown("contacts/alice", EPOCH)
        assert isinstance(await anext(client), RegistrationStatus)  # bob's, and nothing of alice
    assert callable(alice)


@in_loop
async def test_plain_functions_run_on_threads_and_hold_nobody_up() -> None:
    threads: list[int] = []
    hanging, told = threading.Event(), threading.Event()

    def slow(event: News) -> None:
        hanging.wait()

    def quick(event: News) -> None:
        threads.append(threading.get_ident())
        told.set()

    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", slow)
        client.on("bob", quick)
        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 1)
        await conversation.notify("contacts/bob", 1)
        assert await acks_of(conversation) == [Ack("contacts/bob", 1, EPOCH)]
        assert threading.get_ident() not in threads
        hanging.set()
        assert await acks_of(conversation) == [Ack("contacts/alice", 1, EPOCH)]


@in_loop
@pytest.mark.parametrize("error", [LookupError("no database"), asyncio.CancelledError()])
async def test_handler_that_raises_acks_nothing_and_is_called_again(
    error: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    failures, told = iter([error, error]), list[News]()

    async def alice(event: News) -> None:
        told.append(event)
        if (failure := next(failures, None)) is not None:
            raise failure

    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", alice)
        conversation = await session(server, client)
        with caplog.at_level(logging.ERROR):
            await conversation.notify("contacts/alice", 1)
            assert await acks_of(conversation) == [Ack("contacts/alice", 1, EPOCH)]
    assert told == [Notify("contacts/alice", 1, EPOCH)] * 3
    records = [record for record in caplog.records if record.name == "roskva.client.handlers"]
    assert len(records) == 2
    assert all(record.exc_info for record in records)
    assert "alice" not in records[0].getMessage()


@in_loop
async def test_what_comes_while_it_fails_takes_the_place_of_what_it_failed_with() -> None:
    told: list[int] = []
    tried, go_on = asyncio.Event(), asyncio.Event()

    async def alice(event: News) -> None:
        assert isinstance(event, Notify)
        told.append(event.version)
        if event.version == 1:
            tried.set()
            await go_on.wait()
            raise LookupError

    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", alice)
        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 1)
        await tried.wait()
        for version in (2, 3):
            await conversation.notify("contacts/alice", version)
        await until(lambda: client._core is not None and client._core.counters["delivered"] == 3)
        go_on.set()
        assert await acks_of(conversation) == [Ack("contacts/alice", 3, EPOCH)]
    assert told == [1, 3]


@in_loop
async def test_repeated_while_it_runs_it_is_called_once_and_never_with_an_older_version() -> None:
    told, running, go_on = list[int](), asyncio.Event(), asyncio.Event()

    async def alice(event: News) -> None:
        assert isinstance(event, Notify)
        told.append(event.version)
        running.set()
        await go_on.wait()

    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", alice)
        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 7)
        await running.wait()
        await conversation.notify("contacts/alice", 7)
        await conversation.notify("contacts/alice", 5)  # late, on a channel that reorders
        await until(lambda: client._core is not None and client._core.counters["delivered"] == 3)
        go_on.set()
        assert await acks_of(conversation) == [Ack("contacts/alice", 7, EPOCH)]
        await conversation.notify("contacts/alice", 8)
        assert await acks_of(conversation) == [Ack("contacts/alice", 8, EPOCH)]
    assert told == [7, 8]


@in_loop
async def test_what_was_registered_anew_meanwhile_is_not_acked_by_the_older_call() -> None:
    told, go_on = asyncio.Queue[News](), asyncio.Event()

    async def alice(event: News) -> None:
        told.put_nowait(event)
        await go_on.wait()

    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", alice)
        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 50)
        await told.get()
        await client.register("alice", version=41)  # the cache was rolled back
        assert (await conversation.confirm())[0].version == 41
        await conversation.notify("contacts/alice", 50)
        await until(lambda: client._core is not None and client._core.counters["delivered"] == 2)
        go_on.set()
        await told.get()  # called again, for the cache that it is now
        assert await acks_of(conversation) == [Ack("contacts/alice", 50, EPOCH)]
        assert told.empty()


@in_loop
async def test_many_that_hang_do_not_keep_others_waiting_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(handlers, "PLACES", 2)
    monkeypatch.setattr(handlers, "PLACE_S", 0.05)
    running: set[str] = set()
    told: list[int] = []

    async def hangs(event: News) -> None:
        running.add(event.name)
        await asyncio.Event().wait()

    async def alice(event: News) -> None:
        assert isinstance(event, Notify)
        told.append(event.version)

    names = [f"hangs-{number}" for number in range(5)]
    async with ScriptedServer() as server, contacts(server.url) as client:
        for name in names:
            client.on(name, hangs)
        client.on("alice", alice)
        conversation = await session(server, client)
        for name in (*names, "alice"):
            await conversation.notify(f"contacts/{name}", 1)
        await conversation.notify("contacts/alice", 2)
        assert await acks_of(conversation) == [Ack("contacts/alice", 2, EPOCH)]
    assert running == set(names)
    assert told == [2]  # what was newest when its turn came


@in_loop
async def test_unregistered_object_has_no_handler_and_acks_nothing() -> None:
    told, go_on = asyncio.Queue[News](), asyncio.Event()

    async def alice(event: News) -> None:
        told.put_nowait(event)
        await go_on.wait()

    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", alice)
        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 1)
        await told.get()
        await client.unregister("alice")
        await conversation.confirm()
        go_on.set()
        await client.register("alice")
        await conversation.confirm()
        await conversation.notify("contacts/alice", 2)
        event = await next_of(client, Notify)
        assert event.version == 2
        client.ack(event)
        assert await acks_of(conversation) == [Ack("contacts/alice", 2, EPOCH)]
        assert told.empty()


@in_loop
async def test_what_waits_for_the_loop_or_an_earlier_handler_goes_to_the_new_one() -> None:
    told, hanging = asyncio.Queue[News](), asyncio.Event()

    async def hangs(event: News) -> None:
        told.put_nowait(event)
        await hanging.wait()

    async with ScriptedServer() as server, contacts(server.url) as client:
        await client.register("alice")
        conversation = await session(server, client)
        await conversation.notify("contacts/alice", 1)
        await until(lambda: client._core is not None and client._core.counters["delivered"] == 1)
        client.on("alice", hangs)
        assert await told.get() == Notify("contacts/alice", 1, EPOCH)
        client.on("alice", lambda event: None)
        assert await acks_of(conversation) == [Ack("contacts/alice", 1, EPOCH)]
        hanging.set()


@in_loop
async def test_registration_that_failed_for_the_moment_is_made_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        client.on("alice", lambda event: None)
        conversation = await server.accept()
        await conversation.greet()
        for code, retriable in (("unavailable", True), ("unavailable", True), ("refused", False)):
            message = await conversation.hear_message()
            (operation,) = message.operations
            status = OperationStatus(operation.object, False, message.number, code, retriable)
            await conversation.say(session=7, statuses=[status])
            failure = await next_of(client, RegistrationFailure)
            assert (failure.code, failure.transient) == (code, retriable)
        assert "cannot be registered: refused" in caplog.text


@in_loop
async def test_handlers_alone_make_a_program() -> None:
    async with ScriptedServer() as server:
        client = contacts(server.url)
        async with client:
            client.on("alice", lambda event: None)
            conversation = await server.accept()
            await conversation.greet()
            await conversation.confirm()
            await client.register("bob")
            await conversation.confirm()
            running = asyncio.create_task(client.run())
            await conversation.notify("contacts/bob", 1)  # of this nobody takes anything over
            await conversation.notify("contacts/alice", 1)
            assert await acks_of(conversation) == [Ack("contacts/alice", 1, EPOCH)]
        await running


@in_loop
async def test_for_threads_too() -> None:
    told = asyncio.Queue[tuple[News, int]]()
    loop = asyncio.get_running_loop()

    def application(url: str) -> None:
        with blocking.Client(url, "contacts") as client:

            @client.on("alice", version=3)
            def alice(event: News) -> None:
                loop.call_soon_threadsafe(told.put_nowait, (event, threading.get_ident()))
                client.unregister("alice")  # calls of the client are as good here as anywhere
                client.close()

            for _ in client:
                pass

    async with ScriptedServer() as server:
        running = asyncio.create_task(asyncio.to_thread(application, server.url))
        conversation = await server.accept()
        await conversation.greet()
        (operation,) = await conversation.confirm()
        assert operation.version == 3
        await conversation.notify("contacts/alice", 4)
        event, thread = await told.get()
        assert event == roskva.Notify("contacts/alice", 4, EPOCH)
        assert thread != threading.get_ident()
        await running


@in_loop
async def test_names_and_versions_are_checked_at_once() -> None:
    async with contacts("ws://127.0.0.1:9") as client:
        with pytest.raises(roskva.BadInput):
            client.on("alice", lambda event: None, version=-1)
        with pytest.raises(roskva.BadName):
            client.on("", lambda event: None)
    with pytest.raises(RuntimeError, match="closed"):
        client.on("alice", lambda event: None)
