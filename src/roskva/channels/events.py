"""Streams of events over HTTP, for EventSource and scripts: the server keeps nothing.

    GET /v1/events?object=contacts/alice&object=contacts/bob

    id: 41-5f3a09c1.?-5f3a09c1
    event: notify
    data: {"object":"contacts/bob","version":null,"epoch":"1234"}

The event id says what the stream has told so far, in the order of the parameters: a version, or
`?` for unknown, or nothing; and in what epoch, by a short hash of it. A client that reconnects
sends the last id it saw (EventSource does so by itself), and that is its ack: it is told what has
changed since. Without hashes (`41.?`) the versions are taken to be of the current epoch.
"""

import asyncio
import secrets
import zlib
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

import msgspec
from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import Receive, Scope, Send

from roskva.channels.base import Gateway
from roskva.channels.peers import identified
from roskva.core.effects import Closed, Watching
from roskva.core.freshness import NEVER, Due, due
from roskva.errors import BadInput, RoskvaError, error_of
from roskva.host.delivery import Announcement, Delivery
from roskva.model import (
    MAX_VERSION,
    NO_EPOCH,
    NO_MARK,
    NO_VERSION,
    Key,
    Principal,
    mark_of,
    parse_key,
)
from roskva.wire.links import Registered
from roskva.wire.messages import PROTOCOL, ClientMessage, Notification, ServerMessage

MAX_OBJECTS: Final = 64
_PING_S: Final = 15.0
_DEFAULT_RETRY_MS: Final = 1000

Told = tuple[int, str | None]
"""A version (NO_VERSION: unknown) and the hash of its epoch (None: the current one)."""


def events_handler(front: Gateway) -> ASGIRouteHandler:
    @asgi("/v1/events", is_mount=False, copy_scope=True)
    async def events(scope: Scope, receive: Receive, send: Send) -> None:
        query = parse_qs(scope["query_string"].decode("latin-1"))
        headers = dict(scope["headers"])
        authorization = headers.get(b"authorization")
        principal = await identified(
            front, None if authorization is None else authorization.decode("latin-1")
        )
        keys = _objects(query.get("object", []))
        await front.check_registering(principal, keys)
        last = headers.get(b"last-event-id", b"").decode("latin-1")
        stream = EventStream(keys, parse_id(last, len(keys)))
        unread = [Registered(key, NO_VERSION, NO_EPOCH) for key in keys]
        front.step(Watching(stream, secrets.token_bytes(16), unread, principal))
        try:
            if stream.refused is not None:
                raise stream.refused
            await _serve(front, principal, stream, receive, send)
        finally:
            front.step(Closed(stream))
            stream.connection = None

    return events


def _objects(wanted: Sequence[str]) -> list[Key]:
    if not 1 <= len(wanted) <= MAX_OBJECTS:
        raise BadInput(f"name 1 to {MAX_OBJECTS} objects: /v1/events?object=app/name&object=…")
    keys = [parse_key(text).key for text in wanted]
    if len(set(keys)) < len(keys):
        raise BadInput("an object is named twice")
    return keys


async def _serve(
    front: Gateway, principal: Principal, stream: "EventStream", receive: Receive, send: Send
) -> None:
    head = [
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    async with asyncio.TaskGroup() as tasks:
        gone = tasks.create_task(_until_gone(receive, stream))
        number = 0
        while True:
            text = await stream.next(_PING_S)
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


async def _until_gone(receive: Receive, stream: "EventStream") -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    stream.leave()


_COMMENT: Final = b": still here\n\n"


class EventStream(Delivery):
    """What is not written yet is one notification per object at most: a slow reader is told the
    latest, and nothing piles up."""

    def __init__(self, keys: list[Key], told: list[Told | None]) -> None:
        super().__init__()
        self.connection = self
        self.gone = False
        """The client has left."""
        self.ended = False
        """The server wants it to go."""
        self.refused: RoskvaError | None = None
        self._told: dict[Key, Told | None] = dict(zip(keys, told, strict=True))
        self._unwritten: dict[Key, Notification] = {}
        self._retry_ms: int | None = None
        self._wake = asyncio.Event()

    # What the core says.

    def send(self, message: ServerMessage) -> None:
        if message.not_before_ms is not None:
            self._retry_ms = message.not_before_ms
        if message.error is not None:
            self.refused = error_of(message.error.code, message.error.text)
        for notification in message.notifications:
            self._take(notification)

    def notify(self, announcement: Announcement) -> None:
        self._take(announcement.message.notifications[0])

    def close(self) -> None:
        self.ended = True
        self._wake.set()

    # The stream.

    def leave(self) -> None:
        self.gone = True
        self._wake.set()

    async def next(self, timeout_s: float) -> bytes:
        """The next bytes to write."""
        try:
            await asyncio.wait_for(self._wake.wait(), timeout_s)
        except TimeoutError:
            return _COMMENT
        self._wake.clear()
        unwritten, self._unwritten = self._unwritten, {}
        text = b"".join(self._events(notification) for notification in unwritten.values())
        if self.ended:
            retry_ms = _DEFAULT_RETRY_MS if self._retry_ms is None else self._retry_ms
            text += b"retry: %d\n\n" % retry_ms
        return text

    def _take(self, notification: Notification) -> None:
        if self._due(notification) is not Due.NOTHING:
            self._unwritten[notification.object] = notification
            self._wake.set()

    def _due(self, notification: Notification) -> Due:
        """By the table, against what this stream has told."""
        version = NO_VERSION if notification.version is None else notification.version
        told = self._told[notification.object]
        acked = NEVER
        if told is not None:
            same_epoch = told[1] is None or told[1] == hash_of(notification.epoch)
            acked = (told[0], notification.epoch if same_epoch else NO_EPOCH)
        return due(acked, (version, notification.epoch))

    def _events(self, notification: Notification) -> bytes:
        """After a reset, unknown and then at once the version however small: elsewhere it follows
        the ack of the unknown, and here there are none."""
        if self._due(notification) is not Due.UNKNOWN:
            return self._event(notification)
        text = self._event(Notification(notification.object, None, notification.epoch))
        if notification.version is not None and mark_of(notification.epoch) != NO_MARK:
            text += self._event(notification)
        return text

    def _event(self, notification: Notification) -> bytes:
        version = NO_VERSION if notification.version is None else notification.version
        self._told[notification.object] = (version, hash_of(notification.epoch))
        data = {
            "object": notification.object,
            "version": None if notification.version is None else str(notification.version),
            "epoch": str(notification.epoch),
        }
        if notification.payload is not None:
            data["payload"] = notification.payload  # type: ignore[assignment]
        id = format_id(list(self._told.values()))
        return b"id: %s\nevent: notify\ndata: %s\n\n" % (id.encode(), msgspec.json.encode(data))


# Event ids.


def hash_of(epoch: int) -> str:
    return f"{zlib.crc32(b'%d' % epoch):08x}"


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
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= MAX_VERSION):
        raise BadInput("no version")
    return int(text), hash
