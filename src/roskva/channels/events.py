"""Streams of events over HTTP, for EventSource and scripts: the server keeps nothing.

    GET /v1/events?object=contacts/alice&object=contacts/bob

    id: 41-5f3a09c1.?-5f3a09c1
    event: notify
    data: {"object":"contacts/bob","version":null,"epoch":"1234"}

The event id says what the stream has told so far, in the order of the parameters: a version, or
`?` for unknown, or nothing; and in what epoch, by a short hash of it. Of events that are written
together the last one has it. A client that reconnects sends the last id it saw (EventSource does so
by itself), and that is its ack: it is told what has changed since, and again what came without one.
 Without hashes (`41.?`) the versions are taken to be of the current epoch, unless
they are above all that is known of it.
"""

import asyncio
from collections.abc import Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import parse_qs

import msgspec
from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from roskva.channels.base import Gateway
from roskva.channels.budget import Budgets
from roskva.channels.connections import stay
from roskva.channels.peers import identified
from roskva.channels.watch import Told, Watcher, objects_of
from roskva.errors import BadInput, RoskvaError
from roskva.model import NO_VERSION, Principal, is_version
from roskva.wire.messages import PROTOCOL, ClientMessage, Notification

_DEFAULT_RETRY_MS: Final = 1000
_HOW: Final = "/v1/events?object=app/name&object=…"


def events_handler(front: Gateway, budgets: Budgets, ping_s: float) -> ASGIRouteHandler:
    @asgi("/v1/events", is_mount=False, copy_scope=True)
    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        headers = dict(scope["headers"])
        authorization = headers.get(b"authorization")
        principal = await identified(
            front, None if authorization is None else authorization.decode("latin-1")
        )
        keys = objects_of(front, query.get("object", []), _HOW)
        await front.check_registering(principal, keys)
        stay(scope["state"])
        last = headers.get(b"last-event-id", b"").decode("latin-1")
        budget = budgets.of(principal, scope)
        stream = EventStream(keys, parse_id(last, len(keys)), budget)
        with stream.by(front, principal):
            await _serve(front, principal, stream, ping_s, receive, send)

    return events


async def _serve(
    front: Gateway,
    principal: Principal,
    stream: "EventStream",
    ping_s: float,
    receive: Receive,
    send: Send,
) -> None:
    head = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(stream.until_gone(receive))
        number = 0
        while True:
            text = await stream.next(ping_s)
            if stream.gone:
                break
            if text == _COMMENT:
                number += 1  # the core wants to hear now and then of whoever is there
                front.received(stream, principal, ClientMessage(PROTOCOL, 0, number))
            more = not stream.ended
            await send({"type": "http.response.body", "body": text, "more_body": more})
            if not more:
                break
        gone.cancel()


_COMMENT: Final = b": still here\n\n"


class EventStream(Watcher):
    async def next(self, timeout_s: float) -> bytes:
        """The next bytes to write."""
        text = b""
        while not text and not self.gone:
            if not await self.changed(timeout_s):
                return _COMMENT
            events = [_event(notification) for notification in self.take()]
            if events:
                id = format_id(list(self.told.values()))
                events.insert(-1, b"id: %s\n" % id.encode())
            text = b"".join(events)
            if self.ended:
                retry_ms = _DEFAULT_RETRY_MS if self.retry_ms is None else self.retry_ms
                text += b"retry: %d\n\n" % retry_ms
        return text


@lru_cache(256)
def _event(notification: Notification) -> bytes:
    """The same for every stream that is told this."""
    data = {
        "object": notification.object,
        "version": None if notification.version is None else str(notification.version),
        "epoch": str(notification.epoch),
    }
    if notification.payload is not None:
        data["payload"] = notification.payload  # type: ignore[assignment]
    return b"event: notify\ndata: %s\n\n" % msgspec.json.encode(data)


# Event ids.


def format_id(told: Sequence[Told | None]) -> str:
    return ".".join(_format_part(part) for part in told)


def _format_part(part: Told | None) -> str:
    if part is None:
        return ""
    version, epoch = part
    text = "?" if version == NO_VERSION else str(version)
    return text if epoch is None else f"{text}-{epoch}"


def parse_id(text: str, objects: int) -> list[Told | None]:
    """An id that does not fit these objects is none: everything is told again."""
    if not text:
        return [None] * objects
    try:
        parts = [_parse_part(part) for part in text.split(".")]
    except RoskvaError:
        parts = []
    return parts if len(parts) == objects else [None] * objects


def _parse_part(part: str) -> Told | None:
    text, dash, epoch = part.partition("-")
    hash = epoch if dash else None
    if not text:
        return None
    if text == "?":
        return NO_VERSION, hash
    if not is_version(text):
        raise BadInput("no version")
    return int(text), hash
