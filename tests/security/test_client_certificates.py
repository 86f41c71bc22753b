"""Client certificates as somebody would make them who should not get in, or wants to be somebody
else: over TLS 1.2, where more can go wrong, and 1.3."""

import socket
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tests.channels import mqtt_side as side
from tests.serving import certificates
from tests.serving.certificates import authority
from tests.serving.nodes import PATIENCE_S, Node, await_that

from roskva.cli.certs import CertificateAuthority, Issued, key_pem

CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH
NOW: Final = datetime.now(UTC)
CONNECT: Final = side.connect(clean=False)
ACCEPTED: Final = b"\x20\x02\x00\x00"
PINGRESP: Final = b"\xd0\x00"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    place = tmp_path_factory.mktemp("certificates")
    certs = certificates.made(place / "certs")
    file = certificates.settings(place / "node.toml", certs, f'client_ca = "{certs}/ca.crt"')
    node = Node(place / "data", "--config", str(file))
    node.scheme = "https"
    try:
        node.start()
        yield node
    finally:
        node.end()


def ca_of(node: Node) -> CertificateAuthority:
    return authority(node.data.parent / "certs")


def issued(
    ca: CertificateAuthority,
    *names: str,
    purpose: x509.ObjectIdentifier = CLIENT,
    begins: datetime = NOW - timedelta(days=1),
    days: int = 30,
) -> Issued:
    """With so many common names, whatever the standard says of them."""
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder()
        .issuer_name(ca.certificate.subject)
        .subject_name(
            x509.Name(x509.NameAttribute(NameOID.COMMON_NAME, n, _validate=False) for n in names)
        )
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .sign(ca.key, hashes.SHA256())
    )
    return Issued(made.public_bytes(Encoding.PEM), key_pem(key))


def showing(place: Path, shown: Issued, version: ssl.TLSVersion) -> ssl.SSLContext:
    certificates.put(place, shown, "shown")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = version
    context.load_cert_chain(place / "shown.crt", place / "shown.key")
    return context


def connected(
    node: Node, context: ssl.SSLContext, session: ssl.SSLSession | None = None
) -> tuple[ssl.SSLSocket, bytes] | None:
    """And what CONNECT is answered; None: not even that."""
    plain = socket.create_connection(("127.0.0.1", node.mqtt_port), PATIENCE_S)
    try:
        conn = context.wrap_socket(plain, session=session)
    except OSError:
        plain.close()
        return None
    try:
        conn.sendall(CONNECT)
        if answer := conn.recv(4):
            return conn, answer
    except OSError:
        pass
    conn.close()
    return None


VERSIONS: Final = pytest.mark.parametrize(
    "version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]
)


@VERSIONS
def test_what_is_not_of_this_ca_or_not_now_or_not_for_clients_is_refused(
    node: Node, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    ca, later = ca_of(node), NOW + timedelta(days=1)
    for shown in (
        issued(CertificateAuthority.create(), "alice"),  # of a CA of the same name
        issued(CertificateAuthority.create("another CA"), "alice"),
        issued(ca, "alice", begins=NOW - timedelta(days=9), days=1),
        issued(ca, "alice", begins=later),
        issued(ca, "alice", purpose=SERVER),
    ):
        assert connected(node, showing(tmp_path, shown, version)) is None


@VERSIONS
@pytest.mark.filterwarnings("ignore:Attribute's length")
def test_odd_names_are_whole_and_nobody_elses(
    node: Node, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """Who has the name of somebody else would take over its session, and close its connection."""
    ca = ca_of(node)
    first = connected(node, showing(tmp_path, issued(ca, "alice"), version))
    assert first is not None
    with first[0] as alice:
        assert first[1] == ACCEPTED
        for names in (["alice\0.evil"], ["alice/"], [""], [], ["ALICE"], ["bob", "alice"]):
            found = connected(node, showing(tmp_path, issued(ca, *names), version))
            assert found is not None
            with found[0]:
                assert found[1] == ACCEPTED
        alice.sendall(side.PINGREQ)
        assert alice.recv(2) == PINGRESP
        again = connected(node, showing(tmp_path, issued(ca, "alice"), version))
        assert again is not None
        with again[0]:
            assert alice.recv(2) == b"", "the same name takes over"


def test_nothing_is_renegotiated(node: Node) -> None:
    asked = subprocess.run(
        ["openssl", "s_client", "-tls1_2", "-connect", f"127.0.0.1:{node.mqtt_port}"],
        input=b"R\n",
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert b"RENEGOTIATING" in asked.stderr
    assert b"no renegotiation" in asked.stderr


def test_no_session_is_resumed_of_a_ca_that_is_not_believed_any_more(
    node: Node, tmp_path: Path
) -> None:
    context = showing(tmp_path, issued(ca_of(node), "alice"), ssl.TLSVersion.TLSv1_2)
    first = connected(node, context)
    assert first is not None
    with first[0] as before:
        session = before.session
        again = connected(node, context, session)
        assert again is not None
        with again[0] as resumed:
            assert resumed.session_reused, "else this would show nothing"
    believed, sign = node.data.parent / "certs/ca.crt", "the certificate is read again"
    kept, said = believed.read_bytes(), node.said().count(sign)
    believed.write_bytes(CertificateAuthority.create().stored().certificate)
    try:
        node.reload()
        await_that(lambda: node.said().count(sign) > said, PATIENCE_S)
        assert connected(node, context, session) is None
        assert connected(node, context) is None
    finally:
        believed.write_bytes(kept)
        node.reload()
        await_that(lambda: node.said().count(sign) > said + 1, PATIENCE_S)
