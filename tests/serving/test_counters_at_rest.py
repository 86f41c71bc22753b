"""A node that is left alone counts nothing, whoever is connected, and what it repeats to a client
that does not ack it counts exactly once."""

import asyncio
import importlib
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from types import ModuleType

import pytest
from benchmarks.ports import free_port
from prometheus_client.parser import text_string_to_metric_families
from tests.loops import in_loop
from tests.serving.drivers import CHANNELS, Driver
from tests.serving.drivers.base import Told
from tests.serving.drivers.mqtt import Mqtt3Driver, Mqtt5Driver
from tests.serving.drivers.websocket import JsonDriver
from tests.serving.nodes import HTTP, PATIENCE_S, Node
from tests.serving.test_own_channel import EXAMPLES

import roskva
from roskva.server.directory import DEFAULT_SHARDS

CHECKS = 4
KEY = "test/at-rest"


@pytest.fixture
def tcp(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.setenv("TCP_CHANNEL_PORT", str(free_port()))
    monkeypatch.setenv("PYTHONPATH", EXAMPLES, prepend=":")
    monkeypatch.syspath_prepend(EXAMPLES)
    return importlib.reload(importlib.import_module("tcp_channel"))


class Silent(JsonDriver):
    """It reads, and acks nothing."""

    times = 0

    def take(self, told: Told) -> None:
        self.times += 1


def everybody(node: Node) -> Iterator[Driver]:
    for channel in CHANNELS.values():
        yield channel(node)
    for mqtt in (Mqtt3Driver, Mqtt5Driver):
        for qos, clean in ((0, False), (0, True), (1, True)):
            driver = mqtt(node, qos=qos)
            driver.clean = clean
            yield driver


def counted(node: Node) -> dict[str, float]:
    """All counters but the processor time, which is used for asking."""
    families = text_string_to_metric_families(HTTP.get(f"{node.url}/metrics").text)
    return {
        f"{sample.name} {sample.labels}": sample.value
        for family in families
        if family.type == "counter" and "cpu" not in family.name
        for sample in family.samples
    }


def named(counters: dict[str, float], name: str) -> float:
    return sum(value for which, value in counters.items() if which.startswith(name))


@in_loop
async def test_counters_stand_still_on_a_node_that_is_left_alone(
    start_node: Callable[..., Node], tcp: ModuleType, tmp_path: Path
) -> None:
    settings = tmp_path / "node.toml"
    settings.write_text('[node]\nchannel = "tcp_channel:serve"\n[sessions]\nresend_seconds = 1.0\n')
    node = await asyncio.to_thread(start_node, "--config", str(settings))
    async with AsyncExitStack() as stack:
        own: asyncio.Queue[int] = asyncio.Queue()

        async def lobby(event: roskva.Notify | roskva.NotifyUnknown) -> None:
            own.put_nowait(event.version if isinstance(event, roskva.Notify) else 0)

        (await stack.enter_async_context(roskva.Client(tcp.dial, "test"))).on("at-rest", lobby)
        drivers = [await stack.enter_async_context(driver) for driver in everybody(node)]
        for driver in drivers:
            await driver.register(KEY)
            assert await driver.took() == (KEY, None)
        await asyncio.to_thread(node.publish, KEY, 1)
        for driver in drivers:
            await driver.took_latest({KEY: 1})
        while await own.get() != 1:
            pass
        # Last of all, so that everybody else is checked as often as it.
        silent = await stack.enter_async_context(Silent(node))
        await silent.register(KEY)

        async def counted_after(times: int) -> tuple[int, dict[str, float]]:
            """Also after the round of each shard's collector that follows a start."""
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    before, counters = silent.times, await asyncio.to_thread(counted, node)
                    rounds = named(counters, "roskva_collector_rounds")
                    if times <= before == silent.times and rounds >= DEFAULT_SHARDS:
                        return before, counters
                    await asyncio.sleep(0.1)

        first, before = await counted_after(2)
        last, after = await counted_after(first + CHECKS)
        rose = {name: value - before[name] for name, value in after.items()}
        assert {name.partition(" ")[0]: value for name, value in rose.items() if value} == {
            "roskva_notifications_total": last - first,
            "roskva_notifications_resent_total": last - first,
        }, {name: value for name, value in rose.items() if value}
