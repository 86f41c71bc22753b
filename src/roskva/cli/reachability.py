"""A node's place in a network: ports, certificates, and what would be open that should not be.

A part of `roskva doctor`.
"""

import errno
import socket
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

import httpx
import msgspec

from roskva.cli.finding import Finding
from roskva.cli.starting import INSECURE
from roskva.config import Config, exposed
from roskva.errors import RoskvaError
from roskva.net.address import local_in_url
from roskva.server.directory import others_may_read
from roskva.server.tls import expires_at, server_context

_RENEW_BEFORE: Final = timedelta(days=14)
_TIMEOUT_S: Final = 3.0

# Ports.


def check_ports(config: Config) -> Iterator[Finding]:
    host, port = config.node.host, config.node.port
    scheme = "https" if config.tls.enabled else "http"
    version = answers(f"{scheme}://{local_in_url(host)}:{port}") if port else None
    yield check_port("port", host, port, version)
    if config.node.mqtt_port is not None:
        yield check_port("mqtt port", host, config.node.mqtt_port, version)


def check_port(what: str, host: str, port: int, node: str | None) -> Finding:
    try:
        listen_once(host, port)
    except OSError as error:
        found = f"{host}:{port}: {error.strerror}"
        if error.errno != errno.EADDRINUSE:
            return Finding(what, "bad", found, "choose another address with --host")
        if node is not None:
            return Finding(what, "ok", f"{found}, and a Roskva node {node}")
        fix = f"stop what uses it, or choose another with --{what.replace(' ', '-')}"
        return Finding(what, "bad", found, fix)
    return Finding(what, "ok", f"{host}:{port} is free" if port else "any free one")


def listen_once(host: str, port: int) -> None:
    family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def answers(url: str) -> str | None:
    """What is known of the node there; nobody is asked for a certificate or a key."""
    with (
        suppress(httpx.HTTPError),
        httpx.Client(base_url=url, timeout=_TIMEOUT_S, verify=False) as http,
    ):
        if http.get("/healthz").text != "ok\n":
            return None
        status = http.get("/v1/status")
        if not status.is_success:
            return "is running"
        return f"{msgspec.json.decode(status.content, type=_Version).version} is running"
    return None


class _Version(msgspec.Struct, frozen=True):
    version: str = ""


# Who can reach it.


def check_exposure(config: Config) -> Finding:
    problems = exposed(config)
    if not problems:
        return Finding("exposure", "ok", f"{config.node.host}, nothing is open that should not be")
    return Finding("exposure", "bad", problems[0], "; ".join([*problems[1:], INSECURE]))


def check_certificate(config: Config) -> Finding:
    tls = config.tls
    if not tls.enabled:
        return Finding("tls", "ok", "not set up")
    try:
        server_context(tls)
        left = expires_at(tls) - datetime.now(UTC)
    except RoskvaError as error:
        return Finding("tls", "bad", str(error))
    assert tls.key is not None
    if left < timedelta(0):
        return Finding("tls", "bad", f"{tls.certificate} has expired", "renew it, then reload")
    if left < _RENEW_BEFORE:
        found = f"{tls.certificate} expires in {left.days} days"
        return Finding("tls", "warn", found, "renew it, then reload (SIGHUP)")
    if others_may_read(tls.key):
        fix = f"chmod 600 {tls.key}"
        return Finding("tls", "warn", f"{tls.key} is open to other users of this machine", fix)
    return Finding("tls", "ok", f"{tls.certificate}, good for {left.days} days")
