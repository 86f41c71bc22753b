"""A certificate authority for development: it issues certificates of servers and of clients.

Real ones come from a CA that others trust, or from one that is better guarded than a file.
"""

import ipaddress
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS: Final = 3650
_ALLOWED_SKEW: Final = timedelta(minutes=5)
"""Clocks of others may be behind."""


class Issued(NamedTuple):
    """Both in PEM."""

    certificate: bytes
    key: bytes


class CertificateAuthority:
    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate = certificate
        self._key = key

    @classmethod
    def create(cls, name: str = "Roskva development CA") -> "CertificateAuthority":
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        unsigned = (
            _valid(subject, subject, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs_certificates=True), critical=True)
        )
        return cls(unsigned.sign(key, hashes.SHA256()), key)

    @classmethod
    def read(cls, stored: Issued) -> "CertificateAuthority":
        """Or ValueError."""
        key = serialization.load_pem_private_key(stored.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("not a key of ours")
        return cls(x509.load_pem_x509_certificate(stored.certificate), key)

    def stored(self) -> Issued:
        return Issued(_pem(self._certificate), _key_pem(self._key))

    def server(self, names: Sequence[str], days: float) -> Issued:
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        return self._issue(names[0], ExtendedKeyUsageOID.SERVER_AUTH, alternatives, days)

    def client(self, name: str, days: float) -> Issued:
        return self._issue(name, ExtendedKeyUsageOID.CLIENT_AUTH, None, days)

    def _issue(
        self,
        name: str,
        purpose: x509.ObjectIdentifier,
        alternatives: x509.SubjectAlternativeName | None,
        days: float,
    ) -> Issued:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        unsigned = (
            _valid(subject, self._certificate.subject, key.public_key(), days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
            .add_extension(issuer, critical=False)
        )
        if alternatives is not None:
            unsigned = unsigned.add_extension(alternatives, critical=False)
        return Issued(_pem(unsigned.sign(self._key, hashes.SHA256())), _key_pem(key))


def _valid(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return x509.CertificateBuilder(
        issuer_name=issuer,
        subject_name=subject,
        public_key=key,
        serial_number=x509.random_serial_number(),
        not_valid_before=min(now, end) - _ALLOWED_SKEW,
        not_valid_after=end,
    ).add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
