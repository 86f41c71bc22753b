"""Clients that begin something and do not go on with it are sent away, on every port."""

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from tests.serving import certificates
from tests.serving.nodes import Node
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from roskva.wire.codec import encode
from roskva.wire.messages import PROTOCOL, Hello

PATIENCE_S = 30.0
HANDSHAKE_S = 2.0
"""Long enough for a handshake on a busy machine."""
SETTINGS = f"[limits]\nhandshake_seconds = {HANDSHAKE_S}\nbody_seconds = 2.0"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: roskva.v1.json\r\n\r\n"
)
Connect = Callable[[Node], socket.socket]


@pytest.fixture(scope="module", params=["http", "https"])
def node(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Node]:
    place = tmp_path_factory.mktemp("deadlines")
    file = place / "roskva.toml"
    if request.param == "https":
        certificates.settings(file, certificates.made(place / "certs"), SETTINGS)
    else:
        file.write_text(SETTINGS)
    node = Node(place / "data", "--config", str(file))
    node.scheme = request.param
    try:
        node.start()
        yield node
    finally:
        node.end()


@contextmanager
def connection(node: Node, port: int) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain:
        if node.scheme == "http":
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as conn:
            yield conn


def until_closed(conn: socket.socket) -> bytes:
    answer = b""
    with suppress(ConnectionResetError, ssl.SSLEOFError):
        while data := conn.recv(65536):
            answer += data
    return answer


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        (b"", b""),
        (b"GET /healthz HT", b"HTTP/1.1 408"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n", b"HTTP/1.1 408"),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\n", b"HTTP/1.1 200"),
        (b"POST /v1/publish HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", b"HTTP/1.1 408"),
        (UPGRADE, b"HTTP/1.1 101"),
    ],
    ids=["nothing", "a line", "a head", "a second head", "a body", "no hello"],
)
def test_unfinished_business_on_the_http_port_ends(node: Node, said: bytes, answer: bytes) -> None:
    with connection(node, node.port) as conn:
        began = time.monotonic()
        conn.sendall(said)
        assert until_closed(conn).startswith(answer)
        assert HANDSHAKE_S * 0.9 < time.monotonic() - began < PATIENCE_S


@pytest.mark.parametrize("said", [b"", b"\x10", b"\x10\x0e\x00\x04MQTT"])
def test_a_connect_that_does_not_come_ends_the_connection(node: Node, said: bytes) -> None:
    with connection(node, node.mqtt_port) as conn:
        conn.sendall(said)
        assert until_closed(conn) == b""


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01"])
def test_a_tls_handshake_that_is_not_finished_ends(node: Node, said: bytes) -> None:
    if node.scheme == "http":
        pytest.skip("there is no TLS here")
    for port in (node.port, node.mqtt_port):
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as conn:
            conn.sendall(said)
            until_closed(conn)


def test_a_drop_now_and_then_does_not_help(node: Node) -> None:
    """A slow loris: each byte comes before patience would be over, counted from the last one."""
    with connection(node, node.port) as conn:
        began = time.monotonic()
        conn.sendall(b"GET / HTTP/1.1\r\n")
        with suppress(OSError):
            while time.monotonic() - began < PATIENCE_S:
                conn.sendall(b"X-A: b\r\n")
                conn.settimeout(HANDSHAKE_S / 5)
                with suppress(TimeoutError):
                    if not conn.recv(1000).startswith(b"HTTP/1.1 408"):
                        break
        assert time.monotonic() - began < PATIENCE_S / 2


def test_whoever_is_done_in_time_may_be_silent(node: Node) -> None:
    context = None
    if node.scheme == "https":
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    stream = b"GET /v1/events?object=test/x HTTP/1.1\r\nHost: x\r\n\r\n"
    with (
        connect(
            node.url.replace("http", "ws") + "/v1/ws",
            subprotocols=[Subprotocol("roskva.v1.msgpack")],
            ssl=context,
        ) as client,
        connection(node, node.port) as reader,
    ):
        client.send(encode(Hello(PROTOCOL, bytes(8), "test")))
        reader.sendall(stream)
        # Longer than any deadline, seen by others who miss theirs twice.
        for _ in range(4):
            with connection(node, node.port) as late:
                until_closed(late)
        client.ping().wait(PATIENCE_S)
        node.publish("test/x", 1)
        heard = b""
        while b'"version":"1"' not in heard:
            heard += reader.recv(65536)


def test_hundreds_of_them_are_gone_and_others_did_not_wait(node: Node) -> None:
    conns = [
        socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        for port in (node.port, node.mqtt_port)
        for _ in range(200)
    ]
    try:
        for conn in conns:
            conn.sendall(b"\x16\x03\x01" if node.scheme == "https" else b"\x10")
        assert node.is_ready()
        for conn in conns:
            until_closed(conn)
        assert node.is_ready()
    finally:
        for conn in conns:
            conn.close()
