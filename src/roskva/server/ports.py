"""The registrar's ends of its links: to a shard in this process, or in another one.

A port keeps its link up: when it breaks, it is opened again. A publish that waits for an answer
when the link breaks is refused for now: whether it reached the feed is not known, and publishing it
again does no harm.
"""

import asyncio
import logging
from collections.abc import Sequence
from functools import partial
from typing import Final, Protocol

from roskva.answer import Answered
from roskva.errors import BadMessage, RoskvaError, Unavailable, error_of
from roskva.links.framing import Framed
from roskva.model import Update
from roskva.server.shard import Shard
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import (
    FromShard,
    LinkRefused,
    NotPublished,
    PublishUpdates,
    ToShard,
    UpdatesPublished,
)

_log = logging.getLogger(__name__)
_REDIAL_S: Final = 0.1
_PUBLISH_TIMEOUT_S: Final = 10.0


class Registrar(Protocol):
    """What a port tells of its link; `shard` says which."""

    def link_up(self, shard: int) -> None: ...

    def from_link(self, shard: int, message: FromShard) -> None: ...

    def link_down(self, shard: int) -> None: ...


class Port(Protocol):
    async def run(self) -> None:
        """Keep the link up."""
        ...

    def send(self, message: ToShard) -> None: ...

    def drop(self) -> None: ...

    def publish(self, updates: Sequence[Update], answered: Answered[list[int]]) -> None: ...


class LocalPort:
    """Messages are handed over as they are."""

    def __init__(self, shard: Shard, registrar: Registrar) -> None:
        self._shard = shard
        self._registrar = registrar
        self._id: int | None = None
        self._broken = asyncio.Event()

    async def run(self) -> None:
        while True:
            self._broken.clear()
            self._id = self._shard.accept(_LocalLink(self, self._shard.number, self._registrar))
            self._registrar.link_up(self._shard.number)
            await self._broken.wait()

    def send(self, message: ToShard) -> None:
        if self._id is not None:
            self._shard.received(self._id, message)

    def drop(self) -> None:
        if self._id is not None:
            id, self._id = self._id, None
            self._broken.set()
            self._shard.lost(id)
            self._registrar.link_down(self._shard.number)

    def publish(self, updates: Sequence[Update], answered: Answered[list[int]]) -> None:
        self._shard.publish(updates, answered)


class _LocalLink:
    """The shard's end of a local link."""

    def __init__(self, port: LocalPort, shard: int, registrar: Registrar) -> None:
        self._port = port
        self._shard = shard
        self._registrar = registrar

    def send(self, message: FromShard) -> None:
        self._registrar.from_link(self._shard, message)

    def drop(self) -> None:
        self._port.drop()


class SocketPort:
    """Over a Unix socket on which the shard's owner listens."""

    def __init__(self, shard: int, path: str, registrar: Registrar) -> None:
        self._shard = shard
        self._path = path
        self._registrar = registrar
        self._stream: Framed | None = None
        self._lost = asyncio.Event()
        self._requests = 0
        self._unanswered: dict[int, tuple[Answered[list[int]], asyncio.TimerHandle]] = {}

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            self._lost.clear()
            try:
                await loop.create_unix_connection(self._stream_of_frames, self._path)
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

    def publish(self, updates: Sequence[Update], answered: Answered[list[int]]) -> None:
        if self._stream is None:
            answered(Unavailable(f"shard {self._shard} is not there at the moment"))
            return
        self._requests += 1
        self.send(PublishUpdates(self._requests, list(updates)))
        silent = Unavailable(f"shard {self._shard} does not answer")
        give_up = partial(self._answer, self._requests, silent)
        timer = asyncio.get_running_loop().call_later(_PUBLISH_TIMEOUT_S, give_up)
        self._unanswered[self._requests] = answered, timer

    # The stream.

    def _stream_of_frames(self) -> Framed:
        return Framed(self._opened, self._received, self._closed)

    def _opened(self, stream: Framed) -> None:
        self._stream = stream
        self._registrar.link_up(self._shard)

    def _received(self, stream: Framed, frame: bytes) -> None:
        try:
            message = decode_from_shard(frame)
        except BadMessage:
            _log.error("shard %d says what is no message: dropping the link", self._shard)
            stream.drop()
            return
        match message:
            case UpdatesPublished(request=request, versions=versions):
                self._answer(request, versions)
            case NotPublished(request=request, code=code, text=text):
                self._answer(request, error_of(code, text))
            case LinkRefused(text=text):
                _log.error("shard %d refuses the link: %s", self._shard, text)
            case _:
                self._registrar.from_link(self._shard, message)

    def _answer(self, request: int, outcome: list[int] | RoskvaError) -> None:
        if request in self._unanswered:
            answered, timer = self._unanswered.pop(request)
            timer.cancel()
            answered(outcome)

    def _closed(self, stream: Framed) -> None:
        if self._stream is stream:
            self._stream = None
            self._registrar.link_down(self._shard)
            for request in list(self._unanswered):
                self._answer(request, Unavailable(f"shard {self._shard} went away"))
        self._lost.set()
