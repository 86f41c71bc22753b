"""A real node with its pipeline, and parts of both killed while others publish.

What was acknowledged is counted here, by nobody's word but the publisher's: at the end every object
must stand at the highest version that was acknowledged, every client must have been told of it, and
an audit must find nobody stale.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving.followers import Record, by_library
from tests.serving.nodes import ROSKVA, Node, await_that

from roskva.pipeline.machine import tree, what_is_missing

ROUNDS = int(os.environ.get("ROSKVA_KILL_ROUNDS", "0"))
KEYS = [f"test/object-{i}" for i in range(200)]
WARM_S = 180.0

pytestmark = pytest.mark.skipif(what_is_missing() is not None, reason="Spark or Java is missing")


class Publishing:
    """A publisher that goes on whatever happens, and knows what was acknowledged."""

    def __init__(self, node: Node) -> None:
        self.acknowledged: dict[str, int] = {}
        self._node = node
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Publishing":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        version = 0
        while not self._stop.is_set():
            version += 1
            keys = random.sample(KEYS, 20)
            updates = [
                {"app": "test", "name": key.partition("/")[2], "version": version} for key in keys
            ]
            try:
                answer = httpx.post(f"{self._node.url}/v1/publish", json=updates, timeout=5)
                results = answer.json().get("results", [])
            except (httpx.TransportError, ValueError):
                continue
            for key, result in zip(keys, results, strict=False):
                if "version" in result:
                    self.acknowledged[key] = version
            self._stop.wait(0.05)


class Following:
    """A client of the library, registered for everything, on a thread of its own."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._record: Record | None = None
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._stop = threading.Event()

    def __enter__(self) -> Record:
        self._thread.start()
        await_that(self._knows_all, WARM_S)
        assert self._record is not None
        self._record.wrong.clear()  # until the first update all is unknown
        return self._record

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _knows_all(self) -> bool:
        return self._record is not None and len(self._record.latest) == len(KEYS)

    async def _run(self) -> None:
        async with by_library(self._node, KEYS) as self._record:
            await asyncio.to_thread(self._stop.wait)


def pipeline(node: Node) -> dict[str, Any]:
    try:
        found: dict[str, Any] = node.status()["pipeline"]
    except httpx.HTTPError:
        return {"state": "unknown"}
    return found


def bridge_is_at_work(node: Node) -> bool:
    parts = pipeline(node).get("parts", [])
    return any(part["name"] == "bridge" and part["state"] == "running" for part in parts)


def bridge_brings_something(node: Node) -> bool:
    try:
        return node.ways()["bridge"] > 0
    except httpx.HTTPError:
        return False


def lags(node: Node) -> list[int]:
    return [part["lag_updates"] for part in pipeline(node).get("parts", [])]


def has_caught_up(node: Node) -> bool:
    try:
        shards = node.status()["shards"]
    except httpx.HTTPError:
        return False
    return len(shards) == 4 and all(shard["durable"] == shard["feed_end"] for shard in shards)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    settings = tmp_path / "roskva.toml"
    settings.write_text("[pipeline]\nniceness = 0\n")
    flags = ("--no-fast-path", "--matchers", "2", "--config", str(settings))
    node = Node(tmp_path / "data", *flags, pipeline=True)
    try:
        node.start()
        yield node
    finally:
        node.end()


def worker_of(driver: int) -> int | None:
    """One of the Python workers, if there are any at this moment."""
    for pid in reversed(tree(driver)):
        try:
            said = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in said and b"pyspark.worker" in said:
            return pid
    return None


def kill_a_matcher(node: Node) -> None:
    node.signal(random.choice(["state-0", "state-1"]), signal.SIGKILL)


def driver_of(node: Node) -> int:
    """As long as there is none, its pid is 0, and to kill that would be the end of the tests."""
    return int(await_that(lambda: pipeline(node).get("pid"), WARM_S, node.said))


def kill_the_driver(node: Node) -> None:
    """What it last said of itself outlives it for a moment."""
    driver = driver_of(node)
    os.kill(driver, signal.SIGKILL)
    await_that(lambda: pipeline(node).get("pid", driver) != driver, WARM_S, node.said)


def kill_a_worker(node: Node) -> None:
    driver = driver_of(node)
    worker = await_that(lambda: worker_of(driver), WARM_S, node.said)
    with suppress(ProcessLookupError):  # workers come and go
        os.kill(worker, signal.SIGKILL)


def kill_rounds(node: Node, rounds: int) -> None:
    node.await_ready()
    await_that(lambda: bridge_is_at_work(node), WARM_S, node.said)
    with Following(node) as following, Publishing(node) as publishing:
        for _ in range(rounds):
            for kill in (kill_the_driver, kill_a_worker, kill_a_matcher):
                time.sleep(random.uniform(0.5, 2.0))  # load, at the moment of the kill
                kill(node)
                await_that(lambda: bridge_is_at_work(node), WARM_S, node.said)
        # What was counted went with the processes: after the last of them the bridge is back.
        await_that(lambda: bridge_brings_something(node), WARM_S, node.said)
        publishing.stop()
        acknowledged = publishing.acknowledged
        assert len(acknowledged) == len(KEYS)
        await_that(lambda: has_caught_up(node), WARM_S, lambda: f"{node.status()}\n{node.said()}")
        assert behind(acknowledged, {key: node.read(key) for key in KEYS}) == {}
        await_that(
            lambda: not behind(acknowledged, following.latest),
            WARM_S,
            lambda: f"not told: {behind(acknowledged, following.latest)}",
        )
        assert following.wrong == []
        assert_by_which_way(node, rounds)
        audit = audited(node)
        assert audit["states"]["stale"] == 0, audit
        assert audit["registrations"] == len(KEYS)


def assert_by_which_way(node: Node, rounds: int) -> None:
    """Nothing by the fast path, which is off. A shard reads by itself only while a driver that was
    killed is away."""
    ways = node.ways()
    assert ways["fast"] == 0, ways
    lonely = node.said().count("reads its feed by itself")
    assert lonely <= rounds * 4, "more often than once for each driver and shard"


def behind(
    acknowledged: dict[str, int], known: Mapping[str, int | None]
) -> dict[str, tuple[int, int | None]]:
    """What was acknowledged, and what is known instead."""
    return {
        key: (version, known.get(key))
        for key, version in acknowledged.items()
        if (known.get(key) or -1) < version
    }


def audited(node: Node) -> dict[str, Any]:
    done = subprocess.run(
        [ROSKVA, "job", "audit", str(node.data), "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_nothing_is_lost_whatever_is_killed(node: Node) -> None:
    kill_rounds(node, ROUNDS or 2)
    await_that(lambda: lags(node) == [0], WARM_S, node.said)


@pytest.mark.verify
def test_nothing_is_lost_whatever_is_killed_again_and_again(node: Node) -> None:
    kill_rounds(node, ROUNDS or 10)


def test_a_node_is_ready_before_its_pipeline_and_says_how_it_is(node: Node) -> None:
    assert pipeline(node)["state"] in ("starting", "running")
    assert node.publish("test/first", 1) == 1
    await_that(lambda: bridge_is_at_work(node), WARM_S, node.said)
    found = pipeline(node)
    assert found["rss_bytes"] > 100 << 20
    [bridge] = found["parts"]
    assert bridge["last_error"] == ""
    await_that(lambda: node.read("test/first") == 1, WARM_S)
    # A shard that had to read the first for want of Spark gives it another chance in a minute.
    versions = count(2)

    def brought() -> bool:
        version, before = next(versions), node.ways()
        assert node.publish("test/first", version) == version
        await_that(lambda: node.read("test/first") == version, WARM_S)
        return node.ways()["bridge"] > before["bridge"] and node.ways()["own"] == before["own"]

    await_that(brought, 60.0 + WARM_S, node.said)
    assert "Traceback" not in node.said()
    assert "Traceback" not in (node.data / "pipeline/spark.log").read_text()
