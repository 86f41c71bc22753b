"""`roskva certs`: certificates to develop and to try TLS with.

The authority that issues them, for servers, clients and members, is one for development. Real
certificates come from a CA that others trust, or from one that is better guarded than a file.
"""

import ipaddress
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from typer import Argument, Option

from roskva.cli.options import command
from roskva.errors import BadConfig, BadInput
from roskva.links.members import Member

AUTHORITY_DAYS: Final = 3650
_ALLOWED_SKEW: Final = timedelta(minutes=5)
"""Clocks of others may be behind."""

_HERE: Final = ("localhost", "127.0.0.1", "::1")
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CA, _SERVER = "ca", "server"


# The authority.


class Issued(NamedTuple):
    """Both in PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority(NamedTuple):
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @classmethod
    def create(cls, name: str = "Roskva development CA") -> "CertificateAuthority":
        key = ec.generate_private_key(ec.SECP256R1())
        return cls(_signed(_named(name), _named(name), key, key, AUTHORITY_DAYS, ca=True), key)

    @classmethod
    def read(cls, stored: Issued) -> "CertificateAuthority":
        """Or ValueError."""
        key = serialization.load_pem_private_key(stored.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("not a key of ours")
        return cls(x509.load_pem_x509_certificate(stored.certificate), key)

    def stored(self) -> Issued:
        return Issued(_pem(self.certificate), key_pem(self.key))

    def server(self, names: Sequence[str], days: float) -> Issued:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._issue(names[0], days, (ExtendedKeyUsageOID.SERVER_AUTH,), alternatives)

    def client(self, name: str, days: float) -> Issued:
        return self._issue(name, days, (ExtendedKeyUsageOID.CLIENT_AUTH,))

    def member(self, member: Member, days: float) -> Issued:
        purposes = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
        alternatives = x509.SubjectAlternativeName([x509.DNSName(member.host_name)])
        return self._issue(str(member)[:64], days, purposes, alternatives)

    def _issue(
        self,
        name: str,
        days: float,
        purposes: Sequence[x509.ObjectIdentifier],
        *more: x509.ExtensionType,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        about = (x509.ExtendedKeyUsage(purposes), issuer, *more)
        made = _signed(_named(name), self.certificate.subject, key, self.key, days, *about)
        return Issued(_pem(made), key_pem(key))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    days: float,
    *about: x509.ExtensionType,
    ca: bool = False,
) -> x509.Certificate:
    now, public = datetime.now(UTC), key.public_key()
    end = now + timedelta(days=days)
    never = "content_commitment key_encipherment data_encipherment key_agreement encipher_only"
    usage = x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        decipher_only=False,
        **dict.fromkeys(never.split(), False),
    )
    unsigned = (
        x509.CertificateBuilder(issuer, subject, public, x509.random_serial_number())
        .not_valid_before(min(now, end) - _ALLOWED_SKEW)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.BasicConstraints(ca, path_length=0 if ca else None), critical=True)
        .add_extension(usage, critical=True)
    )
    for extension in about:
        unsigned = unsigned.add_extension(extension, critical=False)
    return unsigned.sign(signer, hashes.SHA256())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def key_pem(key: PrivateKeyTypes) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


# The command.


@command(
    "roskva certs",
    "roskva certs /etc/roskva/certs --san node.example.com --san 10.0.0.5",
    "roskva certs --client sensor-17",
    "roskva certs links --member member-1.berlin --member member-2.berlin",
    codes="Exit codes: 0 done, 2 bad usage, or a file is there already.",
)
def certs(
    directory: Annotated[
        Path, Argument(metavar="DIR", help="Where they go; made if it is not there.")
    ] = Path("roskva-certs"),
    san: Annotated[
        list[str] | None,
        Option(
            metavar="NAME",
            help="A host name or address of the server; may be repeated. [localhost, 127.0.0.1, "
            "::1]",
        ),
    ] = None,
    client: Annotated[
        list[str] | None,
        Option(metavar="NAME", help="Make a certificate for this client too; may be repeated."),
    ] = None,
    member: Annotated[
        list[str] | None,
        Option(
            metavar="MEMBER.CELL",
            help="Make a certificate for the links of this member to others; may be repeated.",
        ),
    ] = None,
    days: Annotated[int, Option(min=1, max=825, help="How long certificates are good for.")] = 365,
) -> None:
    """Make a CA, a server's certificate and certificates of clients, to develop with.

    It makes what is not there yet, so that later calls add clients of the same CA, and replaces
    nothing. Whoever reads ca.key can be anybody: for real use take a real CA. Members of a cell
    have a CA of their own, so --member goes with neither --san nor --client.
    """
    members = [_member(name) for name in member or []]
    if members and (san or client):
        raise BadInput("members have a CA of their own: make their certificates by themselves")
    if members:
        made = make_members(directory, members, days)
    else:
        made = make(directory, san or [], client or [], days)
    for path in made:
        print(f"made {path}")
    if not members:
        print(_how_to_use(directory, client or []))


def _member(text: str) -> Member:
    name, _, cell = text.partition(".")
    try:
        return Member(name, cell)
    except BadConfig as error:
        raise BadInput(f"a member is named as in member-1.berlin; got {text!r}: {error}") from None


def make_members(directory: Path, members: list[Member], days: int) -> list[Path]:
    """The files that were made."""
    _check_new(directory, [f"member-{member}" for member in members])
    with _made_in(directory) as made:
        authority = _authority(directory, made)
        for member in members:
            made += _write(directory, f"member-{member}", authority.member(member, days))
    return made


def make(directory: Path, names: list[str], clients: list[str], days: int) -> list[Path]:
    """The files that were made."""
    _check(directory, names, clients)
    with _made_in(directory) as made:
        authority = _authority(directory, made)
        if not _files(directory, _SERVER)[0].exists():
            made += _write(directory, _SERVER, authority.server(names or list(_HERE), days))
        for name in clients:
            made += _write(directory, f"client-{name}", authority.client(name, days))
    return made


@contextmanager
def _made_in(directory: Path) -> Iterator[list[Path]]:
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.chmod(0o700)
        yield []
    except OSError as error:
        raise BadConfig(f"{error.filename or directory}: {error.strerror}") from None


def _check(directory: Path, names: list[str], clients: list[str]) -> None:
    """Before anything is written."""
    for name in clients:
        if not _NAME.fullmatch(name):
            raise BadInput(f"a client's name has letters, digits, '.', '_' and '-'; got {name!r}")
    for name in names:
        if not name.isascii() or not name.strip() or any(c in name for c in " /"):
            raise BadInput(f"{name!r} is no host name and no address")
    there = [f"client-{name}" for name in clients]
    if names or not clients:
        there.append(_SERVER)
    _check_new(directory, there)


def _check_new(directory: Path, there: list[str]) -> None:
    for file in (path for name in there for path in _files(directory, name) if path.exists()):
        raise BadInput(
            f"{file} is there already, and nothing is replaced: remove it together with its other "
            "half, or name another directory"
        )


def _authority(directory: Path, made: list[Path]) -> CertificateAuthority:
    certificate, key = _files(directory, _CA)
    if not certificate.exists() and not key.exists():
        authority = CertificateAuthority.create()
        made += _write(directory, _CA, authority.stored())
        return authority
    try:
        return CertificateAuthority.read(Issued(certificate.read_bytes(), key.read_bytes()))
    except (ValueError, TypeError):
        raise BadConfig(f"{certificate} and {key} are no CA of ours") from None


def _files(directory: Path, name: str) -> tuple[Path, Path]:
    return directory / f"{name}.crt", directory / f"{name}.key"


def _write(directory: Path, name: str, issued: Issued) -> list[Path]:
    certificate, key = _files(directory, name)
    write_new(key, issued.key, 0o600)
    write_new(certificate, issued.certificate, 0o644)
    return [certificate, key]


def write_new(path: Path, content: bytes, mode: int) -> None:
    """Nothing is replaced: FileExistsError if it is there already."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _how_to_use(directory: Path, clients: list[str]) -> str:
    place = directory.absolute()
    lines = [
        "\nIn roskva.toml:\n",
        "[tls]",
        f'certificate = "{place}/server.crt"',
        f'key = "{place}/server.key"',
    ]
    with_client = ""
    if clients:
        lines.append(f'client_ca = "{place}/ca.crt"')
        name = f"{place}/client-{clients[0]}"
        with_client = f" --cert {name}.crt --cert-key {name}.key"
    lines += [
        "\nFor clients:\n",
        f"roskva status --url https://localhost:7600 --ca {place}/ca.crt{with_client}",
        f'roskva.Client("wss://localhost:7600", app, tls=roskva.Tls(ca="{place}/ca.crt"))',
    ]
    return "\n".join(lines)
