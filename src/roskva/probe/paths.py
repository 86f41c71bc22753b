"""The paths that are probed: each a client as users have them, over one channel.

A path is entered when its client listens, and has been told what its objects stand at. It then
yields what is to be awaited once something was published: the seconds it took until the client was
told. Clients keep their identities from round to round, so that they leave no rows behind, and give
up their registrations, so that nobody is away who has not heard.
"""

import asyncio
import json
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from roskva.client.client import Client
from roskva.core.effects import Notify, NotifyUnknown, RegistrationStatus, Trouble
from roskva.errors import Unauthorised
from roskva.model import PROBE_APP
from roskva.server.access.keys import credential
from roskva.wire.admin import PipelineNow
from roskva.wire.mqtt.fields import binary, string, varint

_KEEP_ALIVE_S: Final = 60
_CONNACK, _PUBLISH, _SUBACK = 2, 3, 9
_CLEAN, _WITH_CREDENTIAL = 0x02, 0xC0
_REFUSED: Final = 0x80

_SILENT_S: Final = 3.0
"""It says every second how it is."""


# As much of an MQTT 3.1.1 client as it takes to be told of one object.


class MqttListener:
    """It leaves no row behind."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def subscribe(self, app: str, name: str, credential: str | None) -> None:
        flags, shown = _CLEAN, b""
        if credential is not None:
            flags |= _WITH_CREDENTIAL
            shown = string(app) + binary(credential.encode())
        head = string("MQTT") + bytes((4, flags)) + _KEEP_ALIVE_S.to_bytes(2)
        self._send(0x10, head + string(f"roskva-probe-{secrets.token_hex(4)}") + shown)
        _, body = await self._await(_CONNACK)
        if body[1]:
            raise Unauthorised(f"MQTT refuses to connect ({body[1]})")
        self._send(0x82, b"\x00\x01" + string(f"{app}/{name}") + b"\x01")
        _, body = await self._await(_SUBACK)
        if body[2] == _REFUSED:
            raise Unauthorised("MQTT refuses to subscribe")

    async def version(self) -> int | None:
        """The next that it is told; None: unknown."""
        flags, body = await self._await(_PUBLISH)
        topic = 2 + int.from_bytes(body[:2])
        payload = body[topic:]
        if flags & 0x06:
            self._send(0x40, payload[:2])
            payload = payload[2:]
        return None if payload == b"?" else int(payload)

    def _send(self, first: int, body: bytes) -> None:
        self._writer.write(bytes((first,)) + varint(len(body)) + body)

    async def _await(self, wanted: int) -> tuple[int, bytes]:
        while True:
            kind, flags, body = await self._packet()
            if kind == wanted:
                return flags, body

    async def _packet(self) -> tuple[int, int, bytes]:
        first = (await self._reader.readexactly(1))[0]
        length, shift = 0, 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return first >> 4, first & 15, await self._reader.readexactly(length)


# The paths.


class Target(msgspec.Struct, frozen=True):
    """What is probed, and how to get in."""

    url: str
    identities: Path
    """A directory of the prober's own."""
    objects: Mapping[str, str]
    """Names of objects, each with the process that owns its shard: one for each such process."""
    mqtt_port: int | None = None
    pipeline: bool = False
    """The way through the pipeline as well."""
    pipeline_trouble: str = ""
    """What is known to be wrong with it."""
    key: str | None = None
    """Of a node with keys."""
    name: str = "node"
    """Of this prober: they do not share limits."""
    context: ssl.SSLContext | None = None

    @property
    def first(self) -> str:
        return next(iter(self.objects))

    def credential(self, app: str, who: str) -> str | None:
        return None if self.key is None else credential(app, f"{self.name}-{who}", self.key)

    def headers(self, app: str, who: str) -> dict[str, str]:
        shown = self.credential(app, who)
        return {} if shown is None else {"authorization": f"Bearer {shown}"}


class ProbeUpdate(msgspec.Struct):
    version: int
    began: float
    acknowledged: asyncio.Event


class Progress(msgspec.Struct):
    """How far a client got, for the words if it gets no further."""

    missing: set[str] = msgspec.field(default_factory=set)
    """The names that it was not told of."""
    wanted: int = 0
    """How many it waits for."""
    trouble: str = ""


Told = Callable[[ProbeUpdate], Awaitable[float]]
Listener = Callable[[Progress], AbstractAsyncContextManager[Told]]


class Paths:
    def __init__(self, target: Target, http: httpx.AsyncClient) -> None:
        self._target = target
        self._http = http

    async def register(self, progress: Progress, within_s: float) -> float:
        began, name = time.perf_counter(), self._target.first
        async with asyncio.timeout(within_s), self._client("register", PROBE_APP) as client:
            await client.register(name, version=0)
            async for event in client:
                if isinstance(event, Trouble):
                    progress.trouble = event.text
                elif isinstance(event, RegistrationStatus) and event.registered:
                    break
            took = time.perf_counter() - began
            await client.unregister(name)
        return took

    @asynccontextmanager
    async def client(
        self, identity: str, app: str, names: set[str], progress: Progress
    ) -> AsyncIterator[Told]:
        async with self._client(identity, app) as client:
            for name in names:
                await client.register(name, version=0)
            await _until_told(client, names, progress)

            async def told(published: ProbeUpdate) -> float:
                await _until_told(client, names, progress, published.version)
                return time.perf_counter() - published.began

            yield told
            await _give_up(client, names)

    @asynccontextmanager
    async def reconnect(self, progress: Progress) -> AsyncIterator[Told]:
        names = {self._target.first}
        async with self._client("reconnect", PROBE_APP) as client:
            await client.register(self._target.first, version=0)
            held = await _until_told(client, names, progress)

        async def told(published: ProbeUpdate) -> float:
            await published.acknowledged.wait()
            began = time.perf_counter()
            async with self._client("reconnect", PROBE_APP) as client:
                await client.register(self._target.first, version=held)
                await _until_told(client, names, progress, published.version)
                took = time.perf_counter() - began
                await _give_up(client, names)
                return took

        yield told

    @asynccontextmanager
    async def mqtt(self, progress: Progress) -> AsyncIterator[Told]:
        target, context = self._target, self._target.context
        host = urlsplit(target.url).hostname or ""
        reader, writer = await asyncio.open_connection(
            host, target.mqtt_port, ssl=context, server_hostname=host if context else None
        )
        try:
            listener = MqttListener(reader, writer)
            credential = target.credential(PROBE_APP, "mqtt")
            await listener.subscribe(PROBE_APP, target.first, credential)
            await listener.version()

            async def told(published: ProbeUpdate) -> float:
                while (await listener.version() or 0) < published.version:
                    pass
                return time.perf_counter() - published.began

            yield told
        finally:
            writer.close()

    @asynccontextmanager
    async def events(self, progress: Progress) -> AsyncIterator[Told]:
        async with self._http.stream(
            "GET",
            "/v1/events",
            params={"object": f"{PROBE_APP}/{self._target.first}"},
            headers=self._target.headers(PROBE_APP, "events"),
        ) as answer:
            answer.raise_for_status()
            versions = _versions(answer)
            await anext(versions)

            async def told(published: ProbeUpdate) -> float:
                async for version in versions:
                    if version >= published.version:
                        return time.perf_counter() - published.began
                raise EOFError("the stream ended")

            yield told

    def _client(self, identity: str, app: str) -> Client:
        target = self._target
        return Client(
            target.url,
            app,
            target.identities / identity,
            application="roskva-probe",
            tls=target.context,
            credential=target.credential(app, identity),
        )


async def _give_up(client: Client, names: set[str]) -> None:
    """After the acks, which wait a moment for others."""
    await asyncio.sleep(2 * client.config.batch_delay)
    for name in names:
        await client.unregister(name)


async def _versions(answer: httpx.Response) -> AsyncIterator[int]:
    async for line in answer.aiter_lines():
        field, _, value = line.partition(": ")
        if field == "data":
            yield int(json.loads(value)["version"] or 0)


async def _until_told(
    client: Client, names: set[str], progress: Progress, version: int | None = None
) -> int:
    """Of all of them at least this version; or anything, if only that it is unknown. Returns the
    highest."""
    progress.missing, progress.wanted, highest = set(names), len(names), 0
    async for event in client:
        match event:
            case Trouble(text=text):
                progress.trouble = text
            case Notify(name=name) | NotifyUnknown(name=name):
                client.ack(event)
                told = event.version if isinstance(event, Notify) else 0
                highest = max(highest, told)
                if version is None or told >= version:
                    progress.missing.discard(name)
        if not progress.missing:
            return highest
    raise EOFError("the connection ended")


def what_is_wrong(report: PipelineNow | None, now: float) -> str:
    """Nothing, if it is at work. `now` is by the clock of the node."""
    if report is None or now - report.written_at > _SILENT_S:
        return "the pipeline does not answer"
    if report.state != "running":
        return f"the pipeline is {report.state}"
    bridge = next((part for part in report.parts if part.name == "bridge"), None)
    if bridge is None:
        return "there is no bridge"
    error = f": {bridge.last_error}" if bridge.last_error else ""
    return "" if bridge.state == "running" else f"the bridge is {bridge.state}{error}"
