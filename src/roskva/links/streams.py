"""Streams between processes of ours: dialled, and taken in.

With TLS 1.3 whoever dials has shaken hands before the other end has looked at its certificate. So
a stream may be opened, and be refused all the same: then it ends before anything was heard over it,
or with a frame that says why. The other end has the reason in its log.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from roskva.errors import BadConfig, Unauthorised
from roskva.links.framing import Framed, with_length
from roskva.links.members import LinkAddress, MemberCertificates, found_there, let_in
from roskva.net.certificates import about_certificate
from roskva.wire.codec import encode_link
from roskva.wire.links import LinkRefused

_log = logging.getLogger(__name__)
HANDSHAKE_S: Final = 5.0
MAX_HANDSHAKES: Final = 64
"""Under way at once; beyond that, whoever has taken longest gives way."""
_BACKLOG: Final = 128
_PAUSE_S: Final = 0.5
"""When the system has no file descriptor or memory for another."""


class NoLink(ConnectionError):
    """In words: what is wrong with whoever is at the other end, or with us as it sees us."""


async def connect(
    address: LinkAddress, stream: Framed, certificates: MemberCertificates | None = None
) -> asyncio.BaseTransport:
    """Or `OSError`. A member of another machine is met with `certificates` only."""
    loop = asyncio.get_running_loop()
    if isinstance(address, str):
        transport, _ = await loop.create_unix_connection(lambda: stream, address)
        return transport
    if certificates is None:
        raise NoLink(f"there is no certificate here to show to {address}")
    check, wrong = found_there(address.member), None

    def admits(transport: asyncio.Transport) -> bool:
        nonlocal wrong
        wrong = check(transport.get_extra_info("peercert") or {})
        return wrong is None

    stream.admits = admits
    try:
        async with asyncio.timeout(2 * HANDSHAKE_S):  # what is before TLS has no limit of its own
            transport, _ = await loop.create_connection(
                lambda: stream,
                *(address.host, address.port),
                ssl=certificates.dialling,
                server_hostname=address.member.host_name,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=HANDSHAKE_S,
            )
    except OSError as error:
        if (why := _explained(error)) is None:
            raise
        raise NoLink(f"{address}: {why}") from None
    if wrong is not None:
        transport.abort()
        raise NoLink(f"{address}: {wrong}")
    return transport


class MemberListener:
    """Takes in members of its own cell. What they say is up to whoever makes their streams."""

    def __init__(
        self,
        listening: socket.socket,
        certificates: MemberCertificates,
        make: Callable[[], Framed],
    ) -> None:
        """`listening`: bound."""
        self._listening = listening
        self._certificates = certificates
        self._make = make
        self._check = let_in(certificates.own.cell)
        self._streams: set[Framed] = set()
        self._arriving: dict[socket.socket, None] = {}
        """Shaking hands, the oldest first."""
        listening.setblocking(False)
        listening.listen(_BACKLOG)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listening.getsockname()[:2]
        return host, port

    async def run(self) -> None:
        """Until it is cancelled; then all its streams are dropped."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    try:
                        conn, peer = await loop.sock_accept(self._listening)
                    except OSError as error:
                        _log.error("no link can be accepted for a moment: %s", error.strerror)
                        await asyncio.sleep(_PAUSE_S)
                        continue
                    self._make_room()
                    self._arriving[conn] = None
                    tasks.create_task(self._take_in(conn, peer[0]))
        finally:
            self._listening.close()
            for conn in self._arriving:
                conn.close()  # whoever was to take it in had not begun
            for stream in list(self._streams):
                stream.drop()

    def _make_room(self) -> None:
        if len(self._arriving) >= MAX_HANDSHAKES:
            oldest = next(iter(self._arriving))
            del self._arriving[oldest]
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)  # whatever reads it hears that it is over

    async def _take_in(self, conn: socket.socket, host: str) -> None:
        stream = self._make()
        lost = stream.lost

        def admits(transport: asyncio.Transport) -> bool:
            wrong = self._check(transport.get_extra_info("peercert") or {})
            if wrong is None:
                self._streams.add(stream)
                return True
            _refused(host, wrong)
            transport.write(with_length(encode_link(LinkRefused(Unauthorised.code, wrong))))
            transport.close()
            return False

        def gone(stream: Framed) -> None:
            self._streams.discard(stream)
            lost(stream)

        stream.admits, stream.lost = admits, gone
        try:
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: stream,
                conn,
                ssl=self._certificates.accepting,
                ssl_handshake_timeout=HANDSHAKE_S,
                ssl_shutdown_timeout=HANDSHAKE_S,
            )
        except OSError as error:
            _refused(host, _explained(error) or "it went away before hands were shaken")
        finally:
            self._arriving.pop(conn, None)


def _refused(host: str, why: str) -> None:
    """Of each reason a line a minute, and how often."""
    _log.warning("a link from %s is refused: " + why.replace("%", "%%"), host)


def listen_for_members(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), backlog=_BACKLOG, family=_family(host))
    except OSError as error:
        raise BadConfig(
            f"port {port} of {host} cannot be used for links ({error.strerror}): stop what uses "
            "it, or name another"
        ) from None


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


_IN_WORDS: Final = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it showed no certificate",
    "UNSUPPORTED_PROTOCOL": "it does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "it does not speak TLS there",
    "HTTP_REQUEST": "it speaks HTTP, not TLS",
    "RECORD_LAYER_FAILURE": "it does not speak TLS there",
}
"""By OpenSSL's reason."""
HUNG_UP: Final = "it hung up: if it does not take our certificate, its log says why"


def _explained(error: BaseException) -> str | None:
    """In words, if it is about TLS."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return about_certificate(error)
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        return _IN_WORDS.get(reason) or f"TLS failed: {reason.replace('_', ' ').lower() or error}"
    if isinstance(error, ConnectionAbortedError):
        return f"hands were not shaken within {HANDSHAKE_S:.0f} s"
    return None
