"""Certificates and keys: the one place that reads their files, and says what is wrong with one."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from roskva.errors import BadConfig

_UNKNOWN_CA: Final = {18, 19, 20, 21}
_NOT_YET, _EXPIRED, _OTHER_PURPOSE = 9, 10, 26
_WRONG_NAME: Final = {62, 64}
"""OpenSSL's codes of what is wrong with a certificate."""


# Files. What is wrong with one is a `BadConfig`.


def load_identity(context: ssl.SSLContext, certificate: Path, key: Path) -> None:
    """To be shown."""
    _read(certificate)
    _read(key)

    def no_password() -> str:
        raise BadConfig(f"{key} is encrypted: decrypt it, and protect the file instead")

    try:
        context.load_cert_chain(certificate, key, no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadConfig(f"{key} is not the key of {certificate}") from None
        raise BadConfig(f"{certificate} and {key} are no certificate and key in PEM") from None


def load_authorities(context: ssl.SSLContext, ca: Path) -> None:
    """To be believed."""
    _read(ca)
    try:
        context.load_verify_locations(ca)
    except ssl.SSLError:
        raise BadConfig(f"{ca} has no certificate in PEM") from None


def check_not_expired(certificate: Path) -> None:
    if expires_at(certificate) < datetime.now(UTC):
        raise BadConfig(f"{certificate} has expired: renew it")


def expires_at(certificate: Path) -> datetime:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(_read(certificate)).not_valid_after_utc
    except ValueError:
        raise BadConfig(f"{certificate} has no certificate in PEM") from None


def names_in(certificate: Path) -> list[str]:
    """Host names, among the alternative names: our clients and browsers look at nothing else."""
    from cryptography import x509

    found = x509.load_pem_x509_certificate(_read(certificate))
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.DNSName)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None


# What the other end has shown.


def about_certificate(error: ssl.SSLCertVerificationError) -> str:
    """What is wrong with it, and what to do about that."""
    if error.verify_code in _UNKNOWN_CA:
        return "its certificate is of a CA that is not known here: name the CA's file"
    if error.verify_code in _WRONG_NAME:
        return (
            f"its certificate is for another name ({error.verify_message.rstrip('.')}): use a name "
            "that is in the certificate, or have one issued for this name"
        )
    if error.verify_code == _EXPIRED:
        return "its certificate has expired: renew it there, and see that the clock here is right"
    if error.verify_code == _NOT_YET:
        return "its certificate is not valid yet: see that the clocks are right, here and there"
    if error.verify_code == _OTHER_PURPOSE:
        return "its certificate is for another purpose: see its extended key usage"
    return f"its certificate is not good: {error.verify_message}"
