"""Members of a cell, as they know each other: their names, their addresses, their certificates.

Between the processes of one machine links are Unix sockets, in a directory that only their user can
enter. Between machines they are TLS 1.3, and both ends show a certificate of the same CA. A
certificate speaks for the member whose name is among its alternative names, as a host name:

    MEMBER.CELL.roskva

That is no name of DNS, and no public CA vouches for it. It is compared letter by letter, without
wildcards, and a common name says nothing. So whoever may have a certificate of this CA under the
name of a member is that member; keep the CA for this alone. Both ends need the same certificate, so
if it names its purposes at all they are "server" and "client".
"""

import re
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from roskva.errors import BadConfig
from roskva.net.certificates import (
    check_not_expired,
    load_authorities,
    load_identity,
    names_in,
)

_SUFFIX: Final = ".roskva"
_LABEL: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")


class Member(msgspec.Struct, frozen=True, order=True):
    name: str
    cell: str

    def __post_init__(self) -> None:
        for part in (self.name, self.cell):
            if not _LABEL.fullmatch(part):
                raise BadConfig(
                    f"{part[:80]!r} names no member and no cell: small letters and digits, with "
                    "'-' between them; at most 63"
                )

    def __str__(self) -> str:
        return f"{self.name}.{self.cell}"

    @property
    def host_name(self) -> str:
        """As its certificate has it."""
        return f"{self}{_SUFFIX}"


class MemberAddress(msgspec.Struct, frozen=True):
    """Where a member listens for links, and who has to be found there."""

    host: str
    port: int
    member: Member

    def __str__(self) -> str:
        return f"{self.member} at {self.host}:{self.port}"


LinkAddress = str | MemberAddress
"""Of a process on this machine: the path of its Unix socket."""


class CertificateFiles(msgspec.Struct, frozen=True):
    """In PEM. `ca`: who signs the certificates of members, and nothing else."""

    certificate: Path
    key: Path
    ca: Path


class MemberCertificates:
    """What this member shows, and whom it believes. Links that are open stay so when the files are
    read again; what begins after that is judged by the new ones."""

    def __init__(self, own: Member, files: CertificateFiles) -> None:
        self.own = own
        self._files = files
        self.accepting, self.dialling = self._read()

    def reload(self) -> None:
        """Or `BadConfig`, and everything stays as it was."""
        self.accepting, self.dialling = self._read()

    def _read(self) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        files, own = self._files, self.own
        contexts = (
            _context(ssl.PROTOCOL_TLS_SERVER, files),
            _context(ssl.PROTOCOL_TLS_CLIENT, files),
        )
        check_not_expired(files.certificate)
        if own.host_name not in (names := names_in(files.certificate)):
            raise BadConfig(
                f"{files.certificate} is for {_listed(names)}, and this is {own.host_name}: have "
                "one issued for this name"
            )
        return contexts


def _context(protocol: int, files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # `found_there` and `let_in` do, and more strictly
    context.verify_mode = ssl.CERT_REQUIRED
    load_identity(context, files.certificate, files.key)
    load_authorities(context, files.ca)
    # A ticket would let somebody in again whose CA is no longer believed.
    context.options |= ssl.OP_NO_TICKET
    if protocol == ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0
    return context


# Who is at the other end. Its certificate is of our CA: that was seen when hands were shaken.

Check = Callable[[Mapping[str, Any]], str | None]
"""Of the certificate, as `ssl` has it: what is wrong, in words."""


def found_there(wanted: Member) -> Check:
    """For whoever dials."""

    def check(certificate: Mapping[str, Any]) -> str | None:
        names = _host_names(certificate)
        if wanted.host_name in names:
            return None
        return f"its certificate is for {_listed(names)}, not for {wanted.host_name}"

    return check


def let_in(cell: str) -> Check:
    """For whoever listens: members of this cell."""

    def check(certificate: Mapping[str, Any]) -> str | None:
        names = _host_names(certificate)
        if any(member.cell == cell for member in map(_member, names) if member is not None):
            return None
        return f"its certificate is for {_listed(names)}, not for a member of the cell {cell}"

    return check


def _member(host_name: str) -> Member | None:
    if not host_name.endswith(_SUFFIX):
        return None
    name, _, cell = host_name.removesuffix(_SUFFIX).partition(".")
    try:
        return Member(name, cell)
    except BadConfig:
        return None


def _host_names(certificate: Mapping[str, Any]) -> list[str]:
    return [name for kind, name in certificate.get("subjectAltName", ()) if kind == "DNS"]


def _listed(names: list[str]) -> str:
    return ", ".join(name[:255] for name in names[:5]) or "no host name at all"
