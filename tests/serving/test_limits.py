"""What is beyond a limit is answered as docs/limits.md says, and costs nobody else anything."""

import asyncio
import gzip
import socket
from collections.abc import Iterator

import pytest
from tests.channels import mqtt_side
from tests.loops import in_loop
from tests.serving.keyed import Issuer, KeyedNode, publish_key
from tests.serving.nodes import HTTP, PATIENCE_S, Node
from tests.serving.raw_mqtt import RawMqtt
from tests.serving.raw_websocket import hear, hello, raw_websocket, say
from tests.serving.test_deadlines import UPGRADE, until_closed
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus
from websockets.typing import Subprotocol

import roskva
from roskva.channels.http_protocol import MAX_HEADERS
from roskva.wire.mqtt import codes
from roskva.wire.mqtt.codes import V3, V5, Reason

RATE = 1
"""So low that what was used up does not come back while a request takes its time."""
BURST = 200


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer") / "jwks.json")


SECRET, HASHED = publish_key()
ANOTHER, ANOTHER_HASHED = publish_key()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Iterator[KeyedNode]:
    settings = f"""
[limits]
publishes_per_second = {RATE}
client_publishes_per_second = {RATE}
max_publish_updates = {BURST}
max_sessions_per_principal = 2
max_connections_per_address = 2
[apps.contacts]
jwks = "{issuer.jwks}"
publish_keys = ["{HASHED}", "{ANOTHER_HASHED}"]
register = ["**"]
"""
    node = KeyedNode(
        tmp_path_factory.mktemp("keyed") / "data", settings, "--behind-proxy", "127.0.0.1"
    )
    try:
        node.start()
        yield node
    finally:
        node.end()


def test_a_body_that_is_packed_is_never_unpacked(shared: Node) -> None:
    bomb = gzip.compress(bytes(50 << 20))
    for encoding in ("gzip", "deflate", "br", "GZIP"):
        answer = HTTP.post(
            f"{shared.url}/v1/publish", content=bomb, headers={"content-encoding": encoding}
        )
        assert answer.status_code == 415
        assert "Content-Encoding" in answer.json()["error"]["text"]
    update = {"app": "test", "name": "plain", "version": 1}
    headers = {"content-encoding": "identity"}
    assert HTTP.post(f"{shared.url}/v1/publish", json=update, headers=headers).is_success


@in_loop
async def test_compression_is_never_agreed_on_over_websocket(shared: Node) -> None:
    async with connect(
        f"ws://127.0.0.1:{shared.port}/v1/ws",
        subprotocols=[Subprotocol("roskva.v1.json")],
        compression="deflate",
    ) as client:
        assert client.response is not None
        assert "Sec-WebSocket-Extensions" not in client.response.headers


@pytest.mark.parametrize(("count", "status"), [(MAX_HEADERS - 1, b"200"), (MAX_HEADERS, b"400")])
def test_a_request_has_so_many_headers(shared: Node, count: int, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", shared.port), 30) as conn:
        head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * (count - 1)
        conn.sendall(head + b"Connection: close\r\n\r\n")
        assert until_closed(conn).startswith(b"HTTP/1.1 " + status)


def test_a_publisher_beyond_its_rate_is_told_to_slow_down(keyed: KeyedNode) -> None:
    before = keyed.counter("updates_refused.rate")
    updates = [{"app": "contacts", "name": f"fast/{i}", "version": 1} for i in range(BURST)]
    answers = [keyed.ask("POST", "/v1/publish", SECRET, updates) for _ in range(10)]
    results = [result for answer in answers for result in answer.json()["results"]]
    refused = [result["error"] for result in results if "error" in result]
    assert {(error["code"], error["retriable"]) for error in refused} == {("too_fast", True)}
    assert keyed.counter("updates_refused.rate") - before == len(refused) > 7 * BURST
    wholly = [answer for answer in answers if answer.status_code == 429]
    assert wholly
    assert wholly[0].headers["retry-after"]


@in_loop
async def test_the_publisher_library_waits_and_loses_nothing(keyed: KeyedNode) -> None:
    before = keyed.counter("updates_refused.rate")
    names = [f"patient/{i}" for i in range(BURST)]
    async with (
        roskva.Publisher(keyed.url, "contacts", key=ANOTHER) as publisher,
        asyncio.timeout(PATIENCE_S),
    ):
        while keyed.counter("updates_refused.rate") == before:  # it may have more after a while
            versions = await asyncio.gather(*(publisher.publish(name, 7) for name in names))
            assert versions == [7] * len(names)
            names = [f"more/{i}" for i in range(2 * RATE)]


@in_loop
async def test_a_principal_has_so_many_sessions_whatever_the_channel(
    keyed: KeyedNode, issuer: Issuer
) -> None:
    jwt = issuer.jwt("many", "contacts")
    async with raw_websocket(keyed.port, jwt) as one, raw_websocket(keyed.port, jwt) as two:
        for conn in (one, two):
            await say(conn, hello(app="contacts"))
            await hear(conn, "grant")
        async with raw_websocket(keyed.port, jwt) as three:
            await say(three, hello(app="contacts"))
            assert (await hear(three, "error"))["error"]["code"] == "limit_exceeded"
        answer = await asyncio.to_thread(keyed.ask, "GET", "/v1/events?object=contacts/alice", jwt)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "limit_exceeded")
        body = {"objects": [{"object": "contacts/alice"}]}
        answer = await asyncio.to_thread(keyed.ask, "POST", "/v1/poll", jwt, body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (429, "limit_exceeded")
        for version, refusal in ((V5, Reason.QUOTA_EXCEEDED), (V3, None)):
            said = mqtt_side.connect(version, user="contacts", password=jwt.encode())
            async with RawMqtt(keyed.mqtt_port) as device:
                heard = await device.answers(codes.CONNACK, said)
            assert [packet[3] for packet in heard] == ([] if refusal is None else [refusal])
    other = issuer.jwt("other", "contacts")
    async with raw_websocket(keyed.port, other) as conn:
        await say(conn, hello(app="contacts"))
        await hear(conn, "grant")


@in_loop
async def test_an_address_has_so_many_connections(keyed: KeyedNode) -> None:

    def from_(address: str) -> connect:
        return connect(
            f"ws://127.0.0.1:{keyed.port}/v1/ws",
            subprotocols=[Subprotocol("roskva.v1.json")],
            additional_headers={"X-Forwarded-For": address},
        )

    async with from_("1.2.3.4"), from_("1.2.3.4"):
        with pytest.raises(InvalidStatus) as refused:
            await from_("1.2.3.4")
        assert refused.value.response.status_code == 429
        assert refused.value.response.headers["Retry-After"]
        async with from_("1.2.3.5"):
            pass
    async with asyncio.timeout(PATIENCE_S):
        while True:  # the node hears of the end in its own time
            try:
                async with from_("1.2.3.4"):
                    break
            except InvalidStatus:
                await asyncio.sleep(0.01)


def test_a_client_that_pings_and_never_reads_costs_little(shared: Node) -> None:
    with socket.socket() as conn:
        conn.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        conn.connect(("127.0.0.1", shared.port))
        conn.sendall(UPGRADE)
        assert conn.recv(12) == b"HTTP/1.1 101"
        before = shared.resident_bytes()
        pings = (b"\x89\xfd" + bytes(4 + 125)) * 100
        for _ in range(2000):
            conn.sendall(pings)  # 26 MB; the node reads all of it
        assert shared.resident_bytes() - before < 8 << 20
