"""Strangers at the doors of a node, in a process of their own: `python -m tests.security.attackers
KIND SCHEME HTTP_PORT MQTT_PORT COUNT`. They begin and rest with each line of their input in turn,
say `ready` when they are at it and `resting` when they have gone, and end with their input. If one
needs a credential, it is in the environment.

They are as nice as can be: who attacks from elsewhere takes no processor time of the node's
machine.
"""

import asyncio
import itertools
import json
import os
import random
import socket
import ssl
import struct
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, cast

from roskva.wire.mqtt.fields import varint

Use = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_BODY_BYTES: Final = 4 << 20
_AT_ONCE: Final = 100
_OBJECTS_OF_A_STREAM: Final = 64
_UNTIL_ALL_CAME_S: Final = 5.0
_UNTIL_AT_IT_S: Final = 0.5
_NICE: Final = 19
ADDRESS: Final = "127.0.0.2"
"""Theirs, and nobody else's."""


async def withhold_a_byte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """All of a large body but its end, without a credential."""
    head = "POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {_BODY_BYTES}\r\n\r\n".encode())
    writer.write(b" " * (_BODY_BYTES - 1))
    while await reader.read(65536):
        pass


async def reset_while_answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Many requests at once, and gone while they are answered."""
    writer.write(b"GET /console/app.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 30)
    await reader.read(2000)
    reset(writer)


async def speak_garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"GET " + os.urandom(200) + b"\r\n\r\n")
    await reader.read(2000)
    reset(writer)


async def watch_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As many objects as a stream may have, all of them by one principal."""
    objects = "&".join(f"object=contacts/{number}" for number in range(_OBJECTS_OF_A_STREAM))
    head = f"GET /v1/events?{objects} HTTP/1.1\r\nHost: localhost\r\n"
    writer.write(f"{head}Authorization: Bearer {os.environ['CREDENTIAL']}\r\n\r\n".encode())
    if not (await reader.readline()).startswith(b"HTTP/1.1 200"):
        await asyncio.sleep(10.0)  # how fast one may ask is another attack
    while await reader.read(65536):
        pass


async def connect_with_much(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """An MQTT packet as large as may be, of user properties as small as may be."""
    properties = b"\x26\0\1a\0\1b" * 9000
    terms = b"\0\4MQTT\5\2\0\x3c" + varint(len(properties)) + properties + b"\0\0"
    for _ in range(100):
        writer.write(b"\x10" + varint(len(terms)) + terms)
        await writer.drain()
    await reader.read(100)


async def flood_with_updates(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As much as the node takes, without a credential."""
    for version in itertools.count():
        body = json.dumps([_update(version, number) for number in range(1000)]).encode()
        head = "POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        if not await reader.read(65536):
            return


def _update(version: int, number: int) -> dict[str, str]:
    name = f"{os.getpid()}-{version}-{number}"
    return {"app": "flood", "name": name, "version": "1", "text": "x" * 1000}


async def never_read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """More answers than any buffer holds."""
    cast(asyncio.Transport, writer.transport).pause_reading()
    asked = b"GET /schema/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"
    writer.write(asked * 30)
    while not writer.is_closing():
        await asyncio.wait([asyncio.ensure_future(writer.wait_closed())], timeout=1.0)
        writer.write(asked)


async def hold_open(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A stream, a connection that has said all it will, or one that says nothing."""
    path = random.choice(["/v1/events?object=contacts/held", "/healthz", ""])
    if path:
        head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\n"
        writer.write(f"{head}Authorization: Bearer {os.environ['CREDENTIAL']}\r\n\r\n".encode())
    while await reader.read(65536):
        pass
    await asyncio.sleep(10.0)  # how fast one may come is another attack


OVER_MQTT: Final = (connect_with_much,)
ATTACKS: Final[dict[str, Use]] = {
    attack.__name__: attack
    for attack in (
        *(withhold_a_byte, reset_while_answered, speak_garbage, watch_much),
        *(flood_with_updates, never_read, hold_open),
        *OVER_MQTT,
    )
}


async def _keep(
    use: Use,
    tls: ssl.SSLContext | None,
    port: int,
    number: asyncio.Semaphore,
    came: asyncio.Event,
) -> None:
    """Whoever is sent away comes back."""
    while True:
        with suppress(OSError, TimeoutError):
            async with number:
                conn = socket.socket()
                conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                conn.setblocking(False)
                conn.bind((ADDRESS, 0))
                await asyncio.get_running_loop().sock_connect(conn, ("127.0.0.1", port))
                reader, writer = await asyncio.open_connection(
                    sock=conn, ssl=tls, server_hostname=None if tls is None else "localhost"
                )
            came.set()
            try:
                await use(reader, writer)
            finally:
                writer.transport.abort()
        await asyncio.sleep(0.05)


def reset(writer: asyncio.StreamWriter) -> None:
    """What is unread is not acknowledged any more, and never will be."""
    conn: socket.socket = writer.get_extra_info("socket")
    conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _believing_all() -> ssl.SSLContext:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


async def _main(kind: str, scheme: str, http_port: str, mqtt_port: str, count: str) -> None:
    os.nice(_NICE)
    use = ATTACKS[kind]
    tls = _believing_all() if scheme == "https" else None  # one: each is a megabyte
    port, number = int(mqtt_port if use in OVER_MQTT else http_port), asyncio.Semaphore(_AT_ONCE)
    while await asyncio.to_thread(sys.stdin.readline):
        came = [asyncio.Event() for _ in range(int(count))]
        attacking = [asyncio.ensure_future(_keep(use, tls, port, number, at)) for at in came]
        await asyncio.sleep(_UNTIL_AT_IT_S)
        with suppress(TimeoutError):  # to come all at once is another attack
            async with asyncio.timeout(_UNTIL_ALL_CAME_S):
                await asyncio.gather(*(at.wait() for at in came))
        _say("ready")
        await asyncio.to_thread(sys.stdin.readline)
        gave_up = any(attack.done() for attack in attacking)
        for attack in attacking:
            attack.cancel()
        await asyncio.gather(*attacking, return_exceptions=True)
        _say("gave up" if gave_up else "resting")


def _say(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
