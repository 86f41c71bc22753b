"""Connections that do not work as they should."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import msgspec
from tests.client.scripted import ScriptedServer
from tests.client.test_client import contacts, next_of
from tests.loops import in_loop, until

from roskva.client.client import Client
from roskva.client.link import Happening, ServerLink, websocket
from roskva.core.effects import Connected, Disconnected, Trouble
from roskva.wire.messages import PROTOCOL, ClientMessage, Sync


@asynccontextmanager
async def mute_server() -> AsyncIterator[str]:
    """Accepts connections, and that is all."""
    writers: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for writer in writers:
            writer.close()


@in_loop
async def test_says_that_there_is_no_answer() -> None:
    async with mute_server() as url:
        client = contacts(url)
        client.config = msgspec.structs.replace(client.config, answer_timeout=0.05)
        async with client:
            trouble = await next_of(client, Trouble)
        assert trouble.code == "unavailable"
        assert trouble.text.endswith("no answer")


@in_loop
async def test_client_is_left_at_once_while_it_is_still_connecting() -> None:
    async with mute_server() as url:
        client = Client(url, "contacts")
        client.config = msgspec.structs.replace(client.config, answer_timeout=3600.0)
        async with client:
            await until(lambda: client._link is not None)


def link_to(url: str, happened: list[Happening]) -> ServerLink:
    dial = partial(websocket, url, None, 30.0)
    return ServerLink(url, dial, lambda _, what: happened.append(what))


@in_loop
async def test_link_that_was_hung_up_before_it_began_does_nothing() -> None:
    happened: list[Happening] = []
    link = link_to("ws://127.0.0.1:9", happened)
    link.hang_up()
    await link.run()
    assert happened == [Disconnected()]


@in_loop
async def test_server_that_takes_nothing_is_given_up() -> None:
    happened: list[Happening] = []
    large = ClientMessage(PROTOCOL, 7, 1, syncs=[Sync(b"", [f"app/{'x' * 200}"] * 300)])
    async with ScriptedServer() as server:
        link = link_to(f"ws://127.0.0.1:{server.port}", happened)
        running = asyncio.create_task(link.run())
        conversation = await server.accept()
        conversation.socket.transport.pause_reading()
        while not running.done():
            link.send(large)
            await asyncio.sleep(0)
        conversation.socket.transport.abort()
    assert happened == [Connected(), Disconnected()]
