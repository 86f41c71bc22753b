"""Who a client is, how it proves that, and whether its word still counts.

A **token** is `{app, client, principal, cell, expiry, issue}`, sealed (AES-GCM) under a key named
by its first byte, so that keys can be rotated: the server remembers nothing. A token that was
tampered with, is of another key, has expired or was revoked looks the same from outside: it is
rejected, and the client shakes hands again.

A **generation** is a moment, in seconds since 1970. Whatever was issued to an app's clients, or to
one of its principals, before their generation is void: the credential itself, tokens that were
granted for it, and tokens that were granted for those. A session is as old as the credential it
began with. Raising a generation is how somebody is sent away before their tokens expire.

An **identity** is what a client keeps between its runs. Damage is noticed and means: a new client.
"""

from hashlib import sha256
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from roskva.model import Principal

NONCE_BYTES: Final = 12
_CHECK_BYTES: Final = 8


class Claims(msgspec.Struct, frozen=True, array_like=True):
    app: str
    client: bytes
    principal: str
    cell: str
    expires_at: int
    """Wall-clock seconds."""
    issued_at: int = 0
    """Likewise, of the credential that the first of these tokens was granted for."""


_claims = msgspec.msgpack.Decoder(Claims)


class TokenKeys(msgspec.Struct, frozen=True):
    """Key id → 16, 24 or 32 bytes; new tokens are sealed under `current`."""

    keys: dict[int, bytes]
    current: int

    def seal(self, claims: Claims, nonce: bytes) -> bytes:
        """`nonce`: 12 random bytes, never used before under this key."""
        head = bytes([self.current])
        sealed = AESGCM(self.keys[self.current]).encrypt(
            nonce, msgspec.msgpack.encode(claims), head
        )
        return head + nonce + sealed

    def open(self, token: bytes, wall_s: int) -> Claims | None:
        key = self.keys.get(token[0]) if token else None
        if key is None:
            return None
        nonce, sealed = token[1 : 1 + NONCE_BYTES], token[1 + NONCE_BYTES :]
        if len(nonce) < NONCE_BYTES or len(sealed) < 16:
            return None
        try:
            claims = _claims.decode(AESGCM(key).decrypt(nonce, sealed, token[:1]))
        except (InvalidTag, msgspec.MsgspecError):
            return None
        return claims if claims.expires_at > wall_s else None


class Standing(msgspec.Struct, frozen=True):
    """Without keys everybody stands."""

    keyed: bool = False
    apps: dict[str, int] = {}
    """The apps that let clients in, each with its generation."""
    principals: dict[str, dict[str, int]] = {}
    """By app and name, where a principal's generation is above its app's."""
    keys: dict[str, str] = {}
    """The publish keys by name, each with its app."""

    def holds(self, who: Principal) -> bool:
        if not self.keyed:
            return True
        if who.key:
            return self.keys.get(who.name) == who.app
        generation = self.apps.get(who.app or "")
        if generation is None or not who.name:
            return False
        own = self.principals.get(who.app or "", {}).get(who.name, generation)
        return who.issued_at >= max(generation, own)


class Identity(msgspec.Struct, frozen=True, array_like=True):
    app: str
    client: bytes
    token: bytes


_identity = msgspec.msgpack.Decoder(Identity)


def pack_identity(identity: Identity) -> bytes:
    packed = msgspec.msgpack.encode(identity)
    return sha256(packed).digest()[:_CHECK_BYTES] + packed


def unpack_identity(stored: bytes, app: str) -> Identity | None:
    check, packed = stored[:_CHECK_BYTES], stored[_CHECK_BYTES:]
    if sha256(packed).digest()[:_CHECK_BYTES] != check:
        return None
    try:
        identity = _identity.decode(packed)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return identity if identity.app == app else None
