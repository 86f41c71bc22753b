"""A node whose settings make everything that is done from time to time happen soon."""

import asyncio
from collections.abc import Iterator
from socket import create_connection

import pytest
from tests.channels import mqtt_side
from tests.loops import in_loop
from tests.serving.nodes import HTTP, PATIENCE_S, Node, await_that
from tests.serving.raw_mqtt import RawMqtt
from tests.serving.raw_websocket import hear, hello, raw_websocket, register, say

from roskva.wire.mqtt import codes, fields
from roskva.wire.mqtt.codes import V5
from roskva.wire.websocket import Opcode, frame

SETTINGS = """
[sessions]
heartbeat_seconds = 10
resend_seconds = 1
websocket_ping_seconds = 1
events_ping_seconds = 1
mqtt_keep_alive_seconds = 10
"""
UPGRADE = b"\r\n".join(
    [
        b"GET /v1/ws HTTP/1.1",
        b"Host: localhost",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        b"Sec-WebSocket-Protocol: roskva.v1.json",
        b"",
        b"",
    ]
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    directory = tmp_path_factory.mktemp("sessions")
    settings = directory / "roskva.toml"
    settings.write_text(SETTINGS)
    node = Node(directory / "data", "--config", str(settings))
    try:
        node.start()
        yield node
    finally:
        node.end()


@in_loop
async def test_what_is_not_acked_is_sent_again_as_often_as_is_set(node: Node) -> None:
    async with raw_websocket(node.port) as socket:
        await say(socket, hello(app="test"))
        granted = await hear(socket, "grant")
        assert granted["config"]["heartbeat_ms"] == "10000"
        await say(socket, register(granted["session"], 1, "test/x"))
        for _ in range(2):
            ((key, *_),) = (await hear(socket, "notifications"))["notifications"]
            assert key == "test/x"


@in_loop
async def test_a_websocket_that_answers_no_ping_is_given_up_at_the_next(node: Node) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(UPGRADE)
    heard = b""
    async with asyncio.timeout(PATIENCE_S):
        while part := await _read(reader):
            heard += part
    head, _, frames = heard.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101")
    assert frames == frame(Opcode.PING, b"")
    writer.close()


async def _read(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(65536)
    except ConnectionResetError:
        return b""


def test_a_stream_with_a_request_behind_it_ends_with_its_connection(node: Node) -> None:
    def streams() -> int:
        return sum(process["sessions"].get("events", 0) for process in node.status()["processes"])

    before = streams()
    stream = b"GET /v1/events?object=test/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
    behind = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with create_connection(("127.0.0.1", node.port), PATIENCE_S) as conn:
        conn.sendall(stream + behind)
        await_that(lambda: streams() > before, PATIENCE_S)
    await_that(lambda: streams() == before, PATIENCE_S)


def test_a_stream_of_events_gets_a_comment_as_often_as_is_set(node: Node) -> None:
    with HTTP.stream("GET", f"{node.url}/v1/events?object=test/x") as stream:
        assert next(line for line in stream.iter_lines() if line.startswith(":"))


@pytest.mark.parametrize("keep_alive", [0, 60])
@in_loop
async def test_mqtt_5_clients_are_told_the_longest_keep_alive(node: Node, keep_alive: int) -> None:
    async with RawMqtt(node.mqtt_port) as client:
        asked = mqtt_side.connect(V5, keep_alive=keep_alive)
        (connack,) = await client.answers(codes.CONNACK, asked)
        assert bytes([fields.SERVER_KEEP_ALIVE, 0, 10]) in connack
