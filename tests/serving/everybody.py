"""One client on each channel, for what happens to all of them at once: a stop, a crash, a loss."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from tests.serving.drivers import CHANNELS, Driver
from tests.serving.nodes import Node


class Everybody:
    def __init__(self, drivers: dict[str, Driver]) -> None:
        self.drivers = drivers

    def __getitem__(self, channel: str) -> Driver:
        return self.drivers[channel]

    async def register(self, *keys: str) -> None:
        await self._each(lambda driver: driver.register(*keys))

    async def connect(self) -> None:
        await self._each(lambda driver: driver.connect())

    async def disconnect(self) -> None:
        await self._each(lambda driver: driver.disconnect())

    async def took(
        self, *expected: tuple[str, int | None], again: tuple[tuple[str, int | None], ...] = ()
    ) -> None:
        """Exactly these, on every channel, in any order, and acked; and perhaps each of `again`,
        whose acks a crash may have lost."""

        async def take(driver: Driver) -> None:
            left, perhaps = [*expected], [*again]
            while left:
                one = await driver.took()
                assert one in left or one in perhaps, f"{one}, and not {left} or {perhaps}"
                (left if one in left else perhaps).remove(one)
            assert driver.inbox.empty()

        await self._each(take)

    async def took_latest(self, wanted: dict[str, int]) -> None:
        async def take(driver: Driver) -> None:
            await driver.took_latest(wanted)

        await self._each(take)

    async def _each(self, do: Callable[[Driver], Awaitable[None]]) -> None:
        async def named(channel: str, driver: Driver) -> None:
            try:
                await do(driver)
            except Exception as error:
                error.add_note(f"on {channel}")
                raise

        async with asyncio.TaskGroup() as tasks:
            for channel, driver in self.drivers.items():
                tasks.create_task(named(channel, driver))


@asynccontextmanager
async def everybody(node: Node, channels: Iterable[str] = CHANNELS) -> AsyncIterator[Everybody]:
    async with AsyncExitStack() as stack:
        drivers = {}
        for channel in channels:
            drivers[channel] = await stack.enter_async_context(CHANNELS[channel](node))
        yield Everybody(drivers)
