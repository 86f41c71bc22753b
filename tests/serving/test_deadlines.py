"""Clients that begin something and do not go on with it are sent away, on every port."""

import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from itertools import product

import httpx
import pytest
from tests.serving import certificates
from tests.serving.nodes import PATIENCE_S, Node, await_that
from websockets.sync.client import connect
from websockets.typing import Subprotocol

from roskva.wire.codec import encode
from roskva.wire.messages import PROTOCOL, Hello

HANDSHAKE_S = 4.0
"""Long enough for a handshake on a busy machine."""
SETTINGS = f"[limits]\nhandshake_seconds = {HANDSHAKE_S}\nbody_seconds = {HANDSHAKE_S}"
UPGRADE = (
    b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: roskva.v1.json\r\n\r\n"
)


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


def ended(node: Node, port: int, *said: bytes) -> list[tuple[bytes, float]]:
    """The answer to each of these on a connection of its own, all at once, and when it ended."""

    def one(said: bytes) -> tuple[bytes, float]:
        began = time.monotonic()  # before the node, which counts from when it is connected to
        with connection(node, port) as conn:
            conn.sendall(said)
            return until_closed(conn), time.monotonic() - began

    with ThreadPoolExecutor(len(said)) as pool:
        return list(pool.map(one, said))


UNFINISHED = {
    b"": b"",
    b"GET /healthz HT": b"HTTP/1.1 408",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n": b"HTTP/1.1 408",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\n": b"HTTP/1.1 200",
    b"POST /v1/publish HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{": b"HTTP/1.1 408",
    UPGRADE: b"HTTP/1.1 101",
}
"""And how the answer begins."""


def test_unfinished_business_on_the_http_port_ends(node: Node) -> None:
    found = ended(node, node.port, *UNFINISHED)
    for (said, wanted), (answer, after_s) in zip(UNFINISHED.items(), found, strict=True):
        assert answer.startswith(wanted), said
        assert HANDSHAKE_S * 0.9 < after_s < PATIENCE_S, said


def test_a_connect_that_does_not_come_ends_the_connection(node: Node) -> None:
    for answer, _ in ended(node, node.mqtt_port, b"", b"\x10", b"\x10\x0e\x00\x04MQTT"):
        assert answer == b""


def test_a_tls_handshake_that_is_not_finished_ends(node: Node) -> None:
    if node.scheme == "http":
        pytest.skip("there is no TLS here")
    with ExitStack() as stack:
        conns = []
        for port, said in product((node.port, node.mqtt_port), (b"", b"\x16\x03\x01")):
            conn = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
            conns.append(stack.enter_context(conn))
            conn.sendall(said)
        for conn in conns:
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
    with ExitStack() as stack:
        # Each says what it has to say before the next one comes, or might be late itself.
        client = stack.enter_context(
            connect(
                node.url.replace("http", "ws") + "/v1/ws",
                subprotocols=[Subprotocol("roskva.v1.msgpack")],
                ssl=context,
            )
        )
        client.send(encode(Hello(PROTOCOL, bytes(8), "test")))
        reader = stack.enter_context(connection(node, node.port))
        reader.sendall(b"GET /v1/events?object=test/x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        # Longer than any deadline, seen by others who miss theirs twice.
        for _ in range(2):
            ended(node, node.port, b"")
        assert client.ping().wait(PATIENCE_S)
        node.publish("test/x", 1)
        heard = b""
        while b'"version":"1"' not in heard:
            heard += reader.recv(65536)


def is_ready(node: Node) -> bool:
    """Whoever asks among hundreds may be late with a handshake itself."""
    try:
        return node.is_ready()
    except httpx.TransportError:
        return False


def test_hundreds_of_them_are_gone_and_others_did_not_wait(node: Node) -> None:
    conns = [
        socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        for port in (node.port, node.mqtt_port)
        for _ in range(200)
    ]
    try:
        for conn in conns:
            conn.sendall(b"\x16\x03\x01" if node.scheme == "https" else b"\x10")
        await_that(lambda: is_ready(node), PATIENCE_S)
        for conn in conns:
            until_closed(conn)
        await_that(lambda: is_ready(node), PATIENCE_S)
    finally:
        for conn in conns:
            conn.close()
