"""What a stranger says through a proxy, or to one: requests of which a proxy may think otherwise
than the node, and names of addresses."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
from tests.serving.nodes import PATIENCE_S

from roskva.channels.connections import Connections
from roskva.channels.http_protocol import MAX_HEAD_BYTES, Entrance
from roskva.channels.peers import Addresses, Peers
from roskva.server.listeners import HttpPort

Seen = list[tuple[str, str, str]]
HOST: Final = b"Host: node\r\n"
CHUNKED: Final = b"Transfer-Encoding: chunked\r\n"
SECOND: Final = b"GET /second HTTP/1.1\r\nHost: node\r\n\r\n"


@pytest.fixture(scope="module")
def port() -> Iterator[tuple[int, Seen]]:
    """Of an app that says nothing; and its requests: the path, the client and the scheme."""
    seen: Seen = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["path"], scope["client"][0], scope["scheme"]))
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers = Peers(["127.0.0.1", "10.0.0.0/8"])
        entrance = Entrance(peers, Addresses(peers, 1000), Connections(1000), 5.0, 5.0, 5.0)
        port = HttpPort(app, None, entrance, {})
        serving = threading.Thread(target=lambda: asyncio.run(port.serve([listener])))
        serving.start()
        try:
            yield listener.getsockname()[1], seen
        finally:
            port.should_exit = True
            serving.join()


def answered(port: int, request: bytes) -> bytes:
    """All that comes until the node hangs up."""
    with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as conn:
        conn.sendall(request)
        said = b""
        while part := conn.recv(65536):
            said += part
    return said


@pytest.mark.parametrize(
    "request_",
    [
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 6\r\n" + CHUNKED + b"\r\n0\r\n\r\nX",
        b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"Content-Length: 6\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 0, 0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: +0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 99999999999999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n0;a=b\n\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n1\nx\n0\n\n",
        b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n0x1\r\nx\r\n0\r\n\r\n",
        b"POST / HTTP/1.1\r\n" + HOST + CHUNKED + b"\r\n" + b"f" * 17 + b"\r\nx",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\r" + CHUNKED + b"\r\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"X: a\0b\r\n\r\n",
        b"GET / HTTP/1.1\nHost: node\n\n",
        b"GET / HTTP/1.1\r\n" + HOST + b"hOST: evil.example\r\n\r\n",
        b"CONNECT evil.example:80 HTTP/1.1\r\n" + HOST + b"\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_a_proxy_may_read_otherwise_is_refused(
    port: tuple[int, Seen], request_: bytes
) -> None:
    number, seen = port
    said = answered(number, request_ + SECOND)
    assert said.startswith(b"HTTP/1.1 400")
    assert said.count(b"HTTP/1.1 ") == 1
    assert "/second" not in [path for path, _, _ in seen]


@pytest.mark.parametrize(
    ("headers", "client", "scheme"),
    [
        (["X-Forwarded-For: 6.6.6.6, 1.2.3.4"], "1.2.3.4", "http"),
        (["X-Forwarded-For: 6.6.6.6", "X-Forwarded-For: 1.2.3.4"], "1.2.3.4", "http"),
        (["X-Forwarded-For: 1.2.3.4, 10.0.0.7, 10.0.0.8"], "1.2.3.4", "http"),
        (["X-Forwarded-For: 6.6.6.6, unknown"], "127.0.0.1", "http"),
        (["X-Forwarded-For: 1.2.3.4, 0x7f000001"], "127.0.0.1", "http"),
        (["X-Forwarded-For: fe80::1%eth0"], "fe80::1", "http"),
        ([f"X-Forwarded-For: [fe80::1%{'z' * 1000}]:443"], "fe80::1", "http"),
        (["X-Forwarded-For: ::ffff:1.2.3.4"], "1.2.3.4", "http"),
        (["X-Forwarded-For: " + "10.0.0.1," * 5000 + "1.2.3.4"], "1.2.3.4", "http"),
        (["X-Forwarded-For: " + "6.6.6.6," * 5000 + "10.0.0.1"], "6.6.6.6", "http"),
        (["X-Forwarded-For: " + " ," * 20000 + "1.2.3.4"], "1.2.3.4", "http"),
        (["X-Forwarded-Proto: https"], "127.0.0.1", "https"),
        # The first one was there when the proxy added its own.
        (["X-Forwarded-Proto: https", "X-Forwarded-Proto: http"], "127.0.0.1", "http"),
        (["X-Forwarded-Proto: https, http"], "127.0.0.1", "http"),
        (["Forwarded: for=6.6.6.6;proto=https", "X-Real-IP: 6.6.6.6"], "127.0.0.1", "http"),
    ],
)
def test_only_what_the_last_proxy_has_added_is_believed(
    port: tuple[int, Seen], headers: list[str], client: str, scheme: str
) -> None:
    number, seen = port
    lines = "".join(f"{header}\r\n" for header in [*headers, "Host: node", "Connection: close"])
    assert len(lines) < MAX_HEAD_BYTES
    assert answered(number, f"GET /who HTTP/1.1\r\n{lines}\r\n".encode()).startswith(
        b"HTTP/1.1 204"
    )
    assert seen[-1] == ("/who", client, scheme)


def test_trailers_say_nothing_of_who_asks(port: tuple[int, Seen]) -> None:
    number, seen = port
    request = b"POST /who HTTP/1.1\r\n" + HOST + b"Connection: close\r\n" + CHUNKED
    answered(number, request + b"\r\n0\r\nX-Forwarded-For: 6.6.6.6\r\nHost: evil\r\n\r\n")
    assert seen[-1][1] == "127.0.0.1"
