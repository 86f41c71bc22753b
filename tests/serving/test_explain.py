"""`roskva explain` against situations that are staged for real, on a node with traffic."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jwt.algorithms import OKPAlgorithm
from paho.mqtt import client as paho
from tests.loops import in_loop
from tests.serving.drivers.mqtt import Mqtt5Driver
from tests.serving.drivers.websocket import JsonDriver, Message, MsgpackDriver
from tests.serving.nodes import HTTP, PATIENCE_S, ROSKVA, Node, await_that
from tests.serving.slow_readers import SlowWebSocket

from roskva.model import shard_of

KEY = "correct horse battery staple"
StartNode = Callable[..., Node]


def client_of(driver: MsgpackDriver | JsonDriver) -> str:
    grant = next(message["grant"] for message in driver.heard if message.get("grant"))
    return driver.binary(grant["client"]).hex()


def explain(node: Node, *words: str, ends_with: int = 0, key: str = "") -> dict[str, Any]:
    """What the command says, which must be what the API says."""
    keyed = ["--key", key] if key else []
    command = [ROSKVA, "explain", *words, "--url", node.url, *keyed]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == ends_with, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def ask(node: Node, path: str, key: str = "") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    answer = HTTP.get(f"{node.url}/v1/admin/{path}", headers=headers)
    found: dict[str, Any] = answer.raise_for_status().json()
    return found


async def until(node: Node, path: str, words: str, key: str = "") -> dict[str, Any]:
    """The answer, when its sentence has these words."""

    def found() -> dict[str, Any] | None:
        answer = ask(node, path, key)
        return answer if words in answer["sentence"] else None

    return await asyncio.to_thread(
        await_that,
        found,
        PATIENCE_S,
        lambda: f"{words!r} is not in {ask(node, path, key)['sentence']!r}",
    )


@in_loop
async def test_fresh(shared: Node, fresh: Callable[[], str]) -> None:
    first, second = fresh(), fresh()
    shared.publish(first, 7)
    shared.publish(second, 1)
    async with MsgpackDriver(shared, "phone-1") as driver:
        await driver.register(first, second)
        await driver.took_latest({first: 7, second: 1})
        client = client_of(driver)
        said = await until(shared, f"clients/{client}", "Fresh")
        assert said["sentence"] == (
            "Fresh: online over websocket, and has acked the latest of all 2 objects."
        )
        assert explain(shared, "client", client) | {"silent_seconds": 0} == said | {
            "silent_seconds": 0
        }
        assert {
            (r["object"], r["state"], r["acked"], r["version"]) for r in said["registrations"]
        } == {
            (first, "fresh", "7", "7"),
            (second, "fresh", "1", "1"),
        }
        assert explain(shared, "client", "phone-1")["client"] == client
        about = explain(shared, "object", first)
        assert "Stands at version 7" in about["sentence"]
        assert "The one session that is registered is fresh." in about["sentence"]


@in_loop
async def test_pending(shared: Node, fresh: Callable[[], str]) -> None:
    key = fresh()
    shared.publish(key, 1)
    async with MsgpackDriver(shared) as driver:
        await driver.register(key)
        await driver.took()
        shared.publish(key, 2)
        await driver.told()
        client = client_of(driver)
        said = explain(shared, "client", client)
        assert said["sentence"].startswith(
            "Online over websocket, and pending: it was told 1 object of 1 and has not acked"
        )
        assert said["registrations"] == [
            {"object": key, "state": "pending", "acked": "1", "version": "2"}
        ]
        about = explain(shared, "object", key)
        assert "The one session that is registered is pending." in about["sentence"]
        assert about["slowest"][0]["client"] == client


@in_loop
async def test_offline(shared: Node, fresh: Callable[[], str]) -> None:
    keys = [fresh(), fresh(), fresh()]
    for key in keys:
        shared.publish(key, 1)
    async with MsgpackDriver(shared) as driver:
        await driver.register(*keys)
        await driver.took_latest(dict.fromkeys(keys, 1))
        client = client_of(driver)
    await until(shared, f"clients/{client}", "has nothing to be told")
    for key in keys[:2]:
        shared.publish(key, 5)
    said = explain(shared, "client", client)
    assert said["presence"] == "offline"
    assert said["sentence"].startswith("Offline for ")
    assert said["sentence"].endswith("; will be told 2 objects when it returns.")
    assert said["counts"] == {"pending": 2, "fresh": 1}
    shared.reset(keys[2])
    await until(shared, f"clients/{client}", "3 objects when it returns, 1 of them as unknown.")


@in_loop
async def test_slow_reader(shared: Node, fresh: Callable[[], str]) -> None:
    key = fresh()
    shared.publish(key, 1)
    reader = SlowWebSocket(shared, key)
    await reader.register()
    app, _, name = key.partition("/")
    version = 1
    slow = False
    while not slow:
        updates = [
            {"app": app, "name": name, "version": version + i, "text": "." * 1000}
            for i in range(1, 51)
        ]
        version += 50
        await asyncio.to_thread(shared.publish_all, updates)
        about = await asyncio.to_thread(ask, shared, f"objects/{key}")
        slow = about["slow"] == 1
    assert "is pending, a slow reader." in about["sentence"]
    client = about["slowest"][0]["client"]
    said = explain(shared, "client", client)
    assert said["sentence"] == (
        "Online over websocket, and a slow reader: it does not take what it is sent. 1 object will "
        "be told at the newest version once it reads again."
    )
    assert any("does not read" in wrong["text"] for wrong in ask(shared, "now")["troubles"])
    await reader.read_until(version)
    reader.close()
    await until(shared, f"objects/{key}", "Nobody who is online")


@in_loop
async def test_unknown_version(shared: Node, fresh: Callable[[], str]) -> None:
    key = fresh()
    shared.publish(key, 9)
    async with MsgpackDriver(shared) as driver:
        await driver.register(key)
        await driver.took()
        shared.reset(key)
        told = await driver.told()
        assert told.version is None
        said = explain(shared, "client", client_of(driver))
        assert "Of 1 object the version is unknown: it was told to look" in said["sentence"]
        assert said["registrations"][0]["state"] == "unknown"
        assert "It was reset" in explain(shared, "object", key)["sentence"]
        await driver.ack(told)
        await until(shared, f"clients/{client_of(driver)}", "Fresh")


def test_unknown_client(shared: Node) -> None:
    said = explain(shared, "client", "0" * 32, ends_with=1)
    assert said["presence"] == "nobody"
    assert said["sentence"].startswith("No client has this id")
    assert explain(shared, "object", "test/never-published")["sentence"] == (
        "Nothing was published to it yet. Nobody who is online is registered for it."
    )


@in_loop
async def test_fenced(shared: Node, fresh: Callable[[], str]) -> None:
    key = fresh()
    shared.publish(key, 1)
    async with MsgpackDriver(shared) as driver:
        await driver.register(key)
        await driver.took()
        async with driver.twin():
            await driver.told_the_end()
            said = explain(shared, "client", client_of(driver))
            assert said["presence"] == "online"
            assert "Fenced " in said["sentence"]
            assert "connected again with the same identity" in said["sentence"]
            assert said["notes"][0]["code"] == "fenced"


@in_loop
async def test_an_mqtt_client_by_its_own_id_online_and_away(
    shared: Node, fresh: Callable[[], str]
) -> None:
    key = fresh()
    shared.publish(key, 1)
    driver = Mqtt5Driver(shared)
    async with driver:
        await driver.register(key)
        await driver.took()
        said = await until(shared, f"clients/{driver.application}", "Fresh: online over mqtt")
    away = await until(shared, f"clients/{driver.application}", "Offline")
    assert away["client"] == said["client"]


@in_loop
async def test_a_client_that_is_away_by_the_id_that_its_application_gave(
    start_node: StartNode, fresh: Callable[[], str]
) -> None:
    node, key = start_node("--registrars", "1", "--matchers", "2"), fresh()
    node.publish(key, 1)
    clients = []
    for _ in range(2):
        async with MsgpackDriver(node, "phone-17") as driver:
            await driver.register(key)
            await driver.took()
            clients.append(client_of(driver))
            said = ask(node, "clients/phone-17")
            assert (said["presence"], said["client"]) == ("online", clients[-1])
    await until(node, f"clients/{clients[1]}", "Offline")
    said = explain(node, "client", "phone-17")
    assert (said["presence"], said["client"]) == ("offline", clients[1])
    assert said["others"] == clients[:1]
    assert f"gave the same id: {clients[0]}." in said["sentence"]
    nobody = explain(node, "client", "phone-18", ends_with=1)
    assert "Clients are found by their own id (32 hexadecimal digits)" in nobody["sentence"]


@in_loop
async def test_matcher_down(start_node: StartNode) -> None:
    node = start_node("--registrars", "1", "--matchers", "2", "--shards", "2")
    key = next(f"test/{i}" for i in range(99) if shard_of(f"test/{i}", 2) == 1)
    node.publish(key, 1)
    async with MsgpackDriver(node) as driver:
        await driver.register(key)
        await driver.took()
        stopped = node.signal("state-1", signal.SIGSTOP)
        client = client_of(driver)
        said = await until(node, f"clients/{client}", "state-1 does not answer")
        assert "What 1 of its 1 object stands at is not known" in said["sentence"]
        assert said["registrations"][0]["state"] == "blind"
        about = explain(node, "object", key, ends_with=1)
        assert "state-1, which keeps shard 1, does not answer" in about["sentence"]
        await until(node, "now", "state-1 does not answer: updates for shard 1 wait")
        os.kill(stopped, signal.SIGCONT)
        await until(node, f"clients/{client}", "Fresh")
        await until(node, "now", "Everything works")


class Keyed(Node):
    """Nobody is let in who does not show who it is."""

    def status(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {KEY}"}
        answer = HTTP.get(f"{self.url}/v1/status", headers=headers)
        found: dict[str, Any] = answer.raise_for_status().json()
        return found


class Credentialed(JsonDriver):
    credential = ""

    def encode(self, message: Message) -> str:
        if message["type"] == "hello":
            message = message | {"credential": self.credential}
        return super().encode(message)


@pytest.fixture
def keyed(tmp_path: Path) -> Iterator[tuple[Keyed, str]]:
    """A node where alice may register for what is hers, and her JWT."""
    private = Ed25519PrivateKey.generate()
    jwk = {**OKPAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k", "alg": "EdDSA"}
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [jwk]}))
    (tmp_path / "admin.key").write_text(KEY)
    (tmp_path / "roskva.toml").write_text(
        f'[admin]\nkey = "file:{tmp_path / "admin.key"}"\n'
        f'[apps.test]\njwks = "{tmp_path / "jwks.json"}"\nregister = ["{{principal}}/*"]\n'
    )
    now = int(time.time())
    claims = {"sub": "alice", "aud": "test", "iat": now, "exp": now + 600}
    token = jwt.encode(claims, private, "EdDSA", headers={"kid": "k"})
    node = Keyed(tmp_path / "data", "--config", str(tmp_path / "roskva.toml"))
    try:
        node.start()
        yield node, token
    finally:
        node.end()


@in_loop
async def test_unauthorised(keyed: tuple[Keyed, str]) -> None:
    node, token = keyed
    driver = Credentialed(node)
    driver.credential = token
    async with driver:
        await driver.register("test/alice/mail")
        await driver._register(["test/bob/mail"], None)  # without wanting it any longer
        client = client_of(driver)
        said = explain(node, "client", client, key=KEY)
        assert "Unauthorised: it may not register for test/bob/mail" in said["sentence"]
        assert said["principal"] == "alice"
        assert [one["object"] for one in said["registrations"]] == ["test/alice/mail"]
    with pytest.raises(httpx.HTTPStatusError, match="403"):
        ask(node, f"clients/{client}")


@in_loop
async def test_an_mqtt_client_with_a_credential_by_its_own_id(keyed: tuple[Keyed, str]) -> None:
    node, token = keyed
    driver = Mqtt5Driver(node)
    new = driver._new

    def with_credential() -> paho.Client:
        client = new()
        client.username_pw_set("test", token)
        return client

    driver._new = with_credential  # type: ignore[method-assign]
    async with driver:
        await driver.register("test/alice/mail")
    away = await until(node, f"clients/{driver.application}", "Offline", KEY)
    assert away["registrations"][0]["object"] == "test/alice/mail"


def test_the_admin_api_is_in_the_schema(shared: Node) -> None:
    paths = HTTP.get(f"{shared.url}/schema/openapi.json").json()["paths"]
    assert {
        "/v1/admin/now",
        "/v1/admin/objects/{app}/{name}",
        "/v1/admin/clients/{id}",
        "/v1/admin/pipeline",
    } <= set(paths)
