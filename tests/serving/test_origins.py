"""Which web pages may use a node, as browsers ask; and whom a node believes about its clients."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.serving.nodes import HTTP, Node
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from roskva.channels.connections import Connections
from roskva.channels.http_protocol import Entrance
from roskva.channels.origins import Origins
from roskva.channels.peers import Addresses, Peers
from roskva.server.listeners import HttpPort

FRIEND, STRANGER, HERE = "https://app.example.com", "https://evil.example", "http://localhost:3000"


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """Behind a proxy on this machine, for the pages of one friend."""
    place = tmp_path_factory.mktemp("origins")
    (place / "roskva.toml").write_text(
        f'[node]\nallowed_origins = ["{FRIEND}"]\n[admin]\nkey = "file:{place}/key"\n'
    )
    (place / "key").write_text("k" * 16)
    flags = ("--config", str(place / "roskva.toml"), "--behind-proxy", "127.0.0.0/8,10.0.0.1")
    node = _Proxied(place / "data", *flags)
    try:
        node.start()
        yield node
    finally:
        node.end()


class _Proxied(Node):
    def status(self) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {'k' * 16}"}
        found: dict[str, Any] = HTTP.get(f"{self.url}/v1/status", headers=headers).json()
        return found


def websocket(node: Node, origin: str | None, **headers: str) -> int:
    try:
        with connect(
            node.url.replace("http", "ws") + "/v1/ws",
            origin=None if origin is None else Origin(origin),
            subprotocols=[Subprotocol("roskva.v1.json")],
            additional_headers=headers,
        ):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def get(node: Node, origin: str | None, **headers: str) -> httpx.Response:
    given = headers if origin is None else {"Origin": origin, **headers}
    return HTTP.get(f"{node.url}/healthz", headers=given)


def test_pages_of_other_origins_are_refused(shared: Node, proxied: Node) -> None:
    for node in (shared, proxied):
        for origin in (STRANGER, "null", "http://localhost.evil.example", "garbage", "http://["):
            assert websocket(node, origin) == 403
            answer = get(node, origin)
            assert answer.status_code == 403
            assert "allowed_origins" in answer.json()["error"]["text"]
            assert "access-control-allow-origin" not in answer.headers
            body = '{"app":"test","name":"forged","version":1}'
            forged = HTTP.post(
                f"{node.url}/v1/publish",
                content=body,
                headers={"Origin": origin, "Content-Type": "text/plain"},
            )
            assert forged.status_code == 403
        assert node.read("test/forged") is None


def test_programs_say_no_origin(shared: Node, proxied: Node) -> None:
    for node in (shared, proxied):
        assert websocket(node, None) == 101
        answer = get(node, None)
        assert answer.status_code == 200
        assert "access-control-allow-origin" not in answer.headers


def test_pages_of_this_machine_may_use_a_node_without_keys(shared: Node, proxied: Node) -> None:
    assert websocket(shared, HERE) == 101
    assert get(shared, HERE).headers["access-control-allow-origin"] == HERE
    assert websocket(proxied, HERE) == 403


def test_a_name_that_leads_here_need_not_be_ours(shared: Node) -> None:
    """DNS rebinding: the page and the node seem to be of one origin, which a GET does not say."""
    port = shared.port
    rebound = {"Host": f"evil.example:{port}"}
    assert get(shared, f"http://evil.example:{port}", **rebound).status_code == 421
    assert get(shared, None, **rebound).status_code == 421


def test_pages_that_are_named_get_what_browsers_ask_for(proxied: Node) -> None:
    assert websocket(proxied, FRIEND) == 101
    answer = get(proxied, FRIEND)
    assert answer.headers["access-control-allow-origin"] == FRIEND
    assert answer.headers["vary"] == "Origin"
    preflight = HTTP.options(
        f"{proxied.url}/v1/publish",
        headers={
            "Origin": FRIEND,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": "authorization",
        },
    )
    assert preflight.status_code == 204
    assert "POST" in preflight.headers["access-control-allow-methods"]
    assert "authorization" in preflight.headers["access-control-allow-headers"]
    published = HTTP.post(
        f"{proxied.url}/v1/publish",
        json={"app": "test", "name": "x", "version": 1},
        headers={"Origin": FRIEND},
    )
    assert published.is_success
    assert published.headers["access-control-allow-origin"] == FRIEND


def test_the_scheme_that_a_proxy_tells_counts(proxied: Node) -> None:
    """A page of the same origin came by https; the node sees http, and a header."""
    host = f"127.0.0.1:{proxied.port}"
    assert websocket(proxied, f"https://{host}", **{"X-Forwarded-Proto": "https"}) == 101
    assert get(proxied, f"https://{host}", **{"X-Forwarded-Proto": "https"}).is_success
    assert websocket(proxied, f"https://{host}") == 403
    assert websocket(proxied, f"http://{host}", **{"X-Forwarded-Proto": "https"}) == 403


# Origins and addresses by themselves.


def test_a_star_allows_all_pages() -> None:
    assert Origins(["*"], False).allows(STRANGER, "x", False)
    assert not Origins([], False).allows(STRANGER, "x", False)


class _From:
    def __init__(self, peer: str) -> None:
        self._peer = peer

    def get_extra_info(self, name: str) -> object:
        return (self._peer, 1234) if name == "peername" else None


@pytest.mark.parametrize(
    ("peer", "said", "address"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("203.0.113.9", "1.2.3.4", "203.0.113.9"),  # a stranger says so
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),  # the client made the first one up
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.9.9.9", "1.2.3.4"),  # two proxies
        ("10.0.0.1", "10.1.1.1", "10.1.1.1"),
        ("10.0.0.1", "nonsense", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4, nonsense", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4:5678", "1.2.3.4"),
        ("10.0.0.1", "[2001:db8::1]:443", "2001:db8::1"),
        ("::ffff:10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("fe80::1%eth0", "1.2.3.4", "fe80::1"),
    ],
)
def test_forwarded_addresses_count_only_from_proxies(peer: str, said: str, address: str) -> None:
    peers = Peers(["10.0.0.0/8"])
    assert peers.address(_From(peer), said) == address  # type: ignore[arg-type]


@pytest.mark.parametrize(("proxies", "client"), [(["127.0.0.1"], "1.2.3.4"), ([], "127.0.0.1")])
def test_an_app_sees_the_client_in_front_of_the_proxy(proxies: list[str], client: str) -> None:
    seen: list[tuple[str, str]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append((scope["client"][0], scope["scheme"]))
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with socket.create_server(("127.0.0.1", 0)) as listener:
        peers = Peers(proxies)
        entrance = Entrance(peers, Addresses(peers, 1000), Connections(1000), 5.0, 5.0, 5.0)
        port = HttpPort(app, None, entrance, {})
        serving = threading.Thread(target=lambda: asyncio.run(port.serve([listener])))
        serving.start()
        HTTP.get(
            f"http://127.0.0.1:{listener.getsockname()[1]}/",
            headers={"X-Forwarded-For": "6.6.6.6, 1.2.3.4", "X-Forwarded-Proto": "https"},
        )
        port.should_exit = True
        serving.join()
    assert seen == [(client, "https" if proxies else "http")]


def test_networks_and_origins_are_checked(tmp_path: Path) -> None:
    from roskva.config import load
    from roskva.errors import BadConfig

    file = tmp_path / "roskva.toml"
    for line, said in (
        ('behind_proxy = ["proxy.local"]', "no address or network"),
        ('allowed_origins = ["app.example.com"]', "no origin"),
        ('allowed_origins = ["https://app.example.com/path"]', "no origin"),
    ):
        file.write_text(f"[node]\n{line}\n")
        with pytest.raises(BadConfig, match=f":2: .*{said}"):
            load(file, None, {})
