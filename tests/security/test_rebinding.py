"""DNS rebinding: a page whose name leads to a node for a moment reads nothing of it.

The page and the node seem to be of one origin, so the browser says no Origin with a GET, or the
page's own; and it lets the page read the answer.
"""

import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from benchmarks.ports import free_port
from tests.serving import certificates
from tests.serving.keyed import KeyedNode, publish_key
from tests.serving.nodes import HTTP, PATIENCE_S, Node
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from roskva.channels.hosts import STATUS
from roskva.cli.certs import make
from roskva.net.certificates import names_in

EVIL = "evil.example"
SECRET, HASHED = publish_key()
PATHS = (
    *("/", "/console/console.js", "/healthz", "/readyz", "/metrics", "/schema/openapi.json"),
    *("/v1/status", "/v1/objects/contacts/x", "/v1/events?object=contacts/x", "/v1/nothing"),
    *("/v1/admin/now", "/v1/admin/apps/contacts", "/v1/admin/objects/contacts/x"),
)
POSTS = ("/v1/publish", "/v1/reset", "/v1/poll", "/v1/admin/apps/contacts/reset")


@pytest.fixture(scope="module", params=["open", "keys", "keys and TLS"])
def urls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[str]]:
    """Of its port, and of its admin port."""
    place = tmp_path_factory.mktemp("rebound")
    admin = f"port = {free_port()}\n"
    if request.param == "open":
        (place / "roskva.toml").write_text(f"[admin]\n{admin}")
        node = Node(place / "data", "--config", str(place / "roskva.toml"))
    else:
        apps = f'[apps.contacts]\npublish_keys = ["{HASHED}"]\n'
        tls = ""
        if request.param == "keys and TLS":
            certs = certificates.made(place / "certs")
            tls = certificates.settings(place / "tls.toml", certs).read_text()
        node = KeyedNode(place / "data", f"{admin}{tls}\n{apps}")
        node.scheme = "https" if tls else "http"
    try:
        node.start()
        yield [node.url, f"{node.scheme}://127.0.0.1:{admin.split()[-1]}"]
    finally:
        node.end()


def _asked(url: str, method: str, path: str, host: str, *origins: str) -> httpx.Response:
    headers = {"Host": host, "Authorization": f"Bearer {SECRET}"}
    if origins:
        headers["Origin"] = origins[0]
    with HTTP.stream(method, url + path, headers=headers) as answer:
        if answer.status_code == STATUS:
            answer.read()
    return answer


@pytest.mark.parametrize("origins", [(), (f"http://{EVIL}",)], ids=["GET", "with its origin"])
def test_another_name_reads_and_does_nothing(urls: list[str], origins: tuple[str, ...]) -> None:
    for url in urls:
        for host in (EVIL, f"{EVIL}:{url.rpartition(':')[2]}", f"localhost.{EVIL}"):
            asked = [("GET", path) for path in PATHS] + [("POST", path) for path in POSTS]
            for method, path in [*asked, ("HEAD", "/"), ("OPTIONS", "/v1/publish")]:
                answer = _asked(url, method, path, host, *origins)
                assert answer.status_code == STATUS, (url, path)
                assert "access-control-allow-origin" not in answer.headers
                if method != "HEAD":
                    assert "allowed_hosts" in answer.json()["error"]["text"]


def test_another_name_opens_no_websocket(urls: list[str]) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    port = urls[0].rpartition(":")[2]
    for origin in (None, Origin(f"http://{EVIL}:{port}")):
        with pytest.raises(InvalidStatus) as refused:  # noqa: SIM117
            with connect(
                f"{urls[0].replace('http', 'ws', 1)}/v1/ws".replace("127.0.0.1", EVIL),
                sock=socket.create_connection(("127.0.0.1", int(port))),
                ssl=context if urls[0].startswith("https") else None,
                origin=origin,
                subprotocols=[Subprotocol("roskva.v1.json")],
            ):
                pass
        assert refused.value.response.status_code == STATUS
        assert b"allowed_hosts" in refused.value.response.body


def test_honest_programs_are_answered_by_address_and_own_name(urls: list[str]) -> None:
    for url in urls:
        for host in ("localhost:1", "127.0.0.1", "[::1]:7600", "10.0.0.5:7600", "LOCALHOST"):
            assert _asked(url, "GET", "/healthz", host).status_code == 200
        if url.startswith("http:"):  # a check of a load balancer, without any Host
            address = ("127.0.0.1", int(url.rpartition(":")[2]))
            with socket.create_connection(address, PATIENCE_S) as conn:
                conn.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
                assert conn.recv(12) == b"HTTP/1.1 200"


def test_names_in_the_settings_are_answered(tmp_path: Path) -> None:
    (tmp_path / "roskva.toml").write_text('[node]\nallowed_hosts = ["node.internal"]\n')
    node = Node(tmp_path / "data", "--config", str(tmp_path / "roskva.toml"))
    try:
        node.start()
        assert _asked(node.url, "GET", "/v1/status", "node.internal:7600").status_code == 200
        assert _asked(node.url, "GET", "/v1/status", EVIL).status_code == STATUS
    finally:
        node.end()


def test_names_in_the_certificate_are_known(tmp_path: Path) -> None:
    certs = tmp_path / "certs"
    make(certs, ["node.example.com"], [], 30)
    assert names_in(certs / "server.crt") == ["node.example.com"]
