"""TLS of a node's ports: the one place that reads certificates and keys.

Every port has the same context. What it shows and believes is chosen anew at each handshake, so
that new files count from the next connection on, and nobody who is connected notices.
"""

import logging
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from roskva.config import Config, TlsConfig
from roskva.errors import BadConfig

_log = logging.getLogger(__name__)
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of 1.3 are all good."""


class Certificates:
    def __init__(self, config: TlsConfig) -> None:
        self._current = server_context(config)
        self._read_at = 0.0
        """Again; in Unix time."""
        self.context = server_context(config)
        """What listeners are given."""
        self.context.sni_callback = self._choose
        if expires_at(config) < datetime.now(UTC):
            _log.error("%s has expired: clients will refuse it. Renew it", config.certificate)

    def reload(self, config: Config) -> None:
        """What `check_renewal` has seen; or `BadConfig`, and everything stays as it was."""
        self._current, self._read_at = server_context(config.tls), time.time()
        until = expires_at(config.tls).strftime("%Y-%m-%d")
        _log.info("the certificate is read again; it is good until %s", until)

    def _choose(self, connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        connection.context = self._current
        if self._current.verify_mode != ssl.CERT_NONE and connection.session_reused:
            # What was shown when it began may be of a CA that is not believed any more.
            session = connection.session
            if session is None or session.time <= self._read_at:
                return ssl.ALERT_DESCRIPTION_ACCESS_DENIED
        return None


def check_renewal(running: TlsConfig, read: TlsConfig) -> None:
    """Whether a process that runs can take these over, or `BadConfig`."""

    def kind(config: TlsConfig) -> tuple[bool, bool, bool]:
        return config.enabled, config.client_ca is not None, config.require_client_certificate

    if kind(running) != kind(read):
        raise BadConfig(
            "whether there is TLS, and whether clients show certificates, changes with a restart "
            "only"
        )
    if read.enabled:
        server_context(read)
        if expires_at(read) < datetime.now(UTC):
            raise BadConfig(f"{read.certificate} has expired: renew it")


def server_context(config: TlsConfig) -> ssl.SSLContext:
    assert config.certificate is not None
    assert config.key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    _read(config.certificate)
    _read(config.key)
    try:
        context.load_cert_chain(config.certificate, config.key, _no_password)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise BadConfig(f"{config.key} is not the key of {config.certificate}") from None
        raise BadConfig(
            f"{config.certificate} and {config.key} are no certificate and key in PEM"
        ) from None
    if config.client_ca is not None:
        _read(config.client_ca)
        try:
            context.load_verify_locations(config.client_ca)
        except ssl.SSLError:
            raise BadConfig(f"{config.client_ca} has no certificate in PEM") from None
        required = config.require_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # A ticket would let a client in again whose CA is no longer believed.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context


def expires_at(config: TlsConfig) -> datetime:
    from cryptography import x509

    assert config.certificate is not None
    try:
        return x509.load_pem_x509_certificate(_read(config.certificate)).not_valid_after_utc
    except ValueError:
        raise BadConfig(f"{config.certificate} has no certificate in PEM") from None


def names_in(config: TlsConfig) -> list[str]:
    """By which the certificate lets its node be called; none without TLS."""
    if config.certificate is None:
        return []
    from cryptography import x509

    found = x509.load_pem_x509_certificate(_read(config.certificate))
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []  # browsers and our clients believe nothing else
    return names.get_values_for_type(x509.DNSName)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadConfig(f"{path} cannot be read: {error.strerror}") from None


def _no_password() -> str:
    raise BadConfig("the key under [tls] is encrypted: decrypt it, and protect the file instead")
