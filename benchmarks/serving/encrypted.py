"""What TLS costs a node on fan-out: the same clients, with and without it.

The generator has no TLS, so these clients are Python: a few hundred, which acknowledge every
packet. The next update leaves when everybody has the last one. The rate is that of the clients; the
figure is the processor time of the server for each delivery, acks included.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, cast

import msgspec
import uvloop

from benchmarks.serving.servers import UNLIMITED, Server
from roskva.cli.certs import make

SUBSCRIBERS: Final = 300
_TOPIC: Final = b"bench/object"
CONNECT: Final = b"\x10\x0c\x00\x04MQTT\x04\x02\x00\x00\x00\x00"
_CONNACK, _PUBLISH, _SUBACK = 0x20, 0x30, 0x90


class Cost(msgspec.Struct, frozen=True):
    deliveries: int
    cpu_us: float
    per_s: float


def certificates(directory: Path) -> list[str]:
    """The flags of a node with TLS."""
    make(directory, ["127.0.0.1"], [], 1)
    settings = directory / "roskva.toml"
    settings.write_text(
        f'[tls]\ncertificate = "{directory}/server.crt"\nkey = "{directory}/server.key"\n'
        f"{UNLIMITED}"
    )
    return ["--config", str(settings)]


def measure(
    server: Server,
    ca: Path | None,
    seconds: float,
    cores: set[int],
    connect: bytes = CONNECT,
) -> Cost:
    context = None if ca is None else ssl.create_default_context(cafile=ca)
    with _on(cores), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_measure(server, context, seconds, connect))


@contextmanager
def _on(cores: set[int]) -> Iterator[None]:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


async def _measure(
    server: Server, context: ssl.SSLContext | None, seconds: float, connect: bytes
) -> Cost:
    loop = asyncio.get_running_loop()
    round_over = asyncio.Event()
    left = 0

    def took() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            round_over.set()

    subscribers = [_Subscriber(connect, took) for _ in range(SUBSCRIBERS)]
    for subscriber in subscribers:
        where = ("127.0.0.1", server.mqtt_port)
        await loop.create_connection(lambda each=subscriber: each, *where, ssl=context)
        await subscriber.subscribed.wait()

    async def publish(version: int) -> None:
        nonlocal left
        left = SUBSCRIBERS
        round_over.clear()
        subscribers[0].publish(b"%d" % version)
        await asyncio.wait_for(round_over.wait(), 30)

    version = time.time_ns()
    for _ in range(20):
        version += 1
        await publish(version)
    began, cpu_s, rounds = time.monotonic(), server.cpu_s(), 0
    while time.monotonic() - began < seconds:
        version += 1
        await publish(version)
        rounds += 1
    took_s, deliveries = time.monotonic() - began, rounds * SUBSCRIBERS
    cost = Cost(deliveries, (server.cpu_s() - cpu_s) / deliveries * 1e6, deliveries / took_s)
    for subscriber in subscribers:
        subscriber.transport.abort()
    return cost


class _Subscriber(asyncio.Protocol):
    def __init__(self, connect: bytes, took: Callable[[], None]) -> None:
        self.subscribed = asyncio.Event()
        self._connect = connect
        self._took = took
        self._unread = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(self._connect)

    def data_received(self, data: bytes) -> None:
        data = self._unread + data
        while len(data) > 1 and len(data) >= 2 + data[1]:  # these packets are short
            kind, packet, data = data[0] & 0xF0, data[2 : 2 + data[1]], data[2 + data[1] :]
            if kind == _CONNACK:
                topic = len(_TOPIC).to_bytes(2) + _TOPIC
                self.transport.write(b"\x82%c\x00\x01%b\x01" % (3 + len(topic), topic))
            elif kind == _SUBACK:
                self.subscribed.set()
            elif kind == _PUBLISH:
                after = 2 + len(_TOPIC)
                self.transport.write(b"\x40\x02" + packet[after : after + 2])
                self._took()
        self._unread = data

    def publish(self, payload: bytes) -> None:
        body = len(_TOPIC).to_bytes(2) + _TOPIC + b"\x00\x07" + payload
        self.transport.write(b"\x32%c%b" % (len(body), body))
