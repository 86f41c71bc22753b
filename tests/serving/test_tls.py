"""TLS as clients see it: every port and kind of client, new certificates, what is refused."""

import asyncio
import gc
import re
import socket
import ssl
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import httpx
import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from tests.loops import in_loop
from tests.serving import certificates
from tests.serving.certificates import authority, put, trusting
from tests.serving.conftest import StartNode
from tests.serving.nodes import PATIENCE_S, ROSKVA, Node, await_that

import roskva

Fresh = Callable[[], str]


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    return certificates.made(tmp_path / "certs", "alice", "bob")


@pytest.fixture
def secure(start_node: StartNode, certs: Path, tmp_path: Path) -> Node:
    file = certificates.settings(tmp_path / "roskva.toml", certs)
    return start_node("--config", str(file), scheme="https")


def shown(port: int, name: str | None = None) -> bytes:
    """The certificate that a port shows now."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname=name) as conn,
    ):
        found = conn.getpeercert(binary_form=True)
    assert found is not None
    return found


def der(file: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(file.read_text())


def why_not(url: str, tls: roskva.Tls | None = None) -> str:
    """What whoever gives up publishing is told, when there is something to tell."""

    def reason() -> str:
        with warnings.catch_warnings():
            # httpcore does not close a connection that is given up in the middle of a handshake.
            warnings.simplefilter("ignore", ResourceWarning)
            with pytest.raises(roskva.Unavailable) as given_up:
                roskva.publish(url, "test/x", 2, tls=tls, give_up_after=1.0)
            gc.collect()
        return str(given_up.value).partition(": ")[2]  # nothing, if no attempt has ended yet

    return await_that(reason, PATIENCE_S)


async def told(client: roskva.Client, wanted: type[object]) -> roskva.ClientEvent:
    async for event in client:
        if isinstance(event, wanted):
            return event
    raise AssertionError("it ended")


@in_loop
async def test_client_and_publisher_work_over_tls(secure: Node, certs: Path) -> None:
    tls = trusting(certs)
    async with (
        roskva.Publisher(secure.url, "test", tls=tls) as publisher,
        roskva.Client(f"wss://localhost:{secure.port}", "test", tls=tls) as client,
    ):
        await publisher.publish("x", 1)
        await client.register("x")
        assert (await told(client, roskva.Notify)).version == 1  # type: ignore[union-attr]
        await publisher.publish("x", 2)
        assert (await told(client, roskva.Notify)).version == 2  # type: ignore[union-attr]


def mqtt(node: Node, tls: roskva.Tls) -> tuple[paho.Client, list[bytes], list[object]]:
    heard: list[bytes] = []
    connected: list[object] = []
    client = paho.Client(CallbackAPIVersion.VERSION2, "device")
    client.tls_set(str(tls.ca), tls.certificate, tls.key)  # type: ignore[arg-type]
    client.on_message = lambda _, __, message: heard.append(bytes(message.payload))
    client.on_connect = lambda _, __, ___, code, ____: connected.append(code)
    client.connect("127.0.0.1", node.mqtt_port)
    client.loop_start()
    return client, heard, connected


def test_mqtt_works_over_tls(secure: Node, certs: Path) -> None:
    secure.publish("test/x", 7)
    client, heard, _ = mqtt(secure, trusting(certs))
    try:
        client.subscribe("test/x", 1)
        await_that(lambda: b"7" in heard, PATIENCE_S)
        secure.publish("test/x", 8)
        await_that(lambda: b"8" in heard, PATIENCE_S)
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_slow_reader_is_skipped_over_tls_too(secure: Node) -> None:
    """What it does not read is left out and does not pile up in the node; the last word is told."""
    updates, wide = 2000, "x" * 1000
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.socket() as plain:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        plain.settimeout(PATIENCE_S)
        plain.connect(("127.0.0.1", secure.mqtt_port))
        with context.wrap_socket(plain) as conn:
            conn.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02me")
            conn.sendall(b"\x82\x0b\x00\x01\x00\x06test/x\x01")
            versions = _versions(conn)
            assert next(versions) is None
            for version in range(1, updates + 1):
                secure.publish("test/x", version, text=f"{version} {wide}")
            heard = [next(versions)]
            while heard[-1] != updates:
                heard.append(next(versions))
    assert len(heard) < updates / 10


def _versions(conn: ssl.SSLSocket) -> Iterator[int | None]:
    """Of the packets that an MQTT client is told, each acknowledged."""
    unread = b""
    while True:
        while len(unread) < 2 or len(unread) < (whole := _whole(unread)):
            received = conn.recv(65536)
            assert received, "the node has hung up"
            unread += received
        packet, unread = unread[:whole], unread[whole:]
        if packet[0] & 0xF0 == 0x30:
            _, _, body = packet.partition(b"test/x")
            conn.sendall(b"\x40\x02" + body[:2])
            payload = body[2:].split(b" ")[0]
            yield None if payload == b"?" else int(payload)


def _whole(unread: bytes) -> int:
    """How long the packet is that it begins with; none here needs more than two length bytes."""
    if unread[1] < 128:
        return 2 + unread[1]
    return 3 + (unread[1] & 127) + (unread[2] << 7) if len(unread) > 2 else 3


def test_nothing_is_said_without_tls(secure: Node) -> None:
    for port in (secure.port, secure.mqtt_port):
        with socket.create_connection(("127.0.0.1", port), PATIENCE_S) as conn:
            conn.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            with suppress(ConnectionResetError):
                assert b"ok" not in conn.recv(1000)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_old_versions_are_refused(secure: Node, version: ssl.TLSVersion) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        context.minimum_version = context.maximum_version = version
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    for port in (secure.port, secure.mqtt_port):
        with (
            socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
            pytest.raises((ssl.SSLError, ConnectionResetError)),
        ):
            context.wrap_socket(plain)


def test_every_version_from_1_2_is_taken(secure: Node) -> None:
    for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = context.maximum_version = version
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        for port in (secure.port, secure.mqtt_port):
            with (
                socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
                context.wrap_socket(plain) as conn,
            ):
                assert conn.version() == version.name.replace("_", ".", 1).replace("_", ".")


@pytest.mark.parametrize("flags", [(), ("--registrars", "2")], ids=["one process", "several"])
def test_a_new_certificate_is_used_after_a_reload(
    start_node: StartNode, certs: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    file = certificates.settings(tmp_path / "roskva.toml", certs)
    node = start_node("--config", str(file), *flags, scheme="https")
    pids = set(node.processes())
    old = der(certs / "server.crt")
    with httpx.Client(verify=False, timeout=PATIENCE_S) as connected:

        def all_show(new: bytes, port: int, name: str | None) -> bool:
            assert connected.get(f"{node.url}/healthz").is_success
            # Each process may be reached: all of them have to be new.
            return all(shown(port, name) == new for _ in range(8))

        assert connected.get(f"{node.url}/healthz").is_success
        put(certs, authority(certs).server(certificates.HERE, 30))
        new = der(certs / "server.crt")
        assert new != old
        node.reload()
        for port in (node.port, node.mqtt_port):
            for name in (None, "localhost"):
                await_that(partial(all_show, new, port, name), PATIENCE_S)
        assert connected.get(f"{node.url}/healthz").is_success
    assert set(node.processes()) == pids


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda certs: (certs / "server.crt").write_text("nothing"), "in PEM"),
        (lambda certs: (certs / "server.key").unlink(), "cannot be read"),
        (
            lambda certs: (certs / "server.key").write_bytes((certs / "ca.key").read_bytes()),
            "is not the key of",
        ),
        (lambda certs: put(certs, authority(certs).server(["localhost"], -1)), "has expired"),
        (lambda certs: (certs.parent / "roskva.toml").write_text("[tls"), "are not read again"),
        (lambda certs: (certs.parent / "roskva.toml").write_text(""), "restart only"),
    ],
    ids=["no PEM", "no key", "another key", "expired", "no TOML", "no TLS"],
)
def test_what_is_bad_is_refused_loudly_and_the_old_stays(
    secure: Node, certs: Path, spoil: Callable[[Path], object], said: str
) -> None:
    old = der(certs / "server.crt")
    spoil(certs)
    secure.reload()
    await_that(lambda: said in secure.said(), PATIENCE_S, secure.said)
    assert "stay" in secure.said()
    assert shown(secure.port) == shown(secure.mqtt_port) == old


def test_a_bad_certificate_is_refused_at_the_start(certs: Path, tmp_path: Path) -> None:
    (certs / "server.key").write_bytes((certs / "ca.key").read_bytes())
    file = certificates.settings(tmp_path / "roskva.toml", certs)
    ended = subprocess.run(
        [ROSKVA, "serve", "--config", str(file), "--data", str(tmp_path / "data")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 2
    assert "is not the key of" in ended.stderr


# Clients with certificates.


@pytest.fixture
def mutual(start_node: StartNode, certs: Path, tmp_path: Path) -> Callable[[bool], Node]:
    def start(required: bool) -> Node:
        file = certificates.settings(
            tmp_path / "roskva.toml",
            certs,
            f'client_ca = "{certs}/ca.crt"',
            f"require_client_certificate = {str(required).lower()}",
        )
        if not required:
            return start_node("--config", str(file), scheme="https")
        node = Node(tmp_path / "required", "--config", str(file))
        node.scheme = "https"
        return node

    return start


def test_client_certificates_are_optional_unless_required(
    mutual: Callable[[bool], Node], certs: Path
) -> None:
    node = mutual(False)
    for tls in (trusting(certs), trusting(certs, "alice")):
        assert roskva.publish(node.url, "test/x", 1, tls=tls, give_up_after=PATIENCE_S) == 1


def test_certificates_tell_devices_of_the_same_id_apart(
    mutual: Callable[[bool], Node], certs: Path
) -> None:
    """Each has a session of its own, and neither can take over the other's."""
    node = mutual(False)
    node.publish("test/x", 1)
    devices = [mqtt(node, trusting(certs, name)) for name in ("alice", "bob")]
    try:
        for client, heard, connected in devices:
            await_that(lambda: bool(connected), PATIENCE_S)  # noqa: B023
            client.subscribe("test/x", 1)
            await_that(lambda: heard == [b"1"], PATIENCE_S)  # noqa: B023
        node.publish("test/x", 2)
        for _, heard, connected in devices:
            await_that(lambda: heard == [b"1", b"2"], PATIENCE_S)  # noqa: B023
            assert len(connected) == 1
    finally:
        for client, _, _ in devices:
            client.disconnect()
            client.loop_stop()


def test_required_certificates_are_required_on_every_port(
    mutual: Callable[[bool], Node], certs: Path, tmp_path: Path
) -> None:
    node = mutual(True)
    stranger = certificates.made(tmp_path / "other", "eve")
    eve = roskva.Tls(certs / "ca.crt", stranger / "client-eve.crt", stranger / "client-eve.key")
    node.launch()
    try:
        alice = trusting(certs, "alice")
        assert roskva.publish(node.url, "test/x", 1, tls=alice, give_up_after=PATIENCE_S) == 1
        for tls, why in (
            (trusting(certs), "wants a client certificate"),
            (eve, r"does not believe the CA|a client certificate of a CA it knows"),
        ):
            assert re.search(why, why_not(node.url, tls))
            with pytest.raises(OSError, match=r"certificate|CA|ca|reset|closed"):
                _mqtt_hello(node.mqtt_port, tls)
    finally:
        node.end()


def _mqtt_hello(port: int, tls: roskva.Tls) -> bytes:
    context = ssl.create_default_context(cafile=tls.ca)
    if tls.certificate is not None:
        context.load_cert_chain(tls.certificate, tls.key)
    with (
        socket.create_connection(("127.0.0.1", port), PATIENCE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as conn,
    ):
        conn.sendall(b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x3c\x00\x02me")
        if not (answer := conn.recv(100)):
            raise ConnectionResetError("closed")
        return answer


# What clients are told.


@pytest.mark.parametrize(
    ("names", "days", "trusted", "said"),
    [
        (["localhost"], 30, True, "is for another name"),
        (["127.0.0.1"], -1, True, "has expired"),
        (["127.0.0.1"], 30, False, "of a CA that is not known here"),
    ],
)
def test_errors_say_what_is_wrong_and_what_to_do(
    start_node: StartNode,
    certs: Path,
    tmp_path: Path,
    names: list[str],
    days: int,
    trusted: bool,
    said: str,
) -> None:
    put(certs, authority(certs).server(names, days))
    file = certificates.settings(tmp_path / "roskva.toml", certs)
    node = start_node("--config", str(file), scheme="https")
    tls = trusting(certs) if trusted else None
    assert said in why_not(node.url, tls)
    trouble = asyncio.run(_trouble(node, tls))
    assert said in trouble.text
    words = [ROSKVA, "publish", "test/x", "1", "--url", node.url]
    words += ["--ca", str(certs / "ca.crt")] if trusted else []
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 3
    assert said in ended.stderr
    assert trusted or "--ca" in ended.stderr


async def _trouble(node: Node, tls: roskva.Tls | None) -> roskva.Trouble:
    async with roskva.Client(node.url, "test", tls=tls) as client:
        event = await asyncio.wait_for(told(client, roskva.Trouble), PATIENCE_S)
    assert isinstance(event, roskva.Trouble)
    return event


def test_the_commands_speak_tls(secure: Node, certs: Path) -> None:
    def roskva_says(*words: str) -> str:
        url = ["--url", secure.url, "--ca", str(certs / "ca.crt")]
        ended = subprocess.run([ROSKVA, *words, *url], capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    assert "is at version 5" in roskva_says("publish", "test/x", "5")
    assert "5" in roskva_says("watch", "test/x", "--count", "1")
    assert "is reset" in roskva_says("reset", "test/x")
    assert "shard" in roskva_says("status")


def test_https_where_there_is_no_tls_says_so(shared: Node) -> None:
    assert "does not speak TLS" in why_not(f"https://127.0.0.1:{shared.port}")


@pytest.mark.parametrize(
    ("url", "tls", "said"),
    [
        ("http://localhost", roskva.Tls(), "for https"),
        ("https://localhost", roskva.Tls("/nowhere"), "No such file"),
        ("https://localhost", roskva.Tls(__file__), "no certificate in PEM"),
        ("https://localhost", roskva.Tls(certificate="x"), "give both"),
        ("wss://localhost", roskva.Tls(certificate="/nowhere", key="/nowhere"), "No such file"),
    ],
)
def test_bad_files_are_refused_before_anything_is_sent(
    url: str, tls: roskva.Tls, said: str
) -> None:
    for make in (roskva.Publisher, roskva.Client):
        with pytest.raises(roskva.BadInput, match=said):
            make(url, "test", tls=tls)
