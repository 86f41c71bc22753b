"""A mixed load, as a night brings it: publishers with keys, clients on every channel, some of them
away for a while, readers that do not read, an object that never rests, and somebody who only asks.

It goes on whatever happens to the node, and knows at the end what each client has to stand at.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
from tests.serving.followers import Record, by_events, by_mqtt_5
from tests.serving.herd import Herd
from tests.serving.keyed import Issuer, KeyedNode, publish_key
from tests.serving.slow_readers import SlowWebSocket

import roskva

OWN: Final = [f"own/object-{i}" for i in range(20)]
HOT: Final = "own/hot"
ASSIGNED: Final = [f"assigned/object-{i}" for i in range(10)]
OBJECTS: Final = [*OWN, HOT, *ASSIGNED]
BULK: Final = [f"own/bulk-{i}" for i in range(2000)]
"""Nobody wants to hear of these."""
IN_A_HERD: Final = 20
BY_EVENTS: Final = 100
BY_MQTT: Final = 30
CLIENTS: Final = IN_A_HERD * len(OBJECTS) + BY_EVENTS + BY_MQTT
SLOW: Final = 5
_PRINCIPALS: Final = 50
_HOT_S: Final = 0.05
_ROUND_S: Final = 0.1
_BULK_S: Final = 0.25
_READ_S: Final = 0.2
_PAYLOAD: Final = 1000 * b"."
_TIMEOUT: Final = httpx.Timeout(5.0)


class Settings:
    """Of the node, in two forms, for it to be told of the other one."""

    def __init__(self, scratch: Path) -> None:
        self.issuer = Issuer(scratch / "jwks.json")
        self.keys = {"own": publish_key(), "assigned": publish_key()}
        self.others = [publish_key(), publish_key()]

    def text(self, form: int) -> str:
        """A key more, which is taken over at once, and a limit of the feed, which is not."""
        tables = [
            # What is not acked is sent again: soon, so that the quiet at the end is long enough.
            f"[sessions]\nresend_seconds = 5\n[feed]\nretention_hours = {24 + form}\n"
        ]
        for app, versions in (("own", "app"), ("assigned", "assigned")):
            keys = [self.keys[app][1]]
            if app == "own":
                keys.append(self.others[form % 2][1])
            listed = ", ".join(f'"{key}"' for key in keys)
            tables.append(
                f'[apps.{app}]\nversions = "{versions}"\njwks = "{self.issuer.jwks}"\n'
                f'register = ["**"]\npublish_keys = [{listed}]\n'
            )
        return "\n".join(tables)

    def jwt(self, key: str, number: int) -> str:
        app = key.partition("/")[0]
        return self.issuer.jwt(f"user-{number % _PRINCIPALS}", app)


class Load:
    def __init__(self, node: KeyedNode, settings: Settings, dice: random.Random) -> None:
        self.node = node
        self.acked: dict[str, int] = {}
        self.published = self.unanswered = self.read = 0
        self.wrong: list[str] = []
        self._settings = settings
        self._dice = dice
        self._stop = asyncio.Event()
        self.herds: list[Herd] = []
        self.records: list[Record] = []
        self.slow: list[SlowWebSocket] = []

    @asynccontextmanager
    async def clients(self) -> AsyncIterator[None]:
        """All of them, each with what it has registered for."""
        jwt = self._settings.jwt
        async with AsyncExitStack() as stack:
            for key in OBJECTS:
                shown = [jwt(key, i) for i in range(IN_A_HERD)]
                herd = Herd(self.node.port, key, IN_A_HERD, shown)
                self.herds.append(await stack.enter_async_context(herd))
            for follow, count in ((by_events, BY_EVENTS), (by_mqtt_5, BY_MQTT)):
                for i in range(count):
                    key = OBJECTS[i % len(OBJECTS)]
                    following = follow(self.node, [key], jwt(key, i))
                    self.records.append(await stack.enter_async_context(following))
            stack.callback(self._end_slow_readers)
            yield

    async def read_slowly(self) -> None:
        """Some more clients, which read nothing once they are registered; in place of those that a
        restart has cut off."""
        self._end_slow_readers()
        for i in range(SLOW):
            self.slow.append(SlowWebSocket(self.node, HOT, self._settings.jwt(HOT, i)))
            await self.slow[-1].register()

    def _end_slow_readers(self) -> None:
        while self.slow:
            self.slow.pop().close()

    # Who publishes, and who asks.

    @asynccontextmanager
    async def publishing(self) -> AsyncIterator[None]:
        """Until the end of this every publish has been answered."""
        self._stop.clear()
        async with AsyncExitStack() as stack:
            own, hot, assigned = [
                await stack.enter_async_context(
                    roskva.Publisher(self.node.url, app, key=self._settings.keys[app][0])
                )
                for app in ("own", "own", "assigned")
            ]
            http = await stack.enter_async_context(
                httpx.AsyncClient(base_url=self.node.url, timeout=_TIMEOUT)
            )
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._every(_ROUND_S, lambda: self._publish_some(own, OWN, 5)))
            tasks.create_task(self._every(_HOT_S, lambda: self._publish(hot, HOT)))
            tasks.create_task(self._every(_ROUND_S, lambda: self._publish_some(assigned, ASSIGNED)))
            tasks.create_task(self._every(_BULK_S, lambda: self._publish_bulk(http)))
            tasks.create_task(self._every(_READ_S, lambda: self._read(http)))
            try:
                yield
            finally:
                self._stop.set()

    async def publish_all(self) -> None:
        """Once, so that nothing is unknown; and at the end, so that nobody stands there by luck."""
        for app in ("own", "assigned"):
            async with roskva.Publisher(
                self.node.url, app, key=self._settings.keys[app][0]
            ) as publisher:
                keys = [key for key in OBJECTS if key.startswith(f"{app}/")]
                await self._publish_some(publisher, keys, len(keys))

    async def _every(self, seconds: float, do: Callable[[], Any]) -> None:
        while not self._stop.is_set():
            await do()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stop.wait(), seconds)

    async def _publish_some(
        self, publisher: roskva.Publisher, keys: Sequence[str], count: int = 1
    ) -> None:
        async with asyncio.TaskGroup() as tasks:
            for key in self._dice.sample(keys, count):
                tasks.create_task(self._publish(publisher, key))

    async def _publish(self, publisher: roskva.Publisher, key: str) -> None:
        app, _, name = key.partition("/")
        version = None if app == "assigned" else self.acked.get(key, 0) + 1
        payload = _PAYLOAD if key == HOT else None
        self.acked[key] = await publisher.publish(name, version, payload=payload)
        self.published += 1

    async def _publish_bulk(self, http: httpx.AsyncClient) -> None:
        keys = self._dice.sample(BULK, 50)
        updates = [
            {"app": "own", "name": key.partition("/")[2], "version": self.acked.get(key, 0) + 1}
            for key in keys
        ]
        try:
            answer = await http.post("/v1/publish", json=updates, headers=self._shown("own"))
        except httpx.TransportError:
            self.unanswered += 1
            return
        if answer.is_success:
            self.acked.update({key: self.acked.get(key, 0) + 1 for key in keys})
            self.published += len(keys)
        elif answer.status_code != 503:
            self.wrong.append(f"publishing was answered with {answer.status_code}: {answer.text}")

    async def _read(self, http: httpx.AsyncClient) -> None:
        """Who was told that it is published reads that, or something newer."""
        key = self._dice.choice(OBJECTS)
        acked, app = self.acked[key], key.partition("/")[0]
        bearer = {"authorization": f"Bearer {self._settings.jwt(key, 0)}"}
        try:
            answer = await http.get(f"/v1/objects/{key}", headers=bearer)
        except httpx.TransportError:
            return
        if answer.status_code == 503:
            return
        version = answer.raise_for_status().json()["version"]
        self.read += 1
        if version is None or int(version) < acked:
            self.wrong.append(f"of {app} {version} was read, and {acked} was acked")

    def _shown(self, app: str) -> dict[str, str]:
        return {"authorization": f"Bearer {self._settings.keys[app][0]}"}

    # How they stand.

    def stale(self) -> list[str]:
        """Whoever is not at the last version of what it has registered for."""
        behind = []
        for herd in self.herds:
            if missing := IN_A_HERD - herd.told(self.acked[herd.key]):
                behind.append(f"{missing} of {IN_A_HERD} over websocket at {herd.key}")
        for record in self.records:
            for key, version in record.latest.items():
                if version != self.acked[key]:
                    behind.append(f"{record.channel} at {key}: {version}, not {self.acked[key]}")
        return behind

    def astray(self) -> list[str]:
        """Whatever was told or answered that must not be."""
        told = [f"{herd.wrong} wrong ones over websocket" for herd in self.herds if herd.wrong]
        return [*self.wrong, *told, *(wrong for record in self.records for wrong in record.wrong)]

    def all_there(self) -> bool:
        known = all(len(record.latest) == 1 for record in self.records)
        return known and all(herd.back() == IN_A_HERD for herd in self.herds)
