"""Apps that may be used over some channels only, asked for over every one of them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.channels import mqtt_side
from tests.loops import in_loop
from tests.serving.keyed import Issuer, KeyedNode
from tests.serving.nodes import HTTP, Node
from tests.serving.raw_mqtt import RawMqtt
from tests.serving.raw_websocket import hear, hello, raw_websocket, register, say

from roskva.wire.mqtt import codes
from roskva.wire.mqtt.codes import V3, V5

SETTINGS = """
[apps.devices]
channels = ["mqtt"]
[apps.pages]
channels = ["websocket"]
[apps.news]
channels = ["events", "http"]
"""
NOT_AUTHORISED = 0x87


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("channels")
    settings = directory / "roskva.toml"
    settings.write_text(SETTINGS)
    node = Node(directory / "data", "--config", str(settings))
    try:
        node.start()
        yield node
    finally:
        node.end()


def refused(app: str, channel: str, instead: str) -> dict[str, Any]:
    text = f"the app {app} is not used over {channel} here: use {instead}"
    return {"code": "unauthorised", "text": text, "retriable": False}


def of(kind: int, packets: list[bytes]) -> list[bytes]:
    return [packet for packet in packets if packet[0] >> 4 == kind]


@in_loop
async def test_an_app_without_websockets_says_so_to_a_hello(node: Node) -> None:
    async with raw_websocket(node.port) as socket:
        await say(socket, hello(app="devices"))
        told = refused("devices", "websocket", "mqtt")
        error = (await hear(socket, "error"))["error"]
        assert error == {"code": told["code"], "text": told["text"]}
        await say(socket, hello(app="pages"))
        session = (await hear(socket, "grant"))["session"]
        await say(socket, register(session, 1, "pages/x"))
        assert (await hear(socket, "statuses"))["statuses"][0][:2] == ["pages/x", True]


@pytest.mark.parametrize("version", [V3, V5])
@in_loop
async def test_an_app_without_mqtt_says_so_to_subscribe_and_publish(
    node: Node, version: int
) -> None:
    async with RawMqtt(node.mqtt_port) as client:
        await client.answers(codes.CONNACK, mqtt_side.connect(version))
        asked = mqtt_side.subscribe(version, 1, ("pages/x", 1), ("devices/x", 1))
        (suback,) = of(codes.SUBACK, await client.answers(codes.SUBACK, asked))
        assert suback[-2:] == bytes([NOT_AUTHORISED if version == V5 else 0x80, 1])
        asked = mqtt_side.publish(version, "pages/x", b"1", qos=1, id=7)
        (puback,) = of(codes.PUBACK, await client.answers(codes.PUBACK, asked))
        if version == V5:
            assert puback[4] == NOT_AUTHORISED
            assert refused("pages", "mqtt", "websocket")["text"].encode() in puback
        else:
            assert puback == mqtt_side.puback(7), "3.1.1 has no word for it"


def test_an_app_without_http_says_so_to_every_request(node: Node) -> None:
    def ask(method: str, path: str, **body: Any) -> tuple[int, Any]:
        answer = HTTP.request(method, node.url + path, **body)
        return answer.status_code, answer.json()

    told = refused("pages", "http", "websocket")
    name = {"app": "pages", "name": "x"}
    assert ask("GET", "/v1/objects/pages/x") == (403, {"error": told})
    assert ask("POST", "/v1/reset", json=name) == (403, {"error": told})
    new = {**name, "version": "1"}
    assert ask("POST", "/v1/publish", json=new) == (403, {"results": [{"error": told}]})
    news = {"app": "news", "name": "x", "version": "1"}
    both = [{"error": told}, {"version": "1"}]
    assert ask("POST", "/v1/publish", json=[new, news]) == (200, {"results": both})
    told = refused("pages", "events", "websocket")
    streams = "/v1/events?object=news/x&object=pages/x"
    assert ask("GET", streams) == (403, {"error": told})
    with HTTP.stream("GET", f"{node.url}/v1/events?object=news/x") as stream:
        assert stream.status_code == 200


@in_loop
async def test_who_is_there_when_a_channel_is_closed_goes_and_hears_why(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    jwt = issuer.jwt("alice", "contacts")

    def settings(*channels: str) -> str:
        named = ", ".join(f'"{channel}"' for channel in channels)
        return f'[apps.contacts]\njwks = "{issuer.jwks}"\nregister = ["**"]\nchannels = [{named}]\n'

    node = KeyedNode(tmp_path / "data", settings("websocket", "mqtt"))
    try:
        node.start()
        async with raw_websocket(node.port, jwt) as socket:
            await say(socket, hello(app="contacts"))
            token = (await hear(socket, "grant"))["grant"]["token"]
            node.reload_with(settings("mqtt"))
            assert "not_before_ms" in await hear(socket, "not_before_ms")
        async with raw_websocket(node.port, jwt) as socket:
            for shown in ({"token": token}, {"app": "contacts"}):
                await say(socket, hello(**shown))
                error = (await hear(socket, "error"))["error"]
                assert error["text"] == refused("contacts", "websocket", "mqtt")["text"]
        connect = mqtt_side.connect(V5, user="", password=jwt.encode())
        async with RawMqtt(node.mqtt_port) as client:
            (connack,) = await client.answers(codes.CONNACK, connect)
            assert connack[3] == 0
            node.reload_with(settings("websocket"))
            assert of(codes.DISCONNECT, await client.answers(codes.DISCONNECT))
        async with RawMqtt(node.mqtt_port) as client:
            (connack,) = await client.answers(codes.CONNACK, connect)
            assert connack[3] == NOT_AUTHORISED
            assert refused("contacts", "mqtt", "websocket")["text"].encode() in connack
    finally:
        node.end()
