"""Tokens: how a client proves who it is without the server remembering it.

A token is `{app, client, principal, cell, expiry, issue}`, sealed (AES-GCM) under a key named by
its first byte, so that keys can be rotated. A token that was tampered with, is of another key, has
expired or was revoked looks the same from outside: it is rejected, and the client shakes hands
again.
"""

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

NONCE_BYTES = 12


class Claims(msgspec.Struct, frozen=True, array_like=True):
    app: str
    client: bytes
    principal: str
    cell: str
    expires_at: int
    """Wall-clock seconds."""
    issued_at: int = 0
    """Likewise, of the credential that the first of these tokens was granted for: `standing.py`."""


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
