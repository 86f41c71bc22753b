"""Programs that mean harm, each in a process of its own: `python -m tests.serving.attackers KIND
PORT COUNT [CREDENTIAL]`. They say `ready` when they are at it, and go on until their input ends.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

import httpx
from tests.channels import mqtt_side
from tests.serving.herd import UPGRADE

Use = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Attack = Callable[[int, int, str], Coroutine[Any, Any, None]]
_AT_ONCE: Final = 200
_DRIP_S: Final = 0.5


class Sockets:
    """So many connections, each kept up by somebody who comes back when it is closed."""

    def __init__(self, port: int, count: int) -> None:
        self._port = port
        self._count = count
        self._opening = asyncio.Semaphore(_AT_ONCE)
        self._open: set[int] = set()

    async def keep(
        self, use: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._count):
                tasks.create_task(self._one(number, use))

    async def _one(self, number: int, use: Use) -> None:
        while True:
            try:
                async with self._opening:
                    reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            except OSError:
                await asyncio.sleep(0.1)
                continue
            self._arrived(number)
            with suppress(OSError):
                await use(reader, writer)
            writer.transport.abort()
            await asyncio.sleep(0.05)

    def _arrived(self, number: int) -> None:
        if len(self._open) < self._count:
            self._open.add(number)
            if len(self._open) == self._count:
                ready()


def ready() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def _drip(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, every_s: float
) -> None:
    """Byte by byte, until the other side has enough of it."""
    gone = asyncio.ensure_future(reader.read(1))
    try:
        for byte in data:
            writer.write(bytes([byte]))
            await writer.drain()
            done, _ = await asyncio.wait([gone], timeout=every_s)
            if done and not gone.result():
                return
    finally:
        gone.cancel()


async def slow_heads(port: int, count: int, _: str) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X-Header: value\r\n" * 1000
    await Sockets(port, count).keep(lambda r, w: _drip(r, w, head, _DRIP_S))


async def slow_connects(port: int, count: int, _: str) -> None:
    packet = mqtt_side.connect(client="x" * 60_000)
    await Sockets(port, count).keep(lambda r, w: _drip(r, w, packet, _DRIP_S))


async def silent(port: int, count: int, _: str) -> None:
    """Half-open: connected, and never a word."""

    async def wait(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)

    await Sockets(port, count).keep(wait)


async def byte_by_byte(port: int, count: int, _: str) -> None:
    """Over WebSocket, as fast as the kernel sends single bytes: frames in parts of one byte."""
    part = b"\x00\x81" + bytes(4) + b"x"
    parts = b"\x02\x81" + bytes(4) + b"x" + part * 5000

    async def use(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(UPGRADE)
        await reader.readuntil(b"\r\n\r\n")
        await _drip(reader, writer, parts, 0.001)

    await Sockets(port, count).keep(use)


async def greedy(port: int, count: int, credential: str) -> None:
    """A publisher with a key, so many times a second, twenty updates each."""
    updates = [{"app": "contacts", "name": f"greedy/{i}", "version": 1} for i in range(20)]
    headers = {"authorization": f"Bearer {credential}"}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
        ready()
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await client.post("/v1/publish", json=updates, headers=headers)
            due += 1 / count
            await asyncio.sleep(max(0.0, due - loop.time()))


ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack for attack in (slow_heads, slow_connects, silent, byte_by_byte, greedy)
}


async def _main(kind: str, port: str, count: str, credential: str = "") -> None:
    attacking = asyncio.ensure_future(ATTACKS[kind](int(port), int(count), credential))
    told_to_stop = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([attacking, told_to_stop], return_when=asyncio.FIRST_COMPLETED)
    attacking.cancel()
    with suppress(asyncio.CancelledError):
        await attacking


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
