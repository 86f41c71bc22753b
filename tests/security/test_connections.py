"""Connections that are held open, and readers that never read, on nodes with few files to open."""

import asyncio
import select
import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests.loops import run_within
from tests.serving import certificates
from tests.serving.nodes import FEW_FILES, HTTP, PATIENCE_S, Node, await_that
from tests.serving.slow_readers import SlowMqtt, SlowReader, SlowWebSocket
from tests.serving.test_deadlines import connection, until_closed

GET: Final = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
STREAM: Final = b"GET /v1/events?object=test/x HTTP/1.1\r\nHost: localhost\r\n\r\n"
MANY: Final = 1200
WRITE_S: Final = 0.5


@pytest.fixture(params=["http", "https"])
def node(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Node]:
    file = tmp_path / "roskva.toml"
    settings = f"[limits]\nwrite_seconds = {WRITE_S}\nhandshake_seconds = 60\n"
    if request.param == "https":
        certificates.settings(file, certificates.made(tmp_path / "certs"), settings)
    else:
        file.write_text(settings)
    node = Node(tmp_path / "data", "--config", str(file), command=FEW_FILES)
    node.scheme = request.param
    try:
        node.start()
        yield node
    finally:
        node.end()


def test_connections_that_are_held_open_shut_nobody_out(node: Node) -> None:
    with ExitStack() as stack:
        for number in range(MANY):
            # Over TLS: handshakes that are never finished, which are connections, too.
            port = node.mqtt_port if number % 4 == 3 else node.port
            conn = stack.enter_context(socket.create_connection(("127.0.0.1", port), PATIENCE_S))
            if node.scheme == "http" and number % 4 < 3:
                with suppress(OSError):  # it had to give way
                    conn.sendall((GET, STREAM, b"")[number % 4])
        for version in range(1, 20):
            update = {"app": "test", "name": "x", "version": version}
            assert HTTP.post(f"{node.url}/v1/publish", json=update).is_success
            assert HTTP.get(f"{node.url}/metrics").is_success
        open_files = len(list(Path(f"/proc/{node.pid('node')}/fd").iterdir()))
        assert open_files < 1000


@contextmanager
def _with_little_room(node: Node) -> Iterator[socket.socket]:
    """A connection whose system takes little that is not read."""
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(PATIENCE_S)
        plain.connect(("127.0.0.1", node.port))
        if node.scheme == "http":
            yield plain
            return
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        with context.wrap_socket(plain) as conn:
            yield conn


def _is_cut_off(conn: socket.socket) -> bool:
    """Reset: whoever does not read hears of nothing else."""
    watching = select.poll()
    watching.register(conn.fileno(), 0)
    return bool(watching.poll(0))


def test_whoever_asks_and_never_reads_is_cut_off(node: Node) -> None:
    with _with_little_room(node) as conn:
        conn.sendall(b"GET /schema/openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 30)
        await_that(partial(_is_cut_off, conn), PATIENCE_S)
    assert node.is_ready()


def test_a_stream_that_is_not_read_is_cut_off(node: Node) -> None:
    with _with_little_room(node) as conn:
        conn.sendall(STREAM)
        conn.recv(1000)
        version = 0

        def cut_off() -> bool:
            nonlocal version
            version += 1
            node.publish("test/x", version, text="x" * 1000)
            return _is_cut_off(conn)

        await_that(cut_off, PATIENCE_S)


@pytest.mark.parametrize("kind", [SlowWebSocket, SlowMqtt])
def test_notifications_may_be_left_unread(node: Node, kind: type[SlowReader]) -> None:
    if node.scheme == "https":
        pytest.skip("these readers speak no TLS")
    run_within(2 * PATIENCE_S, _leave_unread(node, kind))


def _updates(first: int, last: int) -> list[dict[str, Any]]:
    said = {"app": "test", "name": "slow"}
    return [{**said, "version": v, "text": f"{v} {'x' * 900}"} for v in range(first, last + 1)]


async def _leave_unread(node: Node, kind: type[SlowReader]) -> None:
    node.publish("test/slow", 1)
    reader = kind(node, "test/slow")
    await reader.register()
    try:
        last = 0
        for begin in range(2, 6000, 500):
            last = begin + 499
            await asyncio.to_thread(node.publish_all, _updates(begin, last))
        # Others come and are cut off meanwhile, which takes them longer than the deadline.
        await asyncio.to_thread(test_a_stream_that_is_not_read_is_cut_off, node)
        await reader.read_until(last)
    finally:
        reader.close()


def test_a_connection_has_so_many_requests_that_wait(node: Node) -> None:
    """What is read at once may hold thousands, each of which costs far more than its bytes."""
    with connection(node, node.port) as conn:
        conn.sendall(GET * 1000)
        assert b"HTTP/1.1 400" in until_closed(conn)
    with connection(node, node.port) as conn:
        conn.sendall(GET * 30)
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 30:
            answers += conn.recv(65536)
