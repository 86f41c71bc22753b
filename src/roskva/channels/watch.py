"""Watching objects over HTTP for as long as one request lasts: the server keeps nothing afterwards.

What the client has says it itself, and that is its ack: a version, or unknown, and in what epoch.
What is due follows by the table of `core/freshness.py`. What is not written yet is one notification
per object at most: who reads slowly is told the latest, and nothing piles up. So is a client whose
principal is told too much (`budget.py`): it waits for its turn, and hears the latest then.
"""

import asyncio
import secrets
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Final

from litestar.types import Receive

from roskva.channels.base import Gateway
from roskva.channels.budget import StreamBudget
from roskva.core.effects import Closed, Watching
from roskva.core.freshness import NEVER, Due, declared, due
from roskva.errors import BadInput, RoskvaError, error_of
from roskva.host.delivery import Announcement, Delivery
from roskva.model import NO_EPOCH, NO_MARK, NO_VERSION, Key, Principal, mark_of, parse_key
from roskva.wire.links import Registered
from roskva.wire.messages import Notification, ServerMessage

MAX_OBJECTS: Final = 64

Told = tuple[int, str | None]
"""A version (NO_VERSION: unknown) and the hash of its epoch (None: the current one)."""


@lru_cache(1024)
def hash_of(epoch: int) -> str:
    return f"{zlib.crc32(b'%d' % epoch):08x}"


def objects_of(front: Gateway, wanted: Sequence[str], how: str) -> list[Key]:
    """That their apps let be watched here; `how` they are to be named."""
    if not 1 <= len(wanted) <= MAX_OBJECTS:
        raise BadInput(f"name 1 to {MAX_OBJECTS} objects: {how}")
    keys = [parse_key(text).key for text in wanted]
    if len(set(keys)) < len(keys):
        raise BadInput("an object is named twice")
    for key in keys:
        front.check_channel(key.partition("/")[0], Watcher.channel)
    return keys


class Watcher(Delivery):
    channel = "events"

    def __init__(
        self, keys: Sequence[Key], told: Sequence[Told | None], budget: StreamBudget
    ) -> None:
        super().__init__()
        self.connection = self
        self._budget = budget
        self.gone = False
        """The client has left."""
        self.ended = False
        """The server wants it to go."""
        self.refused: RoskvaError | None = None
        self.retry_ms: int | None = None
        self.told: dict[Key, Told | None] = dict(zip(keys, told, strict=True))
        self.unheard = set(keys)
        """Of them no shard has said anything yet."""
        self.unwritten: dict[Key, Notification] = {}
        self._lines_up = False
        self.may_write = False
        """It is its turn."""
        self._changed = asyncio.Event()

    @contextmanager
    def by(self, front: Gateway, principal: Principal) -> Iterator[None]:
        """As a session without a row, which ends with this."""
        unread = [Registered(key, NO_VERSION, NO_EPOCH) for key in self.told]
        front.step(Watching(self, secrets.token_bytes(16), unread, principal))
        try:
            if self.refused is not None:
                raise self.refused
            yield
        finally:
            front.step(Closed(self))
            self.connection = None
            self.unwritten.clear()

    async def until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._changed.set()

    async def changed(self, timeout_s: float | None) -> bool:
        """Whether it may write or has to end, or everything was heard of."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    def take(self) -> Iterator[Notification]:
        """What to write now, one after the other; it counts as told. Nothing, before its turn.

        After a reset that is unknown and at once the version, however small: elsewhere it follows
        the ack of the unknown, and here there are none.
        """
        if not (self.may_write or self.ended):
            return
        self.may_write = False
        unwritten, self.unwritten = self.unwritten, {}
        for notification in unwritten.values():
            if self._due(notification) is Due.UNKNOWN:
                yield self._telling(Notification(notification.object, None, notification.epoch))
                if notification.version is None or mark_of(notification.epoch) == NO_MARK:
                    continue
            yield self._telling(notification)

    def _telling(self, notification: Notification) -> Notification:
        version = NO_VERSION if notification.version is None else notification.version
        self.told[notification.object] = (version, hash_of(notification.epoch))
        return notification

    # What the core says.

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        if message.not_before_ms is not None:
            self.retry_ms = message.not_before_ms
        if message.error is not None:
            self.refused = error_of(message.error.code, message.error.text)
        return [one for one in message.notifications if self._take(one)]

    def notify(self, announcement: Announcement) -> None:
        announcement.taken += self._take(announcement.message.notifications[0])

    def close(self) -> None:
        self.ended = True
        self._changed.set()

    def _take(self, notification: Notification) -> bool:
        """Whether it is told one more thing: of what waits only the newest is told."""
        key = notification.object
        if key in self.unheard:
            self.unheard.remove(key)
            if not self.unheard:
                self._changed.set()
        version, told = notification.version, self.told[key]
        newer = told is None or (version is not None and version > told[0])
        if not newer and self._due(notification) is Due.NOTHING:
            return False
        more = key not in self.unwritten
        self.unwritten[key] = notification
        if not (self._lines_up or self.may_write):
            self._lines_up = True
            self._budget.line_up(self._its_turn)
        return more

    def _its_turn(self) -> int:
        self._lines_up, self.may_write = False, True
        self._changed.set()
        return len(self.unwritten)

    def _due(self, notification: Notification) -> Due:
        """By the table, against what this client was told."""
        known = (
            NO_VERSION if notification.version is None else notification.version,
            notification.epoch,
        )
        told = self.told[notification.object]
        if told is None:
            acked = NEVER
        elif told[1] is None:
            acked = declared(told[0], None, known)
        else:
            acked = (told[0], known[1] if told[1] == hash_of(known[1]) else NO_EPOCH)
        return due(acked, known)
