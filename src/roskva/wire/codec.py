"""Bytes to messages and back: one definition, in MessagePack and in JSON.

In JSON every integer is written as a decimal string, because a browser's numbers end at 2^53;
numbers are read as well. Bytes are base64 there.

Sizes are checked before anything is allocated: a frame that is too long is never parsed, and a
frame cannot announce more than it holds. Whatever is wrong with the bytes, a `BadMessage` comes
out and nothing else.
"""

from typing import Any, Final, Literal, TypeVar

import msgspec

from roskva.errors import BadMessage, BadName, TooLarge, WrongProtocol
from roskva.model import MAX_SOURCE_BYTES, check_app, is_key
from roskva.wire.links import MAX_LINK_FRAME_BYTES, FromShard, ToShard
from roskva.wire.messages import (
    MAX_FRAME_BYTES,
    MAX_SUM,
    PROTOCOL,
    ClientMessage,
    FromClient,
    Hello,
    ServerMessage,
)

Format = Literal["msgpack", "json"]
M = TypeVar("M")

_MAJOR: Final = PROTOCOL.split(".", maxsplit=1)[0] + "."
_pack = msgspec.msgpack.Encoder()
_Decoder = msgspec.msgpack.Decoder[M] | msgspec.json.Decoder[M]

_from_client: dict[Format, _Decoder[FromClient]] = {
    "msgpack": msgspec.msgpack.Decoder(FromClient),
    "json": msgspec.json.Decoder(FromClient, strict=False),
}
_from_server: _Decoder[ServerMessage] = msgspec.msgpack.Decoder(ServerMessage)
_to_shard: _Decoder[ToShard] = msgspec.msgpack.Decoder(ToShard)
_from_shard: _Decoder[FromShard] = msgspec.msgpack.Decoder(FromShard)


def encode(message: FromClient | ServerMessage, format: Format = "msgpack") -> bytes:
    if format == "msgpack":
        frame = _pack.encode(message)
    else:
        frame = msgspec.json.encode(_integers_as_text(msgspec.to_builtins(message)))
    if len(frame) > MAX_FRAME_BYTES:
        raise TooLarge(f"a frame of {len(frame)} bytes; the limit is {MAX_FRAME_BYTES}")
    return frame


def decode_from_client(frame: bytes, format: Format = "msgpack") -> FromClient:
    message = _decode(_from_client[format], frame, MAX_FRAME_BYTES)
    _check_protocol(message.v)
    if type(message) is ClientMessage:
        _check_keys(message)
        if message.digest is not None and message.digest.sum > MAX_SUM:
            # MessagePack ends at 64 bits by itself; text does not.
            raise BadMessage("a digest's sum has more than 64 bits")
    elif type(message) is Hello:
        _check_hello(message)
    return message


def decode_from_server(frame: bytes) -> ServerMessage:
    """In MessagePack: the clients that read JSON are none of ours."""
    message = _decode(_from_server, frame, MAX_FRAME_BYTES)
    _check_protocol(message.v)
    return message


def encode_link(message: ToShard | FromShard) -> bytes:
    frame = _pack.encode(message)
    if len(frame) > MAX_LINK_FRAME_BYTES:
        raise TooLarge(f"a link frame of {len(frame)} bytes; the limit is {MAX_LINK_FRAME_BYTES}")
    return frame


def decode_to_shard(frame: bytes) -> ToShard:
    return _decode(_to_shard, frame, MAX_LINK_FRAME_BYTES)


def decode_from_shard(frame: bytes) -> FromShard:
    return _decode(_from_shard, frame, MAX_LINK_FRAME_BYTES)


def _decode(decoder: _Decoder[M], frame: bytes, limit: int) -> M:
    if len(frame) > limit:
        raise TooLarge(f"a frame of {len(frame)} bytes; the limit is {limit}")
    try:
        return decoder.decode(frame)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise BadMessage(str(error)[:200]) from None


def _check_protocol(version: str) -> None:
    if not version.startswith(_MAJOR):
        raise WrongProtocol(f"protocol {version!r}; this side speaks {PROTOCOL}")


def _check_hello(hello: Hello) -> None:
    if (hello.app is None) == (hello.token is None):
        raise BadMessage("a hello names an app or shows a token, one of the two")
    if len(hello.application.encode()) > MAX_SOURCE_BYTES:
        raise BadMessage(f"an application id has at most {MAX_SOURCE_BYTES} bytes of UTF-8")
    if hello.app is not None:
        try:
            check_app(hello.app)
        except BadName as error:
            raise BadMessage(str(error)) from None


def _check_keys(message: ClientMessage) -> None:
    """Names are checked where they enter; an ack of what was never registered is harmless."""
    for operation in message.operations:
        if not is_key(operation.object):
            raise BadMessage("an operation on a name that is no object's")
    for sync in message.syncs:
        for key in sync.objects:
            if not is_key(key):
                raise BadMessage("a sync with a name that is no object's")


def _integers_as_text(value: Any) -> Any:
    if type(value) is int:
        return str(value)
    if type(value) is list:
        return [_integers_as_text(item) for item in value]
    if type(value) is dict:
        return {name: _integers_as_text(item) for name, item in value.items()}
    return value
