"""What a node counts under a load that is known."""

import asyncio
import re
import signal
from collections import defaultdict
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.loops import in_loop
from tests.serving.followers import EVERY_WAY, Record
from tests.serving.nodes import HTTP, PATIENCE_S, Node, await_that, versions_of

import roskva
from roskva.metrics import MEASURES

KEYS = [f"test/counted-{i}" for i in range(5)]
VERSIONS = 40
OLD = 7
StartNode = Callable[..., Node]
Numbers = dict[tuple[str, str], float]


def exposed(node: Node) -> str:
    return HTTP.get(f"{node.url}/metrics").raise_for_status().text


def exposed_by_all(node: Node) -> str:
    """A process that does not answer for a while is down, and all its numbers are missing."""

    def found() -> str | None:
        text = exposed(node)
        return None if re.search(r"^roskva_process_up\S* 0", text, re.MULTILINE) else text

    return await_that(found, PATIENCE_S)


def scraped(node: Node) -> Numbers:
    """By name and channel, kind, traffic or way, over all processes; without the prober's."""
    numbers: defaultdict[tuple[str, str], float] = defaultdict(float)
    for family in text_string_to_metric_families(exposed_by_all(node)):
        for sample in family.samples:
            labels = sample.labels
            names = ("channel", "kind", "traffic", "way")
            label = next((labels[name] for name in names if name in labels), "")
            if labels.get("traffic") == "probe":
                continue
            numbers[sample.name.removeprefix("roskva_"), label] += sample.value
    return numbers


def pending(node: Node) -> int:
    """As the admin API finds it, by looking at every registration."""
    now = HTTP.get(f"{node.url}/v1/admin/now").raise_for_status().json()
    return int(now["freshness"]["pending"])


@pytest.mark.parametrize("flags", [(), ("--registrars", "2", "--matchers", "2")])
@in_loop
async def test_a_known_load_is_counted(start_node: StartNode, flags: tuple[str, ...]) -> None:
    node = start_node(*flags, "--no-probe")
    async with AsyncExitStack() as stack:
        records = [await stack.enter_async_context(way(node, KEYS)) for way in EVERY_WAY]
        # It reads, and acks nothing.
        silent = await stack.enter_async_context(roskva.Client(node.url, "test"))
        for key in KEYS:
            await silent.register(key.partition("/")[2])
        for version in range(1, VERSIONS + 1):
            for updates in versions_of(KEYS, range(version, version + 1)):
                await asyncio.to_thread(node.publish_all, updates)
            if version == 1:
                await _until(records, 1)
        for updates in versions_of(KEYS, range(1, OLD + 1)):
            await asyncio.to_thread(node.publish_all, updates)
        await _until(records, VERSIONS)
        # Of EventSource and of the silent one nobody acks; everybody else has.
        await asyncio.to_thread(
            await_that,
            lambda: pending(node) == 2 * len(KEYS),
            PATIENCE_S,
            lambda: str(pending(node)),
        )
        numbers = await asyncio.to_thread(scraped, node)
        assert numbers["updates_published_total", "users"] == len(KEYS) * (VERSIONS + OLD)
        assert numbers["updates_applied_total", "fast"] == len(KEYS) * VERSIONS
        assert numbers["updates_applied_total", "own"] == 0
        assert numbers["updates_old_total", ""] == len(KEYS) * OLD
        # Each was told at least the first of these and the last, and acked at least the last.
        assert numbers["notifications_total", "version"] >= 2 * len(records) * len(KEYS)
        assert numbers["acks_total", ""] >= (len(records) - 1) * len(KEYS)
        assert numbers["registrations", "users"] == len(KEYS) * 5
        assert numbers["sessions", "websocket"] == 2
        assert numbers["sessions", "mqtt"] == 2
        assert numbers["feed_fsync_seconds_count", ""] > 0
        assert numbers["store_sync_seconds_count", ""] > 0


async def _until(records: list[Record], version: int) -> None:
    await asyncio.to_thread(
        await_that,
        lambda: all(r.latest.get(key) == version for r in records for key in KEYS),
        PATIENCE_S,
    )


@in_loop
async def test_every_ack_of_an_update_that_is_followed_is_timed(
    start_node: StartNode, tmp_path: Path
) -> None:
    settings = tmp_path / "roskva.toml"
    settings.write_text("[node]\ntrace_one_in = 1\n")
    node = start_node("--config", str(settings), "--no-probe")

    def acked() -> float:
        return sum(
            sample.value
            for family in text_string_to_metric_families(exposed(node))
            for sample in family.samples
            if sample.name == "roskva_stage_seconds_count" and sample.labels["stage"] == "acked"
        )

    async def until(timed: int) -> None:
        # More, where somebody was told twice and acked twice.
        await asyncio.to_thread(
            await_that, lambda: acked() >= timed, PATIENCE_S, lambda: str(acked())
        )

    async with AsyncExitStack() as stack:
        records = [await stack.enter_async_context(way(node, KEYS)) for way in EVERY_WAY]
        acking = len(records) - 1  # for EventSource nobody acks
        for version in (1, 2, 3):
            for updates in versions_of(KEYS, range(version, version + 1)):
                await asyncio.to_thread(node.publish_all, updates)
            await until(version * len(KEYS) * acking)


def test_every_sample_has_a_name_of_the_table(shared: Node) -> None:
    named = {measure.name.removesuffix("_total") for measure in MEASURES}
    found = {family.name for family in text_string_to_metric_families(exposed(shared))}
    assert found <= named
    assert len(found) > 40


def test_a_process_that_does_not_answer_is_down(start_node: StartNode) -> None:
    node = start_node("--registrars", "1", "--matchers", "2")
    node.signal("state-1", signal.SIGSTOP)
    up = 'roskva_process_up{process="state-0",role="state"} 1.0'
    down = 'roskva_process_up{process="state-1",role=""} 0.0'
    await_that(
        lambda: {up, down} <= set(exposed(node).splitlines()), PATIENCE_S, lambda: exposed(node)
    )
