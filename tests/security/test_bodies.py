"""Bodies of strangers: refused before they are read, and not waited for."""

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.serving.keyed import KeyedNode, publish_key
from tests.serving.nodes import PATIENCE_S
from tests.serving.test_deadlines import until_closed

from roskva.channels.connections import Connections
from roskva.channels.http_protocol import Entrance
from roskva.channels.peers import Addresses, Peers
from roskva.server.listeners import HttpPort

HANDSHAKE_S: Final = 0.5
BODY_S: Final = 2 * PATIENCE_S


def test_the_credential_is_looked_at_before_the_body(tmp_path: Path) -> None:
    node = KeyedNode(tmp_path / "data", f'[apps.contacts]\npublish_keys = ["{publish_key()[1]}"]')
    try:
        node.start()
        for path in (b"publish", b"reset", b"poll"):
            with socket.create_connection(("127.0.0.1", node.port), PATIENCE_S) as conn:
                conn.sendall(b"POST /v1/%s HTTP/1.1\r\nHost: localhost\r\n" % path)
                conn.sendall(b"Content-Length: 1000000\r\n\r\n{")
                assert conn.recv(12) == b"HTTP/1.1 401"
    finally:
        node.end()


@contextmanager
def _port() -> Iterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers = Peers(())
        entrance = Entrance(
            *(peers, Addresses(peers, 1000), Connections(1000)), HANDSHAKE_S, BODY_S, BODY_S
        )
        port = HttpPort(app, None, entrance, {})
        serving = threading.Thread(target=lambda: asyncio.run(port.serve([listener])))
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            port.should_exit = True
            serving.join()


def test_a_body_that_comes_too_slowly_is_cut_off() -> None:
    with _port() as port, socket.create_connection(("127.0.0.1", port), PATIENCE_S) as conn:
        began = time.monotonic()
        conn.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n")
        conn.sendall(bytes(900_000))
        assert until_closed(conn).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < BODY_S / 2


def test_a_body_that_comes_steadily_is_waited_for() -> None:
    with _port() as port, socket.create_connection(("127.0.0.1", port), PATIENCE_S) as conn:
        began = time.monotonic()
        conn.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        while time.monotonic() - began < 4 * HANDSHAKE_S:
            conn.sendall(b"1000\r\n%s\r\n" % bytes(4096))
            time.sleep(HANDSHAKE_S / 20)
        conn.sendall(b"0\r\n\r\n")
        assert conn.recv(12) == b"HTTP/1.1 204"
