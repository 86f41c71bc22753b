"""Roskva over TCP connections of your own, each message behind four bytes with its length.

    PYTHONPATH=examples ROSKVA_CHANNEL=tcp_channel:serve roskva serve
    python examples/tcp_channel.py

Applications that already keep a connection to each of their clients need no second one for Roskva.
Here the node runs `serve`, and the client dials by `dial`; both hand Roskva a `TcpChannel`, which
has two methods. Everything else is as with any other client.
"""

import argparse
import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import roskva

APP = "chat"
PORT = int(os.environ.get("TCP_CHANNEL_PORT", "7700"))
MAX_BYTES = 65536


class TcpChannel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, message: bytes) -> None:
        self.writer.write(len(message).to_bytes(4) + message)
        await self.writer.drain()

    async def receive(self) -> bytes | None:
        try:
            size = int.from_bytes(await self.reader.readexactly(4))
            if size > MAX_BYTES:
                raise ConnectionError(f"a message of {size} bytes")
            return await self.reader.readexactly(size)
        except asyncio.IncompleteReadError:
            return None  # the other side has hung up

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


async def serve(attach: roskva.Attach) -> None:
    """In each process of the node that serves clients, for as long as it does."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        channel = TcpChannel(reader, writer)
        try:
            await attach(channel)
        finally:
            await channel.close()

    # reuse_port: with --registrars several processes listen here.
    server = await asyncio.start_server(connected, "127.0.0.1", PORT, reuse_port=True)
    async with server:
        await server.serve_forever()


@asynccontextmanager
async def dial() -> AsyncIterator[roskva.Channel]:
    """Called for each connection of the client; what follows `yield` is its end."""
    channel = TcpChannel(*await asyncio.open_connection("127.0.0.1", PORT))
    try:
        yield channel
    finally:
        await channel.close()


async def main(url: str) -> None:
    told = asyncio.Event()
    async with (
        roskva.Publisher(url, app=APP) as publisher,
        roskva.Client(dial, app=APP) as client,
    ):

        @client.on("lobby")
        async def lobby(event: roskva.Notify | roskva.NotifyUnknown) -> None:
            if isinstance(event, roskva.Notify):
                print(f"told over our own TCP: {event.name} has changed")
                told.set()

        await publisher.publish("lobby", time.time_ns() // 1000)
        await told.wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Roskva over a TCP connection of your own.")
    arguments.add_argument("--url", default="http://localhost:7600", help="of a Roskva node")
    asyncio.run(main(arguments.parse_args().url))
