"""TLS as whoever talks to a node sees it: whom to believe, what to show, and what went wrong."""

import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from roskva.errors import BadInput
from roskva.net.certificates import about_certificate

_CUT_OFF: Final = (
    *(ConnectionResetError, BrokenPipeError, EOFError),
    *(httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError),
)
_HUNG_UP: Final = "it hung up: it was stopped, or it wants a client certificate of a CA it knows"


class Tls(msgspec.Struct, frozen=True):
    """For a node at https:// or wss://. Each is a file in PEM.

    `ca`: who has signed the node's certificate, if that is none of the system's CAs. `certificate`
    and `key`: what this client shows, if the node asks for it.
    """

    ca: Path | str | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None


def client_context(url: str, tls: Tls | ssl.SSLContext | None) -> ssl.SSLContext | None:
    """None where there is no TLS."""
    if isinstance(tls, ssl.SSLContext):
        return tls
    if urlsplit(url).scheme not in ("https", "wss"):
        if tls is not None:
            raise BadInput(f"certificates are for https:// and wss://; got {url[:80]!r}")
        return None
    tls = tls or Tls()
    if (tls.certificate is None) != (tls.key is None):
        raise BadInput("a client's certificate and its key go together: give both")
    try:
        context = ssl.create_default_context(cafile=tls.ca)
    except OSError as error:
        raise BadInput(f"{tls.ca} has no certificate in PEM: {_reason(error)}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls.certificate is not None and tls.key is not None:
        try:
            context.load_cert_chain(tls.certificate, tls.key, _no_password)
        except OSError as error:
            raise BadInput(
                f"{tls.certificate} and {tls.key} are no certificate and its key in PEM: "
                f"{_reason(error)}"
            ) from None
    return context


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """Believes this certificate and no other, whatever name is in it: for a node on this machine.
    Or OSError."""
    first, end, _ = certificate.read_text().partition("-----END CERTIFICATE-----")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=f"{first}{end}\n")
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.check_hostname = False
    return context


def explained(error: BaseException, over_tls: bool) -> str | None:
    """What is wrong, and what to do about it, if it is about TLS."""
    chain = list(_chain(error))
    found = next((each for each in chain if isinstance(each, ssl.SSLError)), None)
    if found is None:
        # Who is refused for its certificate may be cut off before it hears why.
        cut_off = over_tls and any(isinstance(each, _CUT_OFF) for each in chain)
        return _HUNG_UP if cut_off and not isinstance(error, httpx.ConnectError) else None
    if isinstance(found, ssl.SSLCertVerificationError):
        return about_certificate(found)
    reason = found.reason or ""
    if reason in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"):
        return "it does not speak TLS there: say http:// or ws://, or name its port for TLS"
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason:
        return "it wants a client certificate: give one, with its key"
    if "UNKNOWN_CA" in reason:
        return "it does not believe the CA of this client's certificate: get one from a CA it knows"
    if "CERTIFICATE_EXPIRED" in reason:
        return "this client's certificate has expired: renew it"
    return f"TLS failed: {reason.replace('_', ' ').lower() or found}"


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "not PEM").replace("_", " ").lower()
    return error.strerror or str(error)


def _no_password() -> str:
    raise BadInput("the key is encrypted: decrypt it, and protect the file instead")
