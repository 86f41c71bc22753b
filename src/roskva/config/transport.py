"""The settings of what surrounds the channels: TLS, and the port for whoever keeps the node."""

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from roskva.config.kinds import Conflict, Port


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS 1.2 and 1.3, on every port or on none. The files are read again on SIGHUP."""

    certificate: Annotated[
        Path | None,
        Meta(description="The node's certificate and those between it and its CA, as PEM."),
    ] = None
    key: Annotated[
        Path | None, Meta(description="The private key of the certificate, as PEM, unencrypted.")
    ] = None
    client_ca: Annotated[
        Path | None,
        Meta(
            description="The CAs, as PEM, whose client certificates are believed: the common name "
            "of one that is shown is who the client is."
        ),
    ] = None
    require_client_certificate: Annotated[
        bool, Meta(description="Clients without a certificate of client_ca cannot connect.")
    ] = False

    def __post_init__(self) -> None:
        if (self.certificate is None) != (self.key is None):
            given, missing = ("key", "certificate") if self.key else ("certificate", "key")
            raise Conflict(f"[tls] has a {given} and no {missing}: set both", f"tls.{given}")
        if self.client_ca is not None and self.certificate is None:
            raise Conflict(
                "client certificates need TLS: set certificate and key under [tls] too",
                "tls.client_ca",
            )
        if self.require_client_certificate and self.client_ca is None:
            raise Conflict(
                "client certificates are required, and none is believed: set client_ca to the "
                "certificate of their CA",
                "tls.require_client_certificate",
            )

    @property
    def enabled(self) -> bool:
        return self.certificate is not None


class AdminConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Who may see what the node says of itself: `/v1/status`, and the console with the API behind
    it. Without port and key, that is everybody on a node on loopback without keys, and otherwise
    nobody."""

    port: Annotated[
        Port | None,
        Meta(description="A port of its own. 0 takes any free one. Not set: none."),
    ] = None
    host: Annotated[str, Meta(min_length=1, description="The address that port listens on.")] = (
        "127.0.0.1"
    )
    key: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="Where the key is that has to be sent as `Authorization: Bearer …`, on "
            "either port: `env:NAME` or `file:PATH`. Read again on SIGHUP."
        ),
    ] = None
