"""Long polling: answered at once where anything is due, else after a wait, and never wrongly."""

import asyncio
import subprocess
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from tests.loops import in_loop
from tests.serving.nodes import HTTP, PATIENCE_S, Node, await_that
from tests.serving.test_http import Fresh

PROTOCOL: Final = (Path(__file__).parents[2] / "docs/protocol.md").read_text()


def poll(node: Node, *objects: dict[str, Any], wait_s: float = 0.0) -> list[dict[str, Any]]:
    answer = HTTP.post(f"{node.url}/v1/poll", json={"objects": list(objects), "wait_s": wait_s})
    told: list[dict[str, Any]] = answer.raise_for_status().json()["notifications"]
    return told


def test_what_was_told_is_the_ack_of_the_next_request(shared: Node, fresh: Fresh) -> None:
    alice, bob = fresh(), fresh()
    shared.publish(alice, 41, text="hello")
    told = {each.pop("object"): each for each in poll(shared, {"object": alice}, {"object": bob})}
    while len(told) < 2:  # each is told as soon as its shard has answered
        told |= {
            each.pop("object"): each
            for each in poll(shared, {"object": alice, **told.get(alice, {})}, {"object": bob})
        }
    assert (told[alice]["version"], told[alice].pop("payload")) == ("41", "aGVsbG8=")
    assert told[bob]["version"] is None
    both = [{"object": key, **told[key]} for key in (alice, bob)]
    assert poll(shared, *both) == []
    shared.publish(bob, 0)
    (news,) = poll(shared, *both)
    assert (news["object"], news["version"]) == (bob, "0")


def test_a_version_alone_is_what_the_client_holds(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    shared.publish(key, 41)
    assert poll(shared, {"object": key, "version": 41}) == []
    assert poll(shared, {"object": key, "version": "40"})[0]["version"] == "41"
    # Nobody published that in this epoch: it is from before a loss, and its client has to look.
    assert poll(shared, {"object": key, "version": "99"})[0]["version"] is None


def test_after_a_reset_it_is_told_unknown_and_then_the_lower_version(
    shared: Node, fresh: Fresh
) -> None:
    key = fresh()
    shared.publish(key, 99)
    (before,) = poll(shared, {"object": key})
    shared.reset(key)
    (unknown,) = poll(shared, before)
    assert unknown["version"] is None
    assert poll(shared, unknown) == []
    shared.publish(key, 1)
    assert [each["version"] for each in poll(shared, before)] == [None, "1"]
    assert [each["version"] for each in poll(shared, unknown)] == ["1"]


@in_loop
async def test_waits_for_news_and_answers_when_they_come(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    shared.publish(key, 1)
    (first,) = poll(shared, {"object": key})
    before = shared.counter("broadcasts")
    waiting = asyncio.create_task(asyncio.to_thread(poll, shared, first, wait_s=PATIENCE_S))
    await asyncio.to_thread(await_that, lambda: sessions(shared) > 0, PATIENCE_S)
    shared.publish(key, 2)
    (news,) = await waiting
    assert news["version"] == "2"
    assert shared.counter("broadcasts") >= before
    await asyncio.to_thread(await_that, lambda: sessions(shared) == 0, PATIENCE_S)


@in_loop
async def test_who_goes_away_leaves_nothing_behind(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    shared.publish(key, 1)
    (first,) = poll(shared, {"object": key})
    async with httpx.AsyncClient(base_url=shared.url, timeout=None) as http:
        body = {"objects": [first], "wait_s": 300}
        waiting = asyncio.create_task(http.post("/v1/poll", json=body))
        await asyncio.to_thread(await_that, lambda: sessions(shared) > 0, PATIENCE_S)
        waiting.cancel()
    await asyncio.to_thread(await_that, lambda: sessions(shared) == 0, PATIENCE_S)


def sessions(node: Node) -> int:
    """Over HTTP."""
    (process,) = node.status()["processes"]
    found: int = process["sessions"].get("events", 0)
    return found


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "objects"),
        ({"objects": []}, "name 1 to 64 objects"),
        ({"objects": [{"object": f"test/{i}"} for i in range(65)]}, "name 1 to 64 objects"),
        ({"objects": [{"object": "test/x"}, {"object": "test/x"}]}, "named twice"),
        ({"objects": [{"object": "test/x", "version": "many"}]}, "a version is 0 to 2^63-1"),
        ({"objects": [{"object": "test/x", "epoch": -1}]}, "an epoch is 0 to 2^63-1"),
        ({"objects": [{"object": "nothing"}]}, "nothing"),
        ({"objects": [{"object": "test/x"}], "wait_s": 301}, "300"),
    ],
)
def test_bad_requests_say_what_to_do(shared: Node, body: object, says: str) -> None:
    answer = HTTP.post(f"{shared.url}/v1/poll", json=body)
    assert answer.status_code == 400
    assert says in answer.json()["error"]["text"]


def test_the_example_in_the_document_runs(shared: Node) -> None:
    shared.publish("contacts/alice", 42)
    (command,) = [block for block in PROTOCOL.split("```sh\n")[1:] if "/v1/poll" in block]
    script = command.partition("```")[0].replace("localhost:7600", f"127.0.0.1:{shared.port}")
    run = subprocess.run(["sh", "-ec", script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    assert '"object":"contacts/alice","version":"42","epoch":"' in run.stdout
