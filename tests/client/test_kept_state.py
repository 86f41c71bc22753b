"""Who a client is, kept by the application: in its database, its key store, beside its cache."""

import asyncio
import threading

import pytest
from tests.client.scripted import CLIENT_ID, TOKEN, ScriptedServer, quick
from tests.client.test_client import next_of
from tests.loops import in_loop, until

import roskva
from roskva import blocking
from roskva.client.client import Client
from roskva.core.effects import ReissueRegistrations, Trouble
from roskva.core.identity import Identity, pack_identity
from roskva.errors import BadInput
from roskva.wire.messages import Hello, ServerError

KNOWN = pack_identity(Identity("contacts", CLIENT_ID, TOKEN))


class Kept:
    """What an application keeps for its client."""

    def __init__(self, state: bytes | None = None) -> None:
        self.state = state
        self.written: list[bytes | None] = []
        self.threads: set[int] = set()

    def read(self) -> bytes | None:
        self.threads.add(threading.get_ident())
        return self.state

    def write(self, state: bytes | None) -> None:
        self.threads.add(threading.get_ident())
        self.state = state
        self.written.append(state)


def client_of(server: ScriptedServer, kept: Kept) -> Client:
    return quick(Client(server.url, "contacts", read_state=kept.read, write_state=kept.write))


async def run_once(server: ScriptedServer, kept: Kept) -> Hello:
    async with client_of(server, kept) as client:
        hello = await (await server.accept()).greet()
        await next_of(client, ReissueRegistrations)
    return hello


@in_loop
async def test_is_the_same_client_in_the_next_run() -> None:
    kept = Kept()
    async with ScriptedServer() as server:
        assert (await run_once(server, kept)).app == "contacts"
        assert kept.state == KNOWN
        again = await run_once(server, kept)
        assert (again.app, again.token) == (None, TOKEN)
    assert threading.get_ident() not in kept.threads  # they may wait for a disk


@in_loop
async def test_async_functions_run_on_the_loop() -> None:
    kept = Kept(KNOWN)

    async def read() -> bytes | None:
        await asyncio.sleep(0)
        return kept.read()

    async def write(state: bytes | None) -> None:
        await asyncio.sleep(0)
        kept.write(state)

    async with ScriptedServer() as server:
        client = quick(Client(server.url, "contacts", read_state=read, write_state=write))
        async with client:
            assert (await (await server.accept()).greet(b"next")).token == TOKEN
            await next_of(client, ReissueRegistrations)
    assert kept.state == pack_identity(Identity("contacts", CLIENT_ID, b"next"))
    assert kept.threads == {threading.get_ident()}


@in_loop
async def test_for_threads_too() -> None:
    kept = Kept(KNOWN)

    def application(url: str) -> None:
        with blocking.Client(
            url, "contacts", read_state=kept.read, write_state=kept.write
        ) as client:
            assert client.next_event() == roskva.ReissueRegistrations()

    async with ScriptedServer() as server:
        running = asyncio.create_task(asyncio.to_thread(application, server.url))
        assert (await (await server.accept()).greet(b"next")).token == TOKEN
        await running
    assert kept.state == pack_identity(Identity("contacts", CLIENT_ID, b"next"))


@in_loop
@pytest.mark.parametrize("damaged", [b"", b"rubbish", KNOWN[:-1]])
async def test_state_that_is_damaged_means_a_new_client(damaged: bytes) -> None:
    async with ScriptedServer() as server:
        assert (await run_once(server, Kept(damaged))).app == "contacts"


@in_loop
async def test_state_that_cannot_be_read_is_raised_and_nothing_is_sent() -> None:
    def read() -> bytes | None:
        raise LookupError("no such table")

    client = Client("ws://127.0.0.1:9", "contacts", read_state=read, write_state=Kept().write)
    with pytest.raises(LookupError, match="no such table"):
        await client.__aenter__()


@in_loop
async def test_rejected_state_is_forgotten_before_a_new_one_is_kept() -> None:
    kept = Kept(KNOWN)
    async with ScriptedServer() as server, client_of(server, kept):
        conversation = await server.accept()
        assert (await conversation.hear_hello()).token == TOKEN
        await conversation.say(error=ServerError("token_rejected"))
        await conversation.greet(b"new")
        await until(lambda: kept.state == pack_identity(Identity("contacts", CLIENT_ID, b"new")))
    assert kept.written[0] in (None, kept.state)  # of two that wait only the newest is written


@in_loop
async def test_write_that_fails_is_trouble_and_is_tried_until_it_succeeds() -> None:
    kept, failures = Kept(), iter([True, True, True])

    def write(state: bytes | None) -> None:
        if next(failures, False):
            raise OSError("disk full")
        kept.write(state)

    async with ScriptedServer() as server:
        client = quick(Client(server.url, "contacts", read_state=kept.read, write_state=write))
        async with client:
            await (await server.accept()).greet()
            trouble = await next_of(client, Trouble)
            assert (trouble.code, trouble.text) == (
                "storage_unavailable",
                "write_state: disk full",
            )
            assert client.connected
            await until(lambda: kept.state == KNOWN)


@in_loop
async def test_slow_writes_delay_nothing_and_only_the_newest_follows() -> None:
    kept, free = Kept(), asyncio.Event()

    async def write(state: bytes | None) -> None:
        await free.wait()
        kept.write(state)

    async with ScriptedServer() as server:
        client = quick(Client(server.url, "contacts", read_state=kept.read, write_state=write))
        async with client:
            for token in (b"first", b"second", b"third", b"last"):
                conversation = await server.accept()
                await conversation.greet(token)
                await until(lambda: client.connected)
                if token != b"last":
                    await conversation.hang_up()
                    await until(lambda: not client.connected)
            await client.register("alice")
            assert await conversation.confirm()
            assert kept.written == []
            free.set()
            # Leaving waits for what is being written, and for the newest.
    tokens = [pack_identity(Identity("contacts", CLIENT_ID, t)) for t in (b"first", b"last")]
    assert kept.written == tokens


@in_loop
async def test_write_that_hangs_does_not_keep_the_client_from_leaving(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roskva.client.identity._LAST_WRITE_S", 0.05)
    hanging = threading.Event()
    async with ScriptedServer() as server:
        client = quick(
            Client(
                server.url,
                "contacts",
                read_state=Kept().read,
                write_state=lambda state: hanging.wait() and None,
            )
        )
        async with client:
            await (await server.accept()).greet()
            await next_of(client, ReissueRegistrations)
    hanging.set()


@in_loop
async def test_client_that_crashed_before_the_write_is_the_one_it_was_before() -> None:
    """Nothing of what it was told or acked is in the state: it can only be told again."""
    kept = Kept(KNOWN)

    async def write(state: bytes | None) -> None:
        await asyncio.Event().wait()  # the crash comes first

    async def crash(server: ScriptedServer) -> None:
        client = quick(Client(server.url, "contacts", read_state=kept.read, write_state=write))
        async with client:
            await (await server.accept()).greet(b"newer")
            await next_of(client, ReissueRegistrations)
            raise asyncio.CancelledError

    async with ScriptedServer() as server:
        with pytest.raises(asyncio.CancelledError):
            await crash(server)
        assert kept.state == KNOWN
        again = await run_once(server, kept)
        assert again.token == TOKEN


def test_state_is_read_and_written_or_neither_and_never_beside_a_file() -> None:
    kept = Kept()
    with pytest.raises(BadInput, match="read_state and write_state"):
        Client("ws://localhost:7600", "contacts", read_state=kept.read)
    with pytest.raises(BadInput, match="read_state and write_state"):
        Client(
            "ws://localhost:7600",
            "contacts",
            identity="a-file",
            read_state=kept.read,
            write_state=kept.write,
        )
