"""A CA for members, as tests need it: certificates that are good, and those that are not."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from roskva.cli.certs import CertificateAuthority, Issued, key_pem
from roskva.links.members import CertificateFiles, Member, MemberCertificates

CELL: Final = "berlin"
ONE, TWO = Member("member-1", CELL), Member("member-2", CELL)
CLIENT, SERVER = ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH


class MembersAuthority:
    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        self.ca = CertificateAuthority.create()
        self.trust(self.ca)

    def trust(self, *authorities: CertificateAuthority) -> None:
        pem = b"".join(one.stored().certificate for one in authorities)
        (self.place / "ca.crt").write_bytes(pem)

    def put(self, name: str, issued: Issued) -> CertificateFiles:
        certificate, key = self.place / f"{name}.crt", self.place / f"{name}.key"
        certificate.write_bytes(issued.certificate)
        key.write_bytes(issued.key)
        return CertificateFiles(certificate, key, self.place / "ca.crt")

    def files(self, member: Member) -> CertificateFiles:
        return self.put(str(member), self.ca.member(member, 30))

    def certificates(self, member: Member) -> MemberCertificates:
        return MemberCertificates(member, self.files(member))


def issued(
    ca: CertificateAuthority,
    *host_names: str,
    purposes: tuple[x509.ObjectIdentifier, ...] = (CLIENT, SERVER),
    common_name: str = "somebody",
    begins_in_days: float = -1,
    days: float = 30,
) -> Issued:
    """With names and times as nobody should have them."""
    key = ec.generate_private_key(ec.SECP256R1())
    begins = datetime.now(UTC) + timedelta(days=begins_in_days)
    unsigned = (
        x509.CertificateBuilder()
        .issuer_name(ca.certificate.subject)
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(begins + timedelta(days=days))
        .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    )
    if host_names:
        names = x509.SubjectAlternativeName([x509.DNSName(name) for name in host_names])
        unsigned = unsigned.add_extension(names, critical=False)
    made = unsigned.sign(ca.key, hashes.SHA256())
    return Issued(made.public_bytes(Encoding.PEM), key_pem(key))
