"""What is no message, on every channel: it is refused, it ends one connection at most, and
everybody else goes on. (A node that logged a traceback fails at its end.)"""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.loops import in_loop
from tests.serving.drivers.websocket import JsonDriver, MsgpackDriver, WebSocketDriver
from tests.serving.everybody import everybody
from tests.serving.nodes import HTTP, PATIENCE_S, Node
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

Fresh = Callable[[], str]
CONNECT_3 = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02me"
CONNECT_5 = b"\x10\x0f\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x02me"

formats = pytest.mark.parametrize("driver", [MsgpackDriver, JsonDriver])


@formats
@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\x00",
        b"\xc1\xc1\xc1",
        b"{",
        b"null",
        b"[]",
        b'{"type": "hello"}',
        b'{"type": "client", "v": "1.0", "session": "x", "number": "1"}',
        b'{"type": "server", "v": "1.0"}',
        "{\ud83d".encode("utf-8", "replace"),
        b'{"type": "client", "v": "1.0", "session": "1", "number": "99999999999999999999999"}',
    ],
)
@in_loop
async def test_c13_a_frame_that_is_no_message_is_refused_and_the_session_goes_on(
    shared: Node, fresh: Fresh, driver: type[WebSocketDriver], frame: bytes
) -> None:
    key = fresh()
    async with driver(shared) as client:
        assert client.socket is not None
        binary = driver is MsgpackDriver
        await client.socket.send(frame if binary else frame.decode("latin-1"))
        while not any(m.get("error") for m in client.heard):
            await client.hear()
        assert [m["error"]["code"] for m in client.heard if m.get("error")] == ["bad_message"]
        await client.register(key)
        assert await client.took() == (key, None)


@formats
@in_loop
async def test_another_major_version_is_refused_for_good(
    shared: Node, driver: type[WebSocketDriver]
) -> None:
    async with driver(shared) as client:
        assert client.socket is not None
        hello = {"type": "hello", "v": "2.0", "nonce": os.urandom(8), "app": "test"}
        await client.socket.send(client.encode(hello))
        assert await client.told_the_end() == "wrong_protocol, 1002"


@formats
@in_loop
async def test_a_client_that_never_says_anything_sensible_is_hung_up_on(
    shared: Node, driver: type[WebSocketDriver]
) -> None:
    async with driver(shared) as client:
        assert client.socket is not None
        for _ in range(20):
            await client.socket.send("nonsense" if driver is JsonDriver else b"nonsense")
        assert (await client.told_the_end()).endswith("1002")


@formats
@in_loop
async def test_a_frame_that_is_too_large_ends_the_connection(
    shared: Node, driver: type[WebSocketDriver]
) -> None:
    async with driver(shared) as client:
        assert client.socket is not None
        await client.socket.send("x" * 70_000 if driver is JsonDriver else b"x" * 70_000)
        assert await client.told_the_end() == "1009"


@formats
@in_loop
async def test_bad_and_foreign_names_are_refused_by_name(
    shared: Node, fresh: Fresh, driver: type[WebSocketDriver]
) -> None:
    good = fresh()
    async with driver(shared) as client:
        await client.say(operations=[["other/object", True, None], [good, True, None]])
        while len(client.statuses) < 2:
            await client.hear()
        codes = {s[0]: s[3] for m in client.heard for s in m.get("statuses", [])}
        assert codes == {"other/object": "unauthorised", good: None}
        for name in ("test/#", "BAD/name", "nothing", "test/" + "ü" * 128):
            client.heard.clear()
            await client.say(operations=[[name, True, None]])
            while not any(m.get("error") for m in client.heard):
                await client.hear()
            refused = [m["error"]["code"] for m in client.heard if m.get("error")]
            assert refused == ["bad_message"], name


@pytest.mark.parametrize(
    ("path", "subprotocols", "status"),
    [
        ("/v1/ws", ["roskva.v2"], 400),
        ("/v1/ws", None, 400),
        ("/v1/elsewhere", ["roskva.v1.json"], 404),
        ("/", ["roskva.v1.json"], 404),
    ],
)
@in_loop
async def test_a_wrong_path_or_subprotocol_is_refused_in_the_handshake(
    shared: Node, path: str, subprotocols: list[Subprotocol] | None, status: int
) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await connect(f"ws://127.0.0.1:{shared.port}{path}", subprotocols=subprotocols)
    assert refused.value.response.status_code == status
    assert refused.value.response.body


def test_the_websocket_path_without_an_upgrade_is_an_ordinary_error(shared: Node) -> None:
    assert HTTP.get(f"{shared.url}/v1/ws").status_code in (400, 404, 426)


@pytest.mark.parametrize(
    "said",
    [
        b"\x00" * 100,
        b"\xff" * 10_000,
        os.urandom(1000),
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: nine\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
        b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\n"
        b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
    ],
    ids=range(8),
)
def test_garbage_on_the_http_port_ends_that_connection(shared: Node, said: bytes) -> None:
    with _connection(shared.port) as conn:
        conn.sendall(said)
        answer = _until_closed(conn)
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert HTTP.get(f"{shared.url}/healthz").is_success


@pytest.mark.parametrize(
    "said",
    [
        b"\x00" * 100,
        b"\xff" * 100,
        b"GET / HTTP/1.1\r\nHost: 127.0.0.1:1883\r\nUser-Agent: somebody\r\nAccept: */*\r\n\r\n",
        b"\x30\x05\x00\x01aaa",  # PUBLISH before CONNECT
        b"\x10\x0e\x00\x04MQTX\x04\x02\x00\x3c\x00\x02me",
        b"\x10\x0e\x00\x04MQTT\x03\x02\x00\x3c\x00\x02me",  # level 3
        b"\x10\xff\xff\xff\xff\xff",  # no length
        b"\x10\xff\xff\xff\x7f",  # 256 MiB to come
        CONNECT_3 + CONNECT_3,
        CONNECT_3 + b"\x82\x02\x00\x01",  # SUBSCRIBE to nothing
        CONNECT_3 + b"\x82\x06\x00\x00\x00\x01a\x01",  # id 0
        CONNECT_3 + b"\x36\x05\x00\x01aaa",  # QoS 3
        CONNECT_3 + b"\x30\xff\xff\x7f",  # 2 MiB to come
        CONNECT_3 + b"\x30\x05\x00\x03\xff\xfe\xfd",  # no UTF-8
        CONNECT_3 + b"\xf0\x00",  # AUTH on 3.1.1
        CONNECT_5 + b"\x82\x07\x00\x01\x05\x00\x01a\x01",  # properties that do not end
        CONNECT_5 + b"\x32\x03\x00\x00\x00",  # no topic
    ],
    ids=range(17),
)
def test_garbage_on_the_mqtt_port_ends_that_connection(shared: Node, said: bytes) -> None:
    with _connection(shared.mqtt_port) as conn:
        conn.sendall(said)
        _until_closed(conn)


@contextmanager
def _connection(port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as conn:
        yield conn


def _until_closed(conn: socket.socket) -> bytes:
    answer = b""
    try:
        while data := conn.recv(65536):
            answer += data
    except ConnectionResetError:
        pass
    return answer


@in_loop
async def test_nobody_else_notices(shared: Node, fresh: Fresh) -> None:
    """Garbage of every kind beside a client of every kind."""
    key = fresh()
    shared.publish(key, 1)
    async with everybody(shared) as clients:
        await clients.register(key)
        await clients.took((key, 1))
        for port in (shared.port, shared.mqtt_port):
            for _ in range(20):
                with _connection(port) as conn:
                    conn.sendall(os.urandom(500))
        shared.publish(key, 2)
        await clients.took((key, 2))
        assert not any(client.ended.done() for client in clients.drivers.values())
