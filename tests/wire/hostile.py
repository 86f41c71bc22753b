"""Every decoder there is, what it promises, and bytes that are almost right.

A decoder given any bytes at all either refuses them by an error of ours (or with None, where it
says so), or takes them for a message; and what it takes, we could have said ourselves: encoded and
read again it is the same.
"""

from collections.abc import Callable
from random import Random
from typing import Any, Final

import msgspec
from tests.wire import examples

from roskva.core.identity import Identity, pack_identity, unpack_identity
from roskva.core.token import NONCE_BYTES, Claims, TokenKeys
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
        Decoder(
            "server json",
            lambda data: codec.decode_from_server(data, "json"),
            lambda message: codec.encode(message, "json"),
            _json(examples.FROM_SERVER),
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

_HEADERS: Final = [
    bytes.fromhex(header)
    for header in (
        *("80", "8f", "90", "9f", "a0", "bf", "c0", "c1", "c2", "c3"),
        *("c4ff", "c5ffff", "c6ffffffff", "d9ff", "daffff", "dbffffffff"),
        *("dcffff", "ddffffffff", "deffff", "dfffffffff", "c7ff01", "c9ffffffff01"),
        *("cc80", "cdffff", "ceffffffff", "cfffffffffffffffff", "d0ff", "d38000000000000000"),
        *("ca7fc00000", "cb7ff0000000000000", "d6ff00000000", "d801"),
    )
]
_TEXTS: Final = [
    *(b"null", b"true", b"[", b"]", b"{", b"}", b'"', b"\\u0000", b"\\ud800", b"\\", b","),
    *(b"-1", b"1e999", b"1.5", b"9" * 400, b"NaN", b'"null"', b'"true"', b'"-0"', b"\xff", b"/"),
]


def mutated(frame: bytes, other: bytes, dice: Random) -> bytes:
    """A frame with one to three things changed; `other` lends a piece for a splice."""
    data = bytearray(frame)
    for _ in range(1 if dice.random() < 0.7 else dice.randrange(2, 4)):
        _mutate(data, other, dice)
    return bytes(data)


def _mutate(data: bytearray, other: bytes, dice: Random) -> None:
    at = int(dice.random() * (len(data) + 1))
    kind = int(dice.random() * 8)
    if kind == 0 and at < len(data):
        data[at] ^= 1 << int(dice.random() * 8)
    elif kind == 1 and at < len(data):
        data[at] = int(dice.random() * 256)
    elif kind == 2:
        data[at:at] = dice.randbytes(1 + int(dice.random() * 4))
    elif kind == 3:
        del data[at : at + 1 + int(dice.random() * 8)]
    elif kind == 4:
        begin = int(dice.random() * len(other))
        piece = other[begin : begin + int(dice.random() * 64)]
        data[at : at + int(dice.random() * 2) * len(piece)] = piece
    elif kind == 5:
        pieces = _HEADERS if dice.random() < 0.7 else _TEXTS
        piece = pieces[int(dice.random() * len(pieces))]
        data[at : at + int(dice.random() * 2) * len(piece)] = piece
    elif kind == 6 and at < len(data):
        # Lengths stand in the low bits of a header: one more, or one less.
        data[at] = (data[at] + (1 if dice.random() < 0.5 else -1)) & 0xFF
    else:
        del data[at:]
