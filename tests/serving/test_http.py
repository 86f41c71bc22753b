"""HTTP as scripts use it: publishing, reading, events, and what a node says of itself."""

import json
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import httpx
import pytest
from tests.loops import in_loop
from tests.serving.drivers.sse import SseDriver
from tests.serving.nodes import HTTP, Node

Fresh = Callable[[], str]


def post(node: Node, path: str, body: Any) -> httpx.Response:
    return HTTP.post(f"{node.url}{path}", json=body)


def update(key: str, version: object = None, **more: object) -> dict[str, object]:
    app, _, name = key.partition("/")
    return {"app": app, "name": name} | ({} if version is None else {"version": version}) | more


def test_versions_are_numbers_or_digits_and_come_back_as_digits(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    answer = post(shared, "/v1/publish", update(key, 2**63 - 2))
    assert (answer.status_code, answer.json()) == (200, {"results": [{"version": f"{2**63 - 2}"}]})
    answer = post(shared, "/v1/publish", [update(key, f"{2**63 - 1}")])
    assert answer.json() == {"results": [{"version": f"{2**63 - 1}"}]}
    found = HTTP.get(f"{shared.url}/v1/objects/{key}").json()
    assert found["version"] == f"{2**63 - 1}"
    assert int(found["epoch"]) > 0
    assert "payload" not in found


def test_each_update_of_a_batch_has_its_own_outcome(shared: Node, fresh: Fresh) -> None:
    good, late, other = fresh(), fresh(), fresh()
    updates = [
        update(good, 1),
        update("test/bad#name", 1),
        update("BAD/name", 1),
        update(late, -1),
        update(late, "many"),
        update(late),
        update(late, 1, text="x" * 1025),
        update(late, 1, text="both", payload="AAAA"),
        update(late, 1, source="s" * 65),
        update(other, 7),
    ]
    answer = post(shared, "/v1/publish", updates)
    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [r["error"]["code"] if "error" in r else r["version"] for r in results] == [
        *("1", "bad_name", "bad_name", "bad_input", "bad_input", "bad_input"),
        *("too_large", "bad_input", "too_large", "7"),
    ]
    assert not any(r["error"]["retriable"] for r in results if "error" in r)
    assert all(r["error"]["text"] for r in results if "error" in r)
    assert (shared.read(good), shared.read(late), shared.read(other)) == (1, None, 7)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, "bad_input"),
        (b"{", 400, "bad_input"),
        (b"\xff\xfe", 400, "bad_input"),
        (b"7", 400, "bad_input"),
        (b'{"app": "test"}', 400, "bad_input"),
        (b'{"app": "test", "name": 7, "version": 1}', 400, "bad_input"),
        (b'{"app": "test", "name": "x", "version": 1.5}', 400, "bad_input"),
        (b'{"app": "test", "name": "x", "version": 1, "payload": "%%%"}', 400, "bad_input"),
        (b'"' + b"x" * (5 << 20) + b'"', 413, "too_large"),
    ],
)
def test_a_body_that_is_wrong_as_a_whole_is_refused_with_a_reason(
    shared: Node, body: bytes, status: int, code: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = HTTP.post(f"{shared.url}/v1/publish", content=body, headers=headers)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert (error["code"], error["retriable"]) == (code, False)
    assert error["text"]


def test_when_all_fail_the_status_says_so(shared: Node, fresh: Fresh) -> None:
    bad_name = post(shared, "/v1/publish", [update("test/#", 1), update(fresh(), -1)])
    assert bad_name.status_code == 400
    assert len(bad_name.json()["results"]) == 2
    assert post(shared, "/v1/publish", update(fresh(), 1, text="x" * 1025)).status_code == 413
    too_many = post(shared, "/v1/publish", [update(fresh(), 1)] * 1001)
    assert too_many.status_code == 413
    assert post(shared, "/v1/publish", []).json() == {"results": []}


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/publish", 405),
        ("GET", "/v1/objects/test", 404),
        ("GET", "/v1/objects/BAD/name", 400),
        ("GET", "/v1/objects/test/a%23b", 400),
        ("GET", "/v1/objects/test/" + "x" * 256, 400),
        ("GET", "/v1/events", 400),
        ("GET", "/v1/events?object=nothing", 400),
        ("GET", "/v1/events?object=test/x&object=test/x", 400),
        ("GET", "/v1/events?" + "&".join(f"object=test/{i}" for i in range(65)), 400),
    ],
)
def test_what_is_not_there_or_not_well_asked_is_an_error_in_our_words(
    shared: Node, method: str, path: str, status: int
) -> None:
    answer = HTTP.request(method, f"{shared.url}{path}")
    assert answer.status_code == status
    assert answer.json()["error"].keys() == {"code", "text", "retriable"}


def test_names_may_hold_slashes_and_any_letters(shared: Node) -> None:
    key = "test/region-1/küche/温度 2"
    shared.publish(key, 5, text="21,5 °C")
    found = HTTP.get(f"{shared.url}/v1/objects/{key}").json()
    assert found["name"] == "region-1/küche/温度 2"
    assert (found["version"], found["payload"]) == ("5", "MjEsNSDCsEM=")


def test_reset_forgets_the_version(shared: Node, fresh: Fresh) -> None:
    key = fresh()
    shared.publish(key, 100)
    answer = post(shared, "/v1/reset", update(key))
    assert (answer.status_code, answer.json()) == (200, {})
    assert shared.read(key) is None
    shared.publish(key, 3)
    assert shared.read(key) == 3
    assert post(shared, "/v1/reset", update("BAD/name")).status_code == 400


def test_it_describes_itself(shared: Node) -> None:
    schema = HTTP.get(f"{shared.url}/schema")
    assert schema.status_code == 200
    paths = schema.json()["paths"]
    assert {"/v1/publish", "/v1/reset", "/v1/status"} <= set(paths)
    assert any(path.startswith("/v1/objects/") for path in paths)
    assert HTTP.get(f"{shared.url}/healthz").text == "ok\n"
    assert HTTP.get(f"{shared.url}/readyz").text == "ready\n"


@in_loop
async def test_c86_last_event_id_brings_what_changed_since(shared: Node, fresh: Fresh) -> None:
    keys = [fresh() for _ in range(3)]
    shared.publish(keys[0], 41)
    shared.publish(keys[1], 7)
    async with SseDriver(shared) as client:
        await client.register(*keys)
        told = {await client.took() for _ in keys}
        assert told == {(keys[0], 41), (keys[1], 7), (keys[2], None)}
        await client.disconnect()
        shared.publish(keys[1], 8)
        await client.connect()
        assert await client.took() == (keys[1], 8)
        shared.publish(keys[2], 1)
        assert await client.took() == (keys[2], 1)
        assert client.inbox.empty()

    # Written by hand, without the hashes of epochs.
    url, headers = f"{shared.url}/v1/events", {"Last-Event-ID": "41.7.?"}
    with HTTP.stream("GET", url, params={"object": keys}, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        events = list(islice(_data(answer), 2))
    assert {(data["object"], data["version"]) for data in events} == {
        (keys[1], "8"),
        (keys[2], "1"),
    }


def _data(answer: httpx.Response) -> Iterator[Any]:
    return (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))


@pytest.mark.parametrize("id", ["", "x", "1.2.3", "-1", "99999999999999999999", "1-", "..", "5-zz"])
def test_an_event_id_that_is_none_of_ours_is_as_good_as_none(
    shared: Node, fresh: Fresh, id: str
) -> None:
    key = fresh()
    shared.publish(key, 6)
    url, headers = f"{shared.url}/v1/events", {"Last-Event-ID": id}
    with HTTP.stream("GET", url, params={"object": key}, headers=headers) as answer:
        told = next(_data(answer))
    assert (told["object"], told["version"]) == (key, "6")
