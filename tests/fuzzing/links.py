"""Links: frames on a stream, and the messages in them."""

import asyncio
from typing import Any, Final, cast

from tests.fuzzing.target import Target
from tests.links.test_framing import Wire
from tests.wire import examples

from roskva.errors import BadMessage
from roskva.links.framing import Framed
from roskva.wire import codec
from roskva.wire.links import FromShard, ToShard


def _framed(*messages: ToShard | FromShard) -> bytes:
    frames = [codec.encode_link(message) for message in messages]
    return b"".join(len(frame).to_bytes(4) + frame for frame in frames)


_TO_SHARD: Final = list(examples.TO_SHARD.values())


def _received(data: bytes, piece: int) -> tuple[list[bytes], bool]:
    got: list[bytes] = []
    framed, wire = (
        Framed(lambda _: None, lambda _, frame: got.append(frame), lambda _: None),
        Wire(),
    )
    framed.connection_made(cast(asyncio.BaseTransport, cast(Any, wire)))
    for at in range(0, len(data), piece):
        framed.data_received(data[at : at + piece])
        if wire.aborted:
            break
    return got, wire.aborted


def _takes(data: bytes) -> bool:
    frames, dropped = _received(data, max(1, len(data)))
    assert (frames, dropped) == _received(data, 50), "pieces make a difference"
    taken = False
    for frame in frames:
        try:
            codec.decode_to_shard(frame)
        except BadMessage:
            break
        taken = True
    return taken


TARGETS: Final = [
    Target(
        "link frames",
        [_framed(message) for message in _TO_SHARD]
        + [_framed(*_TO_SHARD[i : i + 3]) for i in range(len(_TO_SHARD) - 3)],
        _takes,
    )
]
