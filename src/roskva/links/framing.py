"""Frames on a stream: four bytes of length, then so many bytes; and asking something over one.

A stream that announces more than a frame may hold is closed: its other end is none of ours.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import msgspec

from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import MAX_LINK_FRAME_BYTES, Ask, ProcessAnswer, ToShard

_LENGTH_BYTES: Final = 4
T = TypeVar("T")
MAX_UNSENT_BYTES: Final = 64 * 1024 * 1024
"""A process that lets so much lie does not read any more: the link is dropped, and opened anew when
it does."""


@dataclass(eq=False)
class Framed(asyncio.Protocol):
    opened: Callable[["Framed"], None]
    received: Callable[["Framed", bytes], None]
    lost: Callable[["Framed"], None]
    _transport: asyncio.Transport | None = None

    def __post_init__(self) -> None:
        self._buffer = bytearray()

    def send(self, frame: bytes) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        transport.write(len(frame).to_bytes(_LENGTH_BYTES) + frame)
        if transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            transport.abort()

    def drop(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # asyncio's side.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by inheritance
        self.opened(self)

    def data_received(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            begin = start + _LENGTH_BYTES
            length = int.from_bytes(buffer[start:begin])
            if length > MAX_LINK_FRAME_BYTES:
                self.drop()
                return
            if len(buffer) - begin < length:
                break
            start = begin + length
            self.received(self, bytes(buffer[begin:start]))
        if start:
            del buffer[:start]

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self.lost(self)


async def ask(path: str, question: Ask, timeout_s: float) -> dict[str, Any]:
    """The answer of the process there; one that does not come is an answer with an `error`."""
    try:
        answer: dict[str, Any] = msgspec.json.decode(
            (await exchange(path, question, ProcessAnswer, timeout_s)).json
        )
    except (OSError, TimeoutError) as error:
        return {"error": str(error) or "no answer"}
    return answer


async def exchange(
    path: str,
    message: ToShard,
    kind: type[T],
    timeout_s: float,
    greeting: ToShard | None = None,
) -> T:
    """The first answer of this kind, over a stream of its own, which may need a `greeting`. Raises
    `OSError` or `TimeoutError` if there is none."""
    answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

    def opened(stream: Framed) -> None:
        for each in (greeting, message):
            if each is not None:
                stream.send(encode_link(each))

    def received(stream: Framed, frame: bytes) -> None:
        found = decode_from_shard(frame)
        if isinstance(found, kind) and not answer.done():
            answer.set_result(found)

    def lost(stream: Framed) -> None:
        if not answer.done():
            answer.set_exception(ConnectionError("it went away"))

    async with asyncio.timeout(timeout_s):
        transport, _ = await asyncio.get_running_loop().create_unix_connection(
            lambda: Framed(opened, received, lost), path
        )
        try:
            return await answer
        finally:
            transport.close()
