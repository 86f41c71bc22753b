"""Every decoder of messages there is, and what it promises.

A decoder given any bytes at all either refuses them by an error of ours (or with None, where it
says so), or takes them for a message; and what it takes, we could have said ourselves: encoded and
read again it is the same.
"""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from tests.wire import examples

from roskva.core.identity import (
    NONCE_BYTES,
    Claims,
    Identity,
    TokenKeys,
    pack_identity,
    unpack_identity,
)
from roskva.errors import RoskvaError
from roskva.wire import codec


class Decoder(msgspec.Struct, frozen=True):
    name: str
    decode: Callable[[bytes], Any]
    encode: Callable[[Any], bytes]
    corpus: list[bytes]

    def accepts(self, data: bytes) -> bool:
        """Or anything but a refusal comes out of here as what it is."""
        try:
            message = self.decode(data)
        except RoskvaError:
            return False
        if message is None:
            return False
        assert self.decode(self.encode(message)) == message
        return True


_APP: Final = "contacts"
_NOW_S: Final = 1_700_000_000
_KEYS: Final = TokenKeys({1: bytes(range(16)), 2: bytes(range(32))}, 2)
_CLAIMS: Final = [
    Claims(_APP, examples.CLIENT_ID, "", "local", _NOW_S + 1),
    Claims(_APP, examples.CLIENT_ID, "böb", "cell-1", 2**62),
]
_IDENTITIES: Final = [
    Identity(_APP, examples.CLIENT_ID, examples.TOKEN),
    Identity(_APP, b"", b""),
]


def _seal(claims: Claims) -> bytes:
    return _KEYS.seal(claims, bytes(NONCE_BYTES))


def _packed(messages: dict[str, Any]) -> list[bytes]:
    return [codec.encode(message) for message in messages.values()]


def _json(messages: dict[str, Any]) -> list[bytes]:
    return [codec.encode(message, "json") for message in messages.values()]


def _linked(messages: dict[str, Any]) -> list[bytes]:
    return [codec.encode_link(message) for message in messages.values()]


DECODERS: Final = {
    decoder.name: decoder
    for decoder in (
        Decoder(
            "client msgpack",
            codec.decode_from_client,
            codec.encode,
            _packed(examples.FROM_CLIENT),
        ),
        Decoder(
            "client json",
            lambda data: codec.decode_from_client(data, "json"),
            lambda message: codec.encode(message, "json"),
            _json(examples.FROM_CLIENT),
        ),
        Decoder(
            "server msgpack",
            codec.decode_from_server,
            codec.encode,
            _packed(examples.FROM_SERVER),
        ),
        Decoder("to shard", codec.decode_to_shard, codec.encode_link, _linked(examples.TO_SHARD)),
        Decoder(
            "from shard", codec.decode_from_shard, codec.encode_link, _linked(examples.FROM_SHARD)
        ),
        Decoder("token", lambda data: _KEYS.open(data, _NOW_S), _seal, [_seal(c) for c in _CLAIMS]),
        Decoder(
            "identity",
            lambda data: unpack_identity(data, _APP),
            pack_identity,
            [pack_identity(identity) for identity in _IDENTITIES],
        ),
    )
}
