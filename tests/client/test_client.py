"""The asyncio client, against a server that says what the test wants."""

import asyncio
from contextlib import suppress
from typing import TypeVar

import msgspec
import pytest
from benchmarks.ports import free_port
from tests.client.scripted import EPOCH, TOKEN, Conversation, ScriptedServer, quick
from tests.loops import in_loop, until
from websockets.exceptions import ConnectionClosed

from roskva.client.client import Client
from roskva.client.events import Listener
from roskva.core.effects import (
    ClientEvent,
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    Trouble,
)
from roskva.errors import BadInput, BadName
from roskva.wire.messages import (
    Ack,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerError,
    SyncRequest,
)

E = TypeVar("E")


def contacts(url: str, auto_ack: bool = False) -> Client:
    return quick(Client(url, "contacts", auto_ack=auto_ack))


async def next_of(client: Client, kind: type[E]) -> E:
    async for event in client:
        if isinstance(event, kind):
            return event
    raise AssertionError("the client was closed")


async def registered(server: ScriptedServer, client: Client, *names: str) -> Conversation:
    """A session in which these names are registered, and the application has read all events."""
    for name in names:
        await client.register(name)
    conversation = await server.accept()
    await conversation.greet()
    await conversation.confirm()
    for _ in names:
        await next_of(client, RegistrationStatus)
    return conversation


async def acks_of(conversation: Conversation) -> list[Ack]:
    return (await conversation.hear_message()).acks


@in_loop
async def test_registers_is_told_and_acks() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        await client.register("alice", version=41)
        conversation = await server.accept()
        hello = await conversation.greet()
        assert (hello.app, hello.token) == ("contacts", None)
        assert await next_of(client, ReissueRegistrations)
        assert await conversation.confirm() == [Operation("contacts/alice", True, 41)]
        assert await anext(client) == RegistrationStatus("contacts/alice", True)
        assert client.connected

        await conversation.notify("contacts/alice", 42)
        event = await anext(client)
        assert isinstance(event, Notify)
        assert (event.name, event.version) == ("alice", 42)
        client.ack(event)
        assert await acks_of(conversation) == [Ack("contacts/alice", 42, EPOCH)]

        await conversation.notify("contacts/alice", None, EPOCH + (1 << 20))
        unknown = await anext(client)
        assert isinstance(unknown, NotifyUnknown)
        client.ack(unknown)
        assert await acks_of(conversation) == [Ack("contacts/alice", None, EPOCH + (1 << 20))]


@in_loop
async def test_unregisters() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await registered(server, client, "alice")
        await client.unregister("alice")
        assert await conversation.confirm() == [Operation("contacts/alice", False)]
        assert await anext(client) == RegistrationStatus("contacts/alice", False)


@in_loop
async def test_comes_back_and_registers_again_what_the_server_has_lost() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await registered(server, client, "alice")
        await conversation.hang_up()
        conversation = await server.accept()
        hello = await conversation.greet(digest=ServerDigest(0, 0, 0))
        assert (hello.app, hello.token) == (None, TOKEN)
        shown = (await conversation.hear_message()).digest
        assert shown is not None
        assert shown.count == 1
        await conversation.say(session=7, sync_request=SyncRequest())
        [sync] = (await conversation.hear_message()).syncs
        assert sync.objects == ["contacts/alice"]


@in_loop
async def test_says_when_nobody_listens_and_connects_when_somebody_does() -> None:
    port = free_port()
    async with contacts(f"ws://127.0.0.1:{port}") as client:
        await client.register("alice")
        trouble = await next_of(client, Trouble)
        assert trouble.code == "unavailable"
        assert str(port) in trouble.text
        async with ScriptedServer(port=port) as server:
            await registered(server, client, "alice")


@in_loop
async def test_waits_as_long_as_the_server_asks() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await server.accept()
        await conversation.hear_hello()
        await conversation.say(not_before_ms=300, error=ServerError("overloaded", "later"))
        await conversation.hang_up()
        assert await anext(client) == Trouble("overloaded", "later")
        assert (await server.accept()).at - conversation.at >= 0.3


async def greet_all(server: ScriptedServer) -> None:
    while True:
        conversation = await server.accept()
        with suppress(ConnectionClosed):  # a client in a hurry may not wait for it
            await conversation.greet()


@in_loop
async def test_gives_up_a_server_that_does_not_answer() -> None:
    async with ScriptedServer() as server:
        client = contacts(server.url)
        client.config = msgspec.structs.replace(client.config, answer_timeout=0.1)
        async with client:
            first = await server.accept()
            await first.hear_hello()
            greeting = asyncio.create_task(greet_all(server))
            assert await next_of(client, ReissueRegistrations)
            greeting.cancel()
            await asyncio.wait([greeting])


@in_loop
async def test_says_that_the_server_speaks_something_else() -> None:
    async with ScriptedServer(subprotocols=()) as server, contacts(server.url) as client:
        assert (await next_of(client, Trouble)).code == "wrong_protocol"


@in_loop
async def test_survives_what_is_no_message() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await registered(server, client, "alice")
        await conversation.socket.send(b"\xc1")
        assert (await next_of(client, Trouble)).code == "bad_message"
        await conversation.socket.send("text")
        assert (await next_of(client, Trouble)).code == "bad_message"
        await conversation.notify("contacts/alice", 5)
        assert (await next_of(client, Notify)).version == 5


@in_loop
async def test_hands_over_a_refused_registration() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        await client.register("alice")
        conversation = await server.accept()
        await conversation.greet()
        number = (await conversation.hear_message()).number
        refused = OperationStatus("contacts/alice", False, number, "limit_exceeded")
        await conversation.say(session=7, statuses=[refused])
        failure = await next_of(client, RegistrationFailure)
        assert (failure.name, failure.transient, failure.code) == ("alice", False, "limit_exceeded")


@in_loop
async def test_refuses_bad_input_at_once() -> None:
    with pytest.raises(BadName):
        Client("ws://localhost:7600", "No App")
    with pytest.raises(BadInput):
        Client("ftp://localhost", "contacts")
    with pytest.raises(BadInput):
        Client("ws://localhost:7600", "contacts", application="x" * 65)
    async with contacts("ws://127.0.0.1:9") as client:
        with pytest.raises(BadName):
            await client.register("a+b")
        with pytest.raises(BadName):
            await client.unregister("")
        with pytest.raises(BadInput):
            await client.register("alice", version=2**63)


# An application that is slow.


@in_loop
async def test_slow_application_gets_the_newest_of_each_object() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await registered(server, client, "a", "b", "c")
        for version in range(1, 1001):
            for name in "abc":
                await conversation.notify(f"contacts/{name}", version)
        await conversation.say(error=ServerError("internal", "the last word"))
        told: list[ClientEvent] = []
        await heard_the_last_word(client)
        while len(told) < 4:
            told.append(await anext(client))
        assert [(e.name, e.version) for e in told if isinstance(e, Notify)] == [
            ("a", 1000),
            ("b", 1000),
            ("c", 1000),
        ]


async def heard_the_last_word(client: Client) -> None:
    """All has been read from the connection, and nothing by the application."""
    await until(lambda: any(isinstance(event, Trouble) for event in client._inbox.waiting.values()))


@in_loop
async def test_what_waits_is_dropped_when_it_does_not_matter_any_more() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        conversation = await registered(server, client, "left", "declared", "wanted")
        for name in ("left", "declared", "wanted"):
            await conversation.notify(f"contacts/{name}", 5)
        await conversation.say(error=ServerError("internal", "the last word"))
        await heard_the_last_word(client)
        await client.unregister("left")
        await client.register("declared", version=7)
        assert (await next_of(client, Notify)).name == "wanted"


# Acking.


@in_loop
async def test_auto_ack_acks_when_the_next_event_is_asked_for() -> None:
    async with ScriptedServer() as server, contacts(server.url, auto_ack=True) as client:
        conversation = await registered(server, client, "alice")
        await conversation.notify("contacts/alice", 1)
        assert isinstance(await anext(client), Notify)
        await conversation.notify("contacts/alice", 2)
        assert isinstance(await anext(client), Notify)
        assert await acks_of(conversation) == [Ack("contacts/alice", 1, EPOCH)]


class AddressBook(Listener):
    def __init__(self) -> None:
        self.told: list[object] = []

    async def notify(self, event: Notify) -> None:
        self.told.append(event.version)
        if event.version == 13:
            raise LookupError("no such version")

    async def notify_unknown(self, event: NotifyUnknown) -> None:
        self.told.append(None)

    async def registration_status(self, event: RegistrationStatus) -> None:
        self.told.append("registered")

    async def registration_failure(self, event: RegistrationFailure) -> None:
        self.told.append(event.code)

    async def reissue_registrations(self, event: ReissueRegistrations) -> None:
        self.told.append("reissue")

    async def trouble(self, event: Trouble) -> None:
        self.told.append(event.text)


@in_loop
async def test_listener_is_told_everything_and_returning_is_the_ack() -> None:
    book = AddressBook()
    async with ScriptedServer() as server, contacts(server.url) as client:
        await client.register("alice")
        listening = asyncio.create_task(client.run(book))
        conversation = await server.accept()
        await conversation.greet()
        await conversation.confirm()
        await conversation.notify("contacts/alice", 5)
        assert await acks_of(conversation) == [Ack("contacts/alice", 5, EPOCH)]
        await conversation.notify("contacts/alice", None)
        assert await acks_of(conversation) == [Ack("contacts/alice", None, EPOCH)]
        await conversation.say(error=ServerError("internal", "a bug"))
        refused = OperationStatus("contacts/alice", False, 10, "refused")
        await conversation.notify("contacts/alice", 13)
        with pytest.raises(LookupError):
            await listening
        listening = asyncio.create_task(client.run(book))
        await conversation.say(session=7, statuses=[refused])
        await until(lambda: "refused" in book.told)
    await listening
    assert book.told == ["reissue", "registered", 5, None, "a bug", 13, "refused"]


@in_loop
async def test_bare_listener_takes_everything_in_silence() -> None:
    async with ScriptedServer() as server, contacts(server.url) as client:
        await client.register("alice")
        conversation = await server.accept()
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(client.run(Listener()))
            await conversation.greet()
            await conversation.confirm()
            await conversation.notify("contacts/alice", 5)
            assert await acks_of(conversation) == [Ack("contacts/alice", 5, EPOCH)]
            listening.cancel()


# Several addresses.


@in_loop
async def test_a_client_that_loses_one_address_goes_on_to_another() -> None:
    async with ScriptedServer() as one, ScriptedServer() as two:
        nobody = f"http://127.0.0.1:{free_port()}"
        accepting = {asyncio.create_task(server.accept()): server for server in (one, two)}
        async with quick(Client([nobody, one.url, two.url], "contacts")) as client:
            (found,), others = await asyncio.wait(accepting, return_when=asyncio.FIRST_COMPLETED)
            first = found.result()
            await first.greet()
            await until(lambda: client.connected)
            assert not any(task.done() for task in others)
            await first.hang_up()
            (other,) = others
            second = await other  # and not the same again
            await second.greet()
            await until(lambda: client.connected)
