"""A real node with its pipeline, and parts of both killed while others publish.

What was acknowledged is counted here, by nobody's word but the publisher's: at the end every object
must stand at the highest version that was acknowledged.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving.nodes import Node, await_that

from roskva.pipeline.processes import tree
from roskva.pipeline.requirements import what_is_missing

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


def pipeline(node: Node) -> dict[str, Any]:
    try:
        found: dict[str, Any] = node.status()["pipeline"]
    except httpx.HTTPError:
        return {"state": "unknown"}
    return found


def bridge_is_at_work(node: Node) -> bool:
    parts = pipeline(node).get("parts", [])
    return any(part["name"] == "bridge" and part["state"] == "running" for part in parts)


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


def kill_something(node: Node, victim: str) -> None:
    if victim == "matcher":
        node.signal(random.choice(["state-0", "state-1"]), signal.SIGKILL)
        return
    await_that(lambda: "pid" in pipeline(node), WARM_S, node.said)
    driver = int(pipeline(node)["pid"])
    target = driver if victim == "driver" else worker_of(driver)
    if target is not None:
        os.kill(target, signal.SIGKILL)


def kill_rounds(node: Node, rounds: int) -> None:
    node.await_ready()
    await_that(lambda: bridge_is_at_work(node), WARM_S, node.said)
    with Publishing(node) as publishing:
        for number in range(rounds * 3):
            time.sleep(random.uniform(0.5, 2.0))  # load, at the moment of the kill
            kill_something(node, ("driver", "worker", "matcher")[number % 3])
            await_that(lambda: bridge_is_at_work(node), WARM_S, node.said)
    await_that(lambda: has_caught_up(node), WARM_S, lambda: f"{node.status()}\n{node.said()}")
    assert len(publishing.acknowledged) == len(KEYS)
    lost = {
        key: (node.read(key), version)
        for key, version in publishing.acknowledged.items()
        if (node.read(key) or -1) < version
    }
    assert lost == {}


def test_nothing_is_lost_whatever_is_killed(node: Node) -> None:
    kill_rounds(node, ROUNDS or 2)
    await_that(lambda: [part["lag_updates"] for part in pipeline(node)["parts"]] == [0], 30.0)


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
    await_that(lambda: node.read("test/first") == 1, 30.0)
    assert "Traceback" not in node.said()
