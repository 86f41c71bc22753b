"""One round of the prober: what a user would do, over each channel, and how long it took.

Versions are the time in microseconds, so that rounds of several probers do not disturb each other:
whoever waits for a version is served by any later one.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from roskva.client.client import Client
from roskva.core.effects import Notify, NotifyUnknown
from roskva.model import PROBE_APP, PROBE_SLOW_APP
from roskva.probe.mqtt import MqttListener

_TROUBLE: Final = (OSError, EOFError, httpx.HTTPError, TimeoutError, ValueError, KeyError)


class Target(msgspec.Struct, frozen=True):
    """What is probed."""

    url: str
    mqtt_port: int | None = None
    pipeline: bool = False
    """The way through the pipeline as well."""
    timeout_s: float = 5.0


class Outcome(msgspec.Struct, frozen=True):
    sli: str
    path: str
    """In words: between whom."""
    seconds: float | None
    error: str = ""


async def probe(target: Target) -> list[Outcome]:
    """Every measurement by itself: one that fails does not hide the others."""
    async with httpx.AsyncClient(base_url=target.url, timeout=target.timeout_s) as http:
        round = _Round(target, http)
        checks: list[tuple[str, str, Callable[[], Awaitable[float]]]] = [
            ("register", "client → registrar → client's shard", round.register),
            ("publish", "publisher → feed", round.publish_time),
            ("notify-websocket", "feed → matcher → registrar → WebSocket", round.by_websocket),
            ("notify-events", "feed → matcher → registrar → event stream", round.by_events),
            ("reconnect", "client back → registrar → what it missed", round.reconnect),
        ]
        if target.mqtt_port is not None:
            checks.append(("notify-mqtt", "feed → matcher → registrar → MQTT", round.by_mqtt))
        if target.pipeline:
            checks.append(("notify-pipeline", "feed → pipeline → matcher", round.by_pipeline))
        measured = [_measured(target, *check) for check in checks]
        return list(await asyncio.gather(*measured))


async def _measured(
    target: Target, sli: str, path: str, measure: Callable[[], Awaitable[float]]
) -> Outcome:
    try:
        async with asyncio.timeout(target.timeout_s):
            return Outcome(sli, path, round(await measure(), 6))
    except TimeoutError:
        return Outcome(sli, path, None, f"not within {target.timeout_s:g} s")
    except _TROUBLE as error:
        return Outcome(sli, path, None, str(error) or type(error).__name__)


class _Round:
    def __init__(self, target: Target, http: httpx.AsyncClient) -> None:
        self._target = target
        self._http = http

    async def publish(self, name: str, app: str = PROBE_APP) -> int:
        version = time.time_ns() // 1000
        update = {"app": app, "name": name, "version": version}
        (await self._http.post("/v1/publish", json=update)).raise_for_status()
        return version

    async def publish_time(self) -> float:
        began = time.perf_counter()
        await self.publish("publish")
        return time.perf_counter() - began

    async def register(self) -> float:
        began = time.perf_counter()
        async with self._client(PROBE_APP) as client:
            await client.register("register")
            await _told(client)
            return time.perf_counter() - began

    async def by_websocket(self) -> float:
        return await self._by_client("websocket", PROBE_APP)

    async def by_pipeline(self) -> float:
        return await self._by_client("pipeline", PROBE_SLOW_APP)

    async def _by_client(self, name: str, app: str) -> float:
        async with self._client(app) as client:
            await client.register(name)
            await _told(client)
            began = time.perf_counter()
            await _told(client, await self.publish(name, app))
            return time.perf_counter() - began

    async def reconnect(self) -> float:
        with tempfile.TemporaryDirectory(prefix="roskva-probe-") as directory:
            identity = Path(directory) / "identity"
            async with self._client(PROBE_APP, identity) as client:
                await client.register("reconnect")
                await _told(client)
            version = await self.publish("reconnect")
            began = time.perf_counter()
            async with self._client(PROBE_APP, identity) as client:
                await client.register("reconnect")
                await _told(client, version)
                return time.perf_counter() - began

    async def by_mqtt(self) -> float:
        host, port = urlsplit(self._target.url).hostname or "", self._target.mqtt_port or 0
        async with MqttListener(host, port, f"{PROBE_APP}/mqtt") as listener:
            began = time.perf_counter()
            version = await self.publish("mqtt")
            while await listener.version() < version:
                pass
            return time.perf_counter() - began

    async def by_events(self) -> float:
        params = {"object": f"{PROBE_APP}/events"}
        async with self._http.stream("GET", "/v1/events", params=params) as answer:
            answer.raise_for_status()
            lines = answer.aiter_lines()
            began, version = 0.0, None
            async for line in lines:
                field, _, value = line.partition(": ")
                if field != "data":
                    continue
                if version is None:  # what it stands at: from here on it is told
                    began = time.perf_counter()
                    version = await self.publish("events")
                elif int(json.loads(value)["version"] or 0) >= version:
                    return time.perf_counter() - began
        raise EOFError("the stream ended")

    def _client(self, app: str, identity: Path | None = None) -> Client:
        return Client(self._target.url, app, identity)


async def _told(client: Client, version: int | None = None) -> None:
    """At least this version; or anything of the object, if only that it is unknown."""
    async for event in client:
        if not isinstance(event, Notify | NotifyUnknown):
            continue
        client.ack(event)
        if version is None or (isinstance(event, Notify) and event.version >= version):
            return
    raise EOFError("the connection ended")
