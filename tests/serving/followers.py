"""Clients that look after themselves, each as its channel's users would write it: they reconnect
whatever happens, and remember the last thing they were told about each object."""

import asyncio
import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Any

import httpx
from paho.mqtt import client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from tests.serving.nodes import Node

import roskva


class Record:
    """What one follower was told."""

    def __init__(self, channel: str) -> None:
        self.channel = channel
        self.latest: dict[str, int | None] = {}
        self.wrong: list[str] = []

    def note(self, key: str, version: int | None) -> None:
        """Nothing is lost in these tests, so nothing is unknown, and nothing goes back."""
        before = self.latest.get(key)
        if version is None or (before is not None and version < before):
            self.wrong.append(f"{self.channel} was told {key} {version} after {before}")
        self.latest[key] = version


Follow = Callable[[Node, list[str]], AbstractAsyncContextManager[Record]]


@asynccontextmanager
async def by_library(node: Node, keys: list[str]) -> AsyncIterator[Record]:
    record = Record("library")

    async def read(client: roskva.Client) -> None:
        async for event in client:
            match event:
                case roskva.Notify(object=key, version=version):
                    record.note(key, version)
                case roskva.NotifyUnknown(object=key):
                    record.note(key, None)

    async with roskva.Client(node.url, "test", auto_ack=True) as client:
        for key in keys:
            await client.register(key.partition("/")[2])
        reading = asyncio.create_task(read(client))
        yield record
    await reading


@asynccontextmanager
async def by_mqtt(
    node: Node, keys: list[str], protocol: MQTTProtocolVersion, credential: str | None = None
) -> AsyncIterator[Record]:
    record = Record(protocol.name)
    is_5 = protocol == MQTTProtocolVersion.MQTTv5
    client = paho.Client(
        CallbackAPIVersion.VERSION2,
        client_id=uuid.uuid4().hex,
        clean_session=None if is_5 else False,
        protocol=protocol,
    )

    def on_connect(client: paho.Client, _: object, flags: Any, reason: Any, __: object) -> None:
        if not reason.is_failure and not flags.session_present:
            client.subscribe([(key, 1) for key in keys])

    def on_message(client: paho.Client, _: object, message: paho.MQTTMessage) -> None:
        beside = dict(getattr(message.properties, "UserProperty", []))
        text = beside.get("version") or bytes(message.payload)
        record.note(message.topic, None if text == b"?" else int(text))

    if credential is not None:
        client.username_pw_set(keys[0].partition("/")[0], credential)
    client.on_connect, client.on_message = on_connect, on_message
    client.reconnect_delay_set(1, 1)
    options: dict[str, Any] = {}
    if is_5:
        said = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        said.SessionExpiryInterval = 3600
        options = {"clean_start": False, "properties": said}
    await asyncio.to_thread(client.connect, "127.0.0.1", node.mqtt_port, **options)
    client.loop_start()
    try:
        yield record
    finally:
        client.disconnect()
        await asyncio.to_thread(client.loop_stop)


@asynccontextmanager
async def by_mqtt_3(node: Node, keys: list[str]) -> AsyncIterator[Record]:
    async with by_mqtt(node, keys, MQTTProtocolVersion.MQTTv311) as record:
        yield record


@asynccontextmanager
async def by_mqtt_5(
    node: Node, keys: list[str], credential: str | None = None
) -> AsyncIterator[Record]:
    async with by_mqtt(node, keys, MQTTProtocolVersion.MQTTv5, credential) as record:
        yield record


@asynccontextmanager
async def by_events(
    node: Node, keys: list[str], credential: str | None = None
) -> AsyncIterator[Record]:
    record = Record("events")
    last_id = ""

    async def read(http: httpx.AsyncClient) -> None:
        nonlocal last_id
        headers = {"Last-Event-ID": last_id} if last_id else {}
        if credential is not None:
            headers["authorization"] = f"Bearer {credential}"
        url = f"{node.url}/v1/events"
        async with http.stream("GET", url, params={"object": keys}, headers=headers) as answer:
            async for line in answer.aiter_lines():
                field, _, value = line.partition(": ")
                if field == "id":
                    last_id = value
                elif field == "data":
                    told = json.loads(value)
                    version = told["version"]
                    record.note(told["object"], None if version is None else int(version))

    async def keep_reading() -> None:
        async with httpx.AsyncClient(timeout=httpx.Timeout(5.0, read=None)) as http:
            while True:
                with suppress(httpx.TransportError):
                    await read(http)
                await asyncio.sleep(0.2)

    reading = asyncio.create_task(keep_reading())
    try:
        yield record
    finally:
        reading.cancel()
        await asyncio.wait([reading])


EVERY_WAY: tuple[Follow, ...] = (by_library, by_mqtt_3, by_mqtt_5, by_events)
