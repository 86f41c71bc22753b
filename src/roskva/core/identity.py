"""What a client keeps between its runs: who it is. Damage is noticed and means: a new client."""

from hashlib import sha256

import msgspec

_CHECK_BYTES = 8


class Identity(msgspec.Struct, frozen=True, array_like=True):
    app: str
    client: bytes
    token: bytes


_decoder = msgspec.msgpack.Decoder(Identity)


def pack_identity(identity: Identity) -> bytes:
    packed = msgspec.msgpack.encode(identity)
    return sha256(packed).digest()[:_CHECK_BYTES] + packed


def unpack_identity(stored: bytes, app: str) -> Identity | None:
    check, packed = stored[:_CHECK_BYTES], stored[_CHECK_BYTES:]
    if sha256(packed).digest()[:_CHECK_BYTES] != check:
        return None
    try:
        identity = _decoder.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return identity if identity.app == app else None
