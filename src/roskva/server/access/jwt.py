"""JWTs of an app's clients: who signed, for whom, and for how long.

The key is found by the token's `kid`, and the key decides the algorithm: a token that names another
(`none`, or a shared secret where a public key is meant) is refused before anything is computed.
"""

import time
from typing import Any, Final

import jwt
import msgspec

from roskva.model import Principal
from roskva.server.access.jwks import Jwks, VerifyKey
from roskva.wire.messages import MAX_CREDENTIAL_CHARS

_LEEWAY_S: Final = 5
"""Clocks differ."""
_MAX_PRINCIPAL_BYTES: Final = 255
MAX_REMEMBERED: Final = 4096

_BROKEN: Final = (
    *(jwt.PyJWTError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError),
)
"""What a decoder may raise about what anybody may send."""


class BadJwt(Exception):
    """Why it is refused: for logs at DEBUG and for `roskva token explain`, never for who asks."""


class UnknownKey(BadJwt):
    pass


class _Verified(msgspec.Struct, frozen=True):
    principal: Principal
    expires_at: float


def looks_like_jwt(credential: str) -> bool:
    return credential.count(".") == 2


def audiences(token: str) -> list[str]:
    """What it says of itself, unverified: it only decides whose keys it is tried with."""
    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except _BROKEN:
        return []
    found = claims.get("aud")
    listed = found if isinstance(found, list) else [found]
    return [audience for audience in listed if isinstance(audience, str)]


class JwtVerifier:
    def __init__(
        self,
        app: str,
        audience: str,
        issuer: str | None,
        jwks: Jwks,
    ) -> None:
        self.app = app
        self.audience = audience
        self.jwks = jwks
        self._issuer = issuer
        self._verified: dict[str, _Verified] = {}
        """Signatures cost time, and a backend shows the same token with every request."""

    def forget(self) -> None:
        """Keys were taken away."""
        self._verified.clear()

    def verify(self, token: str) -> Principal:
        """`BadJwt` says why not; `UnknownKey` that other keys might do."""
        known = self._verified.get(token)
        if known is not None and time.time() < known.expires_at + _LEEWAY_S:
            return known.principal
        key = self._key_of(token)
        claims = self._claims(token, key)
        principal = Principal(_subject(claims), self.app, _issued_at(claims))
        if len(self._verified) >= MAX_REMEMBERED:
            self._verified.clear()
        self._verified[token] = _Verified(principal, float(claims["exp"]))
        return principal

    def _key_of(self, token: str) -> VerifyKey:
        if len(token) > MAX_CREDENTIAL_CHARS:
            raise BadJwt(f"it is longer than {MAX_CREDENTIAL_CHARS} characters")
        try:
            header = jwt.get_unverified_header(token)
        except _BROKEN as error:
            raise BadJwt(f"it is no JWT: {error}") from None
        kid = header.get("kid")
        if not isinstance(kid, str):
            raise BadJwt("it does not name its key (kid)")
        key = self.jwks.find(kid)
        if key is None:
            raise UnknownKey(f"{self.jwks.place} has no key {kid[:80]!r}")
        if header.get("alg") != key.algorithm:
            raise BadJwt(f"its key is for {key.algorithm}, and it says {header.get('alg')!r:.20}")
        return key

    def _claims(self, token: str, key: VerifyKey) -> dict[str, Any]:
        try:
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                audience=self.audience,
                issuer=self._issuer,
                leeway=_LEEWAY_S,
                options={"require": ["exp", "aud", "sub"]},
            )
        except _BROKEN as error:
            raise BadJwt(str(error)) from None
        return claims


def _subject(claims: dict[str, Any]) -> str:
    subject = claims["sub"]
    if not isinstance(subject, str) or not 1 <= len(subject.encode()) <= _MAX_PRINCIPAL_BYTES:
        raise BadJwt(f"its sub is not 1 to {_MAX_PRINCIPAL_BYTES} bytes of text")
    return subject


def _issued_at(claims: dict[str, Any]) -> int:
    """Without one it is older than any generation."""
    issued_at = claims.get("iat", 0)
    return int(issued_at) if isinstance(issued_at, int | float) else 0
