"""Which web pages may use a node from a browser; by which names is in `hosts.py`.

A browser lets any page open a WebSocket anywhere and send simple requests anywhere, and says from
what origin the page is. So a page of another origin is refused, unless it is named in the settings:
it would act with what its reader may do, or on a node without keys simply do anything. Programs
that are no browsers say no origin, and are none of this.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import msgspec

from roskva.channels import hosts
from roskva.channels.hosts import Hosts
from roskva.config import is_loopback
from roskva.errors import Unauthorised

if TYPE_CHECKING:
    from litestar.types import ASGIApp, Message, Receive, Scope, Send

REFUSED: Final = "pages of this origin may not use this node: name it in allowed_origins"
_ALL: Final = "*"
_PREFLIGHT: Final = [
    (b"access-control-allow-methods", b"GET, POST"),
    (b"access-control-allow-headers", b"authorization, content-type, last-event-id"),
    (b"access-control-max-age", b"600"),
]


class Origins:
    def __init__(self, allowed: Sequence[str], open_to_this_machine: bool) -> None:
        self._allowed = frozenset(allowed)
        self._open_to_this_machine = open_to_this_machine

    def allows(self, origin: str | None, host: str, secure: bool) -> bool:
        """`host`: what the request was sent to, as its header says."""
        if origin is None or _ALL in self._allowed or origin in self._allowed:
            return True
        if self._open_to_this_machine:
            # Not the same origin: a name that leads here need not be ours (DNS rebinding).
            return is_loopback(_host(origin))
        return origin == f"{'https' if secure else 'http'}://{host}"


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def for_browsers(app: "ASGIApp", names: Hosts, origins: Origins) -> "ASGIApp":
    """The app, for whoever may use it, and with the headers that browsers want to see."""

    async def guarded(scope: "Scope", receive: "Receive", send: "Send") -> None:
        called = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not names.allows(called):
            await _refuse(send, hosts.STATUS, hosts.REFUSED)
            return
        headers = dict(scope["headers"])
        given = headers.get(b"origin")
        if given is None:
            await app(scope, receive, send)
            return
        host = headers.get(b"host", b"").decode("latin-1")
        secure = scope["scheme"] == "https"
        if not origins.allows(given.decode("latin-1"), host, secure):
            await _refuse(send, 403, REFUSED)
        elif scope.get("method") == "OPTIONS" and b"access-control-request-method" in headers:
            await _answer(send, 204, [*_for(given), *_PREFLIGHT], b"")
        else:
            await app(scope, receive, _adding(_for(given), send))

    return guarded


def _for(origin: bytes) -> list[tuple[bytes, bytes]]:
    return [(b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def _adding(headers: list[tuple[bytes, bytes]], send: "Send") -> "Send":
    async def sending(message: "Message") -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message["headers"], *headers]
        await send(message)

    return sending


async def _refuse(send: "Send", status: int, text: str) -> None:
    failure = {"code": Unauthorised.code, "text": text, "retriable": False}
    body = msgspec.json.encode({"error": failure})
    await _answer(send, status, [(b"content-type", b"application/json")], body)


async def _answer(
    send: "Send", status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [length, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
