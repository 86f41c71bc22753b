"""Roskva over datagrams, on a network that loses every fifth and delays others.

    PYTHONPATH=examples ROSKVA_CHANNEL=udp_channel:serve roskva serve
    python examples/udp_channel.py

Each datagram is one message. Roskva takes it if messages are lost, come twice, or overtake each
other, for each of them says what is, and not what to add to what came before. What it does not do
is notice soon that a client hears nothing any more: there is no connection that could break. So
whoever hears nothing for `SILENCE_S` counts as cut off. The client says hello again, as the one it
was, and is told what it missed. On a real network that would rather be a minute.
"""

import argparse
import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

import msgspec

import roskva

APP = "ticker"
PORT = int(os.environ.get("UDP_CHANNEL_PORT", "7701"))
SILENCE_S = 1.0
MAX_CLIENTS = 10_000
MAX_WAITING = 100
LOST, DELAYED = 0.2, 0.3

Address = tuple[str, int]


class UdpChannel:
    """One client and one node, on one side of the network."""

    def __init__(self, send: Callable[[bytes], None], silence_s: float | None) -> None:
        self._send = send
        self._silence_s = silence_s
        self._arrived: asyncio.Queue[bytes] = asyncio.Queue(MAX_WAITING)

    async def send(self, message: bytes) -> None:
        if random.random() < LOST:
            return
        delay_s = random.uniform(0, 0.2) if random.random() < DELAYED else 0.0
        asyncio.get_running_loop().call_later(delay_s, self._send, message)

    async def receive(self) -> bytes | None:
        try:
            async with asyncio.timeout(self._silence_s):
                return await self._arrived.get()
        except TimeoutError:
            return None

    def arrived(self, message: bytes) -> None:
        if not self._arrived.full():  # else it is lost, like others
            self._arrived.put_nowait(message)


class Server(asyncio.DatagramProtocol):
    def __init__(self, attach: roskva.Attach, tasks: asyncio.TaskGroup) -> None:
        self._attach = attach
        self._tasks = tasks
        self._clients: dict[Address, UdpChannel] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: Address) -> None:
        channel = self._clients.get(address)
        if channel is None:
            if len(self._clients) >= MAX_CLIENTS:
                return
            channel = UdpChannel(lambda message: self._transport.sendto(message, address), None)
            self._clients[address] = channel
            self._tasks.create_task(self._serve(channel, address))
        channel.arrived(data)

    async def _serve(self, channel: UdpChannel, address: Address) -> None:
        """Until the node has not heard from this client for too long."""
        try:
            await self._attach(channel)
        finally:
            del self._clients[address]


async def serve(attach: roskva.Attach) -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as tasks:
        # reuse_port: with --registrars several processes listen here, each to its clients.
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Server(attach, tasks), ("127.0.0.1", PORT), reuse_port=True
        )
        try:
            await asyncio.Event().wait()
        finally:
            transport.close()


class _Socket(asyncio.DatagramProtocol):
    channel: UdpChannel

    def datagram_received(self, data: bytes, address: Address) -> None:
        self.channel.arrived(data)


@asynccontextmanager
async def dial() -> AsyncIterator[roskva.Channel]:
    """A socket of its own each time, so that nothing late from an earlier one arrives here."""
    loop = asyncio.get_running_loop()
    transport, socket = await loop.create_datagram_endpoint(
        _Socket, remote_addr=("127.0.0.1", PORT)
    )
    socket.channel = UdpChannel(lambda message: transport.sendto(message), SILENCE_S)
    try:
        yield socket.channel
    finally:
        transport.close()


async def main(url: str) -> None:
    first = time.time_ns() // 1000  # versions rise, also from one run to the next
    last = first + 100
    done = asyncio.Event()
    client = roskva.Client(dial, app=APP)
    # What is not answered was lost, and is said again; with a connection that may take 10 s.
    client.config = msgspec.structs.replace(client.config, answer_timeout=0.5, backoff_cap=1.0)
    async with roskva.Publisher(url, app=APP) as publisher, client:

        @client.on("ROSK", version=first)
        async def price(event: roskva.Notify | roskva.NotifyUnknown) -> None:
            if isinstance(event, roskva.Notify) and event.version == last:
                print("told of the last of 100 changes, whatever was lost on the way")
                done.set()

        for version in range(first + 1, last + 1):
            await publisher.publish("ROSK", version)
        await done.wait()


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="Roskva over datagrams that get lost.")
    arguments.add_argument("--url", default="http://localhost:7600", help="of a Roskva node")
    asyncio.run(main(arguments.parse_args().url))
