"""TLS of a node's ports.

Every port has the same context. What it shows and believes is chosen anew at each handshake, so
that new files count from the next connection on, and nobody who is connected notices.
"""

import logging
import ssl
import time
from datetime import UTC, datetime
from typing import Final

from roskva.config import Config, TlsConfig
from roskva.errors import BadConfig
from roskva.net.certificates import (
    check_not_expired,
    expires_at,
    load_authorities,
    load_identity,
)

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
        assert config.certificate is not None
        if expires_at(config.certificate) < datetime.now(UTC):
            _log.error("%s has expired: clients will refuse it. Renew it", config.certificate)

    def reload(self, config: Config) -> None:
        """What `check_renewal` has seen; or `BadConfig`, and everything stays as it was."""
        self._current, self._read_at = server_context(config.tls), time.time()
        assert config.tls.certificate is not None
        until = expires_at(config.tls.certificate).strftime("%Y-%m-%d")
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
    if read.certificate is not None:
        server_context(read)
        check_not_expired(read.certificate)


def server_context(config: TlsConfig) -> ssl.SSLContext:
    assert config.certificate is not None
    assert config.key is not None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION
    load_identity(context, config.certificate, config.key)
    if config.client_ca is not None:
        load_authorities(context, config.client_ca)
        required = config.require_client_certificate
        context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
        # A ticket would let a client in again whose CA is no longer believed.
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    return context
