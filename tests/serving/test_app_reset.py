"""The reset of an app, on a real node: once for everybody, whatever dies meanwhile."""

import asyncio
import os
import signal
import subprocess
from typing import Any

import pytest
from tests.loops import in_loop
from tests.serving.conftest import StartNode
from tests.serving.everybody import everybody
from tests.serving.nodes import HTTP, PATIENCE_S, ROSKVA, Node, await_that, versions_of

from roskva.model import shard_of

OBJECTS = [f"test/{name}" for name in ("a", "b", "c", "d", "e")]
OTHER = "other/a"


def of_app(node: Node, generation: str | None = None) -> dict[str, Any]:
    url = f"{node.url}/v1/admin/apps/test"
    if generation is None:
        answer = HTTP.get(url)
    else:
        answer = HTTP.post(f"{url}/reset", json={"generation": generation})
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


def version_of(node: Node, key: str) -> str | None:
    found: str | None = HTTP.get(f"{node.url}/v1/objects/{key}").json()["version"]
    return found


@in_loop
async def test_everybody_is_told_unknown_once_though_a_process_is_killed_in_between(
    start_node: StartNode,
) -> None:
    node = start_node("--matchers", "2", "--registrars", "1")
    for updates in versions_of([OTHER, *OBJECTS], range(100, 101)):
        node.publish_all(updates)
    async with everybody(node, ("websocket-msgpack", "library")) as clients:
        await clients.register(*OBJECTS)
        await clients.took(*((key, 100) for key in OBJECTS))
        await asyncio.to_thread(await_that, lambda: node.counter("acks") >= 10, PATIENCE_S)
        await clients["library"].disconnect()

        before = await asyncio.to_thread(of_app, node)
        assert (before["generation"], before["have"]) == ("0", 4)
        frozen = node.signal("state-1", signal.SIGSTOP)
        half = await asyncio.to_thread(of_app, node, before["following"])
        assert (half["have"], half["silent"]) == (2, [2, 3])
        websocket = clients["websocket-msgpack"]
        early = {(key, None) for key in OBJECTS if shard_of(key, 4) < 2}
        assert {await websocket.took() for _ in early} == early
        os.kill(frozen, signal.SIGKILL)
        await asyncio.to_thread(node.await_ready)

        def is_everywhere() -> bool:
            return bool(of_app(node, before["following"])["have"] == 4)

        await asyncio.to_thread(await_that, is_everywhere, PATIENCE_S)
        unknown = {(key, None) for key in OBJECTS}
        assert {await websocket.took() for _ in unknown - early} == unknown - early
        await asyncio.to_thread(node.crash, "state-0")
        await clients["library"].connect()
        assert {await clients["library"].took() for _ in unknown} == unknown
        assert version_of(node, OTHER) == "100"

        for updates in versions_of(OBJECTS, range(3, 4)):
            node.publish_all(updates)
        await clients.took_latest(dict.fromkeys(OBJECTS, 3))
        assert version_of(node, OBJECTS[0]) == "3"


def test_the_command_resets_every_shard_and_the_node_says_so(start_node: StartNode) -> None:
    node = start_node()
    node.publish("test/a", 100)
    words = [ROSKVA, "reset", "--app", "test", "--yes", "--url", node.url]
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert "in 4 of 4 shards" in done.stdout
    assert version_of(node, "test/a") is None
    now = HTTP.get(f"{node.url}/v1/admin/now").json()
    assert [shard["generations"].keys() for shard in now["shards"]] == [{"test"}] * 4
    seen = HTTP.get(f"{node.url}/v1/admin/objects/test/a").json()
    assert "It was reset" in seen["sentence"]
    node.publish("test/a", 3)
    node.kill()
    node.start()
    assert version_of(node, "test/a") == "3"


@pytest.mark.parametrize(
    "generation", ["0", "9223372036854775807", "99999999999999999999", "-1", "x"]
)
def test_a_generation_that_is_not_the_next_is_refused(shared: Node, generation: str) -> None:
    url = f"{shared.url}/v1/admin/apps/nobody/reset"
    assert HTTP.post(url, json={"generation": generation}).status_code == 400
    assert of_app(shared)["shards"] == 4


def test_an_app_has_a_name_that_is_one(shared: Node) -> None:
    assert HTTP.get(f"{shared.url}/v1/admin/apps/No!").status_code == 400
