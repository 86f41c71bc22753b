"""The registrar's ends of its links: to a shard in this process, or in another one.

Each keeps its link up: when it breaks, it is opened again.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final, Protocol

from roskva.core.effects import FromLink, LinkDown, LinkUp
from roskva.errors import BadMessage
from roskva.links.framing import Framed
from roskva.server.executor import RegistrarLink, ShardExecutor
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import FromShard, LinkRefused, ToShard

_log = logging.getLogger(__name__)
_REDIAL_S: Final = 0.1

Step = Callable[[Any], None]
"""The registrar's."""


class LastingLink(RegistrarLink, Protocol):
    async def run(self) -> None:
        """Keep it up."""
        ...


class LocalLink:
    """Messages are handed over as they are."""

    def __init__(self, shard: ShardExecutor, step: Step) -> None:
        self._shard = shard
        self._number = shard.number
        self._step = step
        self._id: int | None = None
        self._broken = asyncio.Event()

    async def run(self) -> None:
        while True:
            self._broken.clear()
            self._id = self._shard.accept(_ShardSide(self, self._number, self._step))
            self._step(LinkUp(self._number))
            await self._broken.wait()

    def send(self, message: ToShard) -> None:
        if self._id is not None:
            self._shard.step(FromLink(self._id, message))

    def drop(self) -> None:
        if self._id is not None:
            id, self._id = self._id, None
            self._broken.set()
            self._shard.lost(id)
            self._step(LinkDown(self._number))


class _ShardSide:
    """The shard's end of a local link."""

    def __init__(self, link: LocalLink, number: int, step: Step) -> None:
        self._link = link
        self._number = number
        self._step = step

    def send(self, message: FromShard) -> None:
        self._step(FromLink(self._number, message))

    def drop(self) -> None:
        self._link.drop()


class SocketLink:
    """Over a Unix socket on which the shard's owner listens."""

    def __init__(self, shard: int, path: str, step: Step) -> None:
        self._number = shard
        self._path = path
        self._step = step
        self._stream: Framed | None = None
        self._lost = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            try:
                await loop.create_unix_connection(
                    lambda: Framed(self._opened, self._received, self._closed), self._path
                )
            except OSError:
                await asyncio.sleep(_REDIAL_S)
                continue
            await self._lost.wait()
            await asyncio.sleep(_REDIAL_S)

    def send(self, message: ToShard) -> None:
        if self._stream is not None:
            self._stream.send(encode_link(message))

    def drop(self) -> None:
        if self._stream is not None:
            self._stream.drop()

    def _opened(self, stream: Framed) -> None:
        self._stream = stream
        self._step(LinkUp(self._number))

    def _received(self, stream: Framed, frame: bytes) -> None:
        try:
            message = decode_from_shard(frame)
        except BadMessage:
            _log.error("shard %d says what is no message: dropping the link", self._number)
            stream.drop()
            return
        if isinstance(message, LinkRefused):
            _log.error("shard %d refuses the link: %s", self._number, message.text)
        self._step(FromLink(self._number, message))

    def _closed(self, stream: Framed) -> None:
        if self._stream is stream:
            self._stream = None
            self._step(LinkDown(self._number))
        self._lost.set()
