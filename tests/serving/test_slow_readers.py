"""Readers that stop reading: they cost bounded memory, delay nobody, and wake to the newest."""

import asyncio
import statistics
import time
from collections.abc import Callable

import pytest
from tests.loops import run_within
from tests.serving.drivers.websocket import MsgpackDriver
from tests.serving.nodes import Node
from tests.serving.slow_readers import SlowMqtt, SlowReader, SlowWebSocket

from roskva.pipeline.node import online

KEY = "test/busy"
PAYLOAD_BYTES = 1024
UPDATES = 3000
PROBES = 100
PER_READER_BYTES = 64 * 1024
"""Of the node's memory, at most: what a connection may buffer, and some room."""
SLACK_BYTES = 32 << 20

StartNode = Callable[..., Node]
Report = Callable[[str, object], None]
both_channels = pytest.mark.parametrize("reader", [SlowWebSocket, SlowMqtt])


@both_channels
def test_c68_readers_that_stop_reading_do_no_harm(
    start_node: StartNode, reader: type[SlowReader], record_property: Report
) -> None:
    # A disk that stalls meanwhile is no harm of theirs: only who is held up for good is noticed.
    _stop_reading(start_node(), reader, 100, 1.0, record_property)


@pytest.mark.verify
@both_channels
def test_c68_a_thousand_readers_that_stop_reading_do_no_harm(
    start_node: StartNode, reader: type[SlowReader], record_property: Report
) -> None:
    _stop_reading(start_node(), reader, 1000, 0.01, record_property)


def _stop_reading(
    node: Node, kind: type[SlowReader], count: int, slack_s: float, report: Report
) -> None:
    run_within(180.0, _scenario(node, kind, count, slack_s, report))


async def _scenario(
    node: Node, kind: type[SlowReader], count: int, slack_s: float, report: Report
) -> None:
    publisher = Publisher(node)
    await publisher.publish(1)
    async with MsgpackDriver(node) as quick:
        await quick.register(KEY)
        await quick.took()
        alone = await _latencies(publisher, quick)

        readers = [kind(node, KEY) for _ in range(count)]
        try:
            for some in range(0, count, 50):
                await asyncio.gather(*(r.register() for r in readers[some : some + 50]))
                await asyncio.sleep(0.1)  # a node takes no more than 1,000 handshakes per second
            before = node.resident_bytes()
            beside = await _latencies(publisher, quick)
            peak = await _flood(node, publisher, quick)
            beside += await _latencies(publisher, quick)
            assert not quick.ended.done()
            # So that an audit does not take them for clients whom the node has not told.
            assert sum((await asyncio.to_thread(online, node.data)).values()) == count

            report("peak_growth_bytes", peak - before)
            report("median_latency_ms_alone", 1000 * statistics.median(alone))
            report("median_latency_ms_beside", 1000 * statistics.median(beside))
            assert peak - before < SLACK_BYTES + count * PER_READER_BYTES
            assert statistics.median(beside) < 10 * statistics.median(alone) + slack_s

            last = publisher.version
            await asyncio.gather(*(r.read_until(last) for r in readers))
        finally:
            for reader in readers:
                reader.close()
    told = [len(reader.versions) for reader in readers]
    report("most_told", max(told))
    for reader in readers:
        assert reader.versions == sorted(reader.versions)
    # What was on its way when they stopped, and then the newest: not all that happened.
    assert max(told) < UPDATES / 30


class Publisher:
    """The payload begins with the version: MQTT 3.1.1 shows nothing else."""

    def __init__(self, node: Node) -> None:
        self.version = 0
        self._node = node

    async def publish(self, count: int) -> None:
        updates = []
        for _ in range(count):
            self.version += 1
            text = f"{self.version} ".ljust(PAYLOAD_BYTES, ".")
            updates.append({"app": "test", "name": "busy", "version": self.version, "text": text})
        await asyncio.to_thread(self._node.publish_all, updates)


async def _latencies(publisher: Publisher, quick: MsgpackDriver) -> list[float]:
    """From publishing to being told, one at a time."""
    taken = []
    for _ in range(PROBES):
        began = time.monotonic()
        await publisher.publish(1)
        assert await quick.took() == (KEY, publisher.version)
        taken.append(time.monotonic() - began)
    return taken


async def _flood(node: Node, publisher: Publisher, quick: MsgpackDriver) -> int:
    """The most memory that was seen meanwhile."""
    peak = 0
    for _ in range(UPDATES // 100):
        await publisher.publish(100)
        while await quick.took() != (KEY, publisher.version):
            pass
        peak = max(peak, await asyncio.to_thread(node.resident_bytes))
    return peak
