"""Asking a process of a node something, over its Unix socket."""

import asyncio
from typing import Any

import msgspec

from roskva.links.framing import Framed
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import Ask, ProcessAnswer


async def ask(path: str, question: Ask, timeout_s: float) -> dict[str, Any]:
    """The answer; one that does not come is an answer with an `error`."""
    answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def opened(stream: Framed) -> None:
        stream.send(encode_link(question))

    def received(stream: Framed, frame: bytes) -> None:
        told = decode_from_shard(frame)
        if isinstance(told, ProcessAnswer) and not answer.done():
            answer.set_result(told.json)

    def lost(stream: Framed) -> None:
        if not answer.done():
            answer.set_exception(ConnectionError("it went away"))

    try:
        async with asyncio.timeout(timeout_s):
            loop = asyncio.get_running_loop()
            transport, _ = await loop.create_unix_connection(
                lambda: Framed(opened, received, lost), path
            )
            try:
                told: dict[str, Any] = msgspec.json.decode(await answer)
            finally:
                transport.close()
    except (OSError, TimeoutError) as error:
        return {"error": str(error) or "no answer"}
    return told
