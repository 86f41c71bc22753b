"""An end of a link to a shard, and the kind that goes over a Unix socket."""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

import msgspec

from roskva.core.effects import FromLink, LinkDown, LinkUp
from roskva.errors import BadMessage
from roskva.links.framing import Framed
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import LinkRefused, ToShard

_log = logging.getLogger(__name__)
_REDIAL_S: Final = 0.1


class LinkEnd(msgspec.Struct, frozen=True):
    """As the executor on this side of it has it."""

    send: Callable[[Any], None]
    drop: Callable[[], None]


class SocketLink:
    """Over a Unix socket on which the shard's owner listens; it is opened again when it breaks."""

    def __init__(self, shard: int, path: str, step: Callable[[Any], None]) -> None:
        self._number = shard
        self._path = path
        self._step = step
        self._stream: Framed | None = None
        self._lost = asyncio.Event()
        self.end = LinkEnd(self._send, self._drop)

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

    def _send(self, message: ToShard) -> None:
        if self._stream is not None:
            self._stream.send(encode_link(message))

    def _drop(self) -> None:
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
