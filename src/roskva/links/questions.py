"""Questions to processes of ours: one stream, one question, one answer."""

import asyncio
from typing import Any, TypeVar

import msgspec

from roskva.links.framing import Framed
from roskva.links.members import LinkAddress, MemberCertificates
from roskva.links.streams import HUNG_UP, NoLink, connect
from roskva.wire.codec import decode_from_shard, encode_link
from roskva.wire.links import Ask, LinkRefused, ProcessAnswer, ToShard

T = TypeVar("T")


async def ask(address: LinkAddress, question: Ask, timeout_s: float) -> dict[str, Any]:
    """The answer of the process there; one that does not come is an answer with an `error`."""
    try:
        answer: dict[str, Any] = msgspec.json.decode(
            (await exchange(address, question, ProcessAnswer, timeout_s)).json
        )
    except (OSError, TimeoutError) as error:
        return {"error": str(error) or "no answer"}
    return answer


async def exchange(
    address: LinkAddress,
    message: ToShard,
    kind: type[T],
    timeout_s: float,
    greeting: ToShard | None = None,
    certificates: MemberCertificates | None = None,
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
        if answer.done():
            return
        if isinstance(found, kind):
            answer.set_result(found)
        elif isinstance(found, LinkRefused):
            answer.set_exception(NoLink(found.text))

    def lost(stream: Framed) -> None:
        if not answer.done():
            answer.set_exception(NoLink(HUNG_UP))

    async with asyncio.timeout(timeout_s):
        transport = await connect(address, Framed(opened, received, lost), certificates)
        try:
            return await answer
        finally:
            transport.close()
