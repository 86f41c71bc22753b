"""Abuse of every kind beside one client that behaves: it is told about as soon as ever.

What is compared is the 99th percentile from publishing to being told, alone and under attack, in
one run. On a machine that has other things to do a single window says little, so it is the median
of several, and there is a floor below which nobody would call it slow. On a small scale a window
has so few probes that a disk which stalls decides it: there the floor is high, and all that is seen
is whether the client starves.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Final

import httpx
import pytest
from tests.loops import run_within
from tests.serving.keyed import Issuer, KeyedNode, publish_key

import roskva

LIMIT: Final = 200
"""Updates a second; the greedy one tries ten times that."""
TIMES: Final = 2.0
MAX_GROWTH_BYTES: Final = 256 << 20
OURS, OURS_HASHED = publish_key()
THEIRS, THEIRS_HASHED = publish_key()


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[KeyedNode]:
    settings = f"""
[limits]
publishes_per_second = {LIMIT}
max_publish_updates = {LIMIT}
[apps.contacts]
jwks = "{issuer.jwks}"
publish_keys = ["{OURS_HASHED}", "{THEIRS_HASHED}"]
register = ["**"]
"""
    node = KeyedNode(tmp_path_factory.mktemp("abused") / "data", settings)
    try:
        node.start()
        yield node
    finally:
        node.end()


class Scale:
    def __init__(self, part: float, windows: int, probes: int, floor_s: float) -> None:
        self.part = part
        self.windows = windows
        self.probes = probes
        self.floor_s = floor_s


SMALL: Final = Scale(0.1, 3, 20, 2.5)
FULL: Final = Scale(1.0, 7, 100, 0.03)

ATTACKS: Final = {
    "slowloris on HTTP": ("slow_heads", "http", 1000),
    "slowloris on MQTT": ("slow_connects", "mqtt", 1000),
    "half-open on HTTP": ("silent", "http", 5000),
    "half-open on MQTT": ("silent", "mqtt", 5000),
    "frames of one byte": ("byte_by_byte", "http", 20),
    "ten times the limit": ("greedy", "http", 100),
}
every_attack = pytest.mark.parametrize("name", ATTACKS)


@every_attack
def test_an_attack_on_a_small_scale_starves_nobody(
    node: KeyedNode, issuer: Issuer, name: str
) -> None:
    run_within(120.0, _scenario(node, issuer, name, SMALL))


@pytest.mark.verify
@every_attack
def test_an_attack_is_hardly_noticed(node: KeyedNode, issuer: Issuer, name: str) -> None:
    run_within(400.0, _scenario(node, issuer, name, FULL))


async def _scenario(node: KeyedNode, issuer: Issuer, name: str, scale: Scale) -> None:
    kind, channel, count = ATTACKS[name]
    port = node.port if channel == "http" else node.mqtt_port
    count = max(2, int(count * scale.part))
    async with _well_behaved(node, issuer) as probe:
        await probe.window(scale.probes)  # to warm up
        quiet = [await probe.window(scale.probes) for _ in range(scale.windows)]
        before = await asyncio.to_thread(node.resident_bytes)
        peak = before
        async with _attacked(kind, port, count):
            attacked = []
            for _ in range(scale.windows):
                attacked.append(await probe.window(scale.probes))
                peak = max(peak, await asyncio.to_thread(node.resident_bytes))
        status = await asyncio.to_thread(node.status)
    lag_ms = max(process["longest_lag_ms"] for process in status["processes"])
    sys.stderr.write(
        f"{name} ({count}): p99 {1000 * median(quiet):.1f} ms alone, "
        f"{1000 * median(attacked):.1f} ms under attack; memory {before >> 20} MiB before, "
        f"{peak >> 20} MiB at its peak; longest lag so far {lag_ms} ms\n"
    )
    assert median(attacked) <= TIMES * median(quiet) + scale.floor_s
    assert peak - before < MAX_GROWTH_BYTES


class Probe:
    def __init__(self, client: roskva.Client, publisher: httpx.AsyncClient) -> None:
        self._events = aiter(client)
        self._publisher = publisher
        self._version = 0

    async def window(self, probes: int) -> float:
        """The 99th percentile of so many, in seconds."""
        taken = sorted([await self._one() for _ in range(probes)])
        return taken[int(0.99 * (len(taken) - 1))]

    async def _one(self) -> float:
        self._version = max(self._version + 1, time.time_ns())
        update = {"app": "contacts", "name": "probe", "version": str(self._version)}
        began = time.monotonic()
        answer = await self._publisher.post("/v1/publish", json=update)
        while answer.status_code == 429:  # we are as fast as we may be ourselves
            await asyncio.sleep(1 / LIMIT)
            began = time.monotonic()
            answer = await self._publisher.post("/v1/publish", json=update)
        answer.raise_for_status()
        async for event in self._events:
            if isinstance(event, roskva.Notify) and event.version == self._version:
                break
        return time.monotonic() - began


@asynccontextmanager
async def _well_behaved(node: KeyedNode, issuer: Issuer) -> AsyncIterator[Probe]:
    credential = issuer.jwt("somebody", "contacts")
    headers = {"authorization": f"Bearer {OURS}"}
    async with (
        httpx.AsyncClient(base_url=node.url, headers=headers, timeout=30) as publisher,
        roskva.Client(node.url, "contacts", credential=credential, auto_ack=True) as client,
    ):
        await client.register("probe")
        async for event in client:
            if isinstance(event, roskva.RegistrationStatus):
                break
        yield Probe(client, publisher)


@asynccontextmanager
async def _attacked(kind: str, port: int, count: int) -> AsyncIterator[None]:
    attacker = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.serving.attackers", kind, str(port), str(count), THEIRS),
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert attacker.stdin is not None
    assert attacker.stdout is not None
    try:
        async with asyncio.timeout(60):
            assert await attacker.stdout.readline() == b"ready\n"
        yield
        assert attacker.returncode is None, "the attacker gave up"
    finally:
        attacker.stdin.close()
        try:
            await asyncio.wait_for(attacker.wait(), 30)
        except TimeoutError:
            attacker.kill()
            await attacker.wait()
