"""Things in stock: a client that follows them, and backends that publish them."""

import asyncio
import time
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

import roskva
from roskva.cli.demo.node import DemoNode

APP: Final = "stock"
_GOODS: Final = (
    *("anvils", "bells", "candles", "drums", "easels", "flutes", "gloves", "hammers", "inks"),
    *("jars", "kettles", "lamps", "mugs", "needles", "oars", "pans", "quilts", "ropes", "saws"),
)
_EACH: Final = 4
_PAUSE_S: Final = 0.2


def items_of(node: DemoNode, state: str) -> list[str]:
    """A few goods that this state process has."""
    return [item for item in _GOODS if node.owner_of(f"{APP}/{item}").name == state][:_EACH]


class Shelf:
    """What a client knows of its items."""

    def __init__(self, client: roskva.Client, items: list[str]) -> None:
        self.items = items
        self.versions: dict[str, int] = {}
        self.heard_at: dict[tuple[str, int], float] = {}
        self._client = client
        self._changed = asyncio.Condition()

    async def watch(self) -> None:
        """Until cancelled."""
        for item in self.items:
            await self._client.register(item)
        async for event in self._client:
            if isinstance(event, roskva.Notify):
                await self._hear(event.name, event.version)

    async def until_it_knows(self, versions: dict[str, int]) -> None:
        """These, or newer ones."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: all(self.versions.get(item, -1) >= v for item, v in versions.items())
            )

    async def _hear(self, item: str, version: int) -> None:
        async with self._changed:
            self.versions[item] = version
            self.heard_at[item, version] = time.monotonic()
            self._changed.notify_all()


class Backend:
    """Publishes ever newer versions of its items. Used as `async with`."""

    def __init__(self, url: str, items: list[str]) -> None:
        self.acknowledged = dict.fromkeys(items, 1)
        self._published_at: dict[tuple[str, int], float] = {}
        self._publisher = roskva.Publisher(url, app=APP)
        self._changed = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self._publisher.__aenter__()
        self._task = asyncio.create_task(self._publish())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self._publisher.__aexit__(kind, error, trace)

    async def _publish(self) -> None:
        while True:
            for item in self.acknowledged:
                version = self.acknowledged[item] + 1
                self._published_at[item, version] = time.monotonic()
                await self._publisher.publish(item, version)
                async with self._changed:
                    self.acknowledged[item] = version
                    self._changed.notify_all()
            await asyncio.sleep(_PAUSE_S)

    async def until_beyond(self, versions: dict[str, int]) -> None:
        """Something newer than these is acknowledged."""
        async with self._changed:
            await self._changed.wait_for(
                lambda: any(self.acknowledged[item] > v for item, v in versions.items())
            )

    def delays(self, shelf: Shelf, since: float) -> list[float]:
        """Of what was published since then and is known to the client: how long that took."""
        return [
            heard_at - self._published_at[key]
            for key, heard_at in shelf.heard_at.items()
            if self._published_at.get(key, -1.0) >= since
        ]
