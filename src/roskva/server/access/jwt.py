"""JWTs of an app's clients: who signed, for whom, and for how long.

The key is found by the token's `kid`, and the key decides the algorithm: a token that names another
(`none`, or a shared secret where a public key is meant) is refused before anything is computed.

The public keys come from a file, or from a URL that is asked again. Each is good for one algorithm,
which its kind decides. Keys of other kinds are passed over: a set may serve others as well.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from roskva.config.access import KeySet
from roskva.errors import BadConfig, Unavailable
from roskva.model import Principal
from roskva.server.access.backends import NoAnswer, ask_backend
from roskva.wire.messages import MAX_CREDENTIAL_CHARS

_log = logging.getLogger(__name__)

_MIN_RSA_BITS: Final = 2048
_MAX_BYTES: Final = 1 << 18
_TIMEOUT_S: Final = 5.0
_FRESH_S: Final = 300.0
"""Then it is asked again."""
_RETRY_S: Final = 10.0
"""After a failure; and the least time between two questions because of an unknown key."""
_STALE_S: Final = 86_400.0
"""For so long the last answer holds while there is no other."""

_LEEWAY_S: Final = 5
"""Clocks differ."""
_MAX_PRINCIPAL_BYTES: Final = 255
MAX_REMEMBERED: Final = 4096

_BROKEN: Final = (
    *(jwt.PyJWTError, ValueError, TypeError, LookupError, ArithmeticError, RecursionError),
)
"""What a decoder may raise about what anybody may send."""


# Keys.


class VerifyKey(msgspec.Struct, frozen=True):
    algorithm: str
    key: Any


class _Jwk(msgspec.Struct):
    kty: str
    kid: str | None = None
    crv: str | None = None
    alg: str | None = None
    use: str | None = None


_ALGORITHMS: Final = {
    ("OKP", "Ed25519"): "EdDSA",
    ("EC", "P-256"): "ES256",
    ("RSA", None): "RS256",
}


def parse_jwks(text: bytes) -> dict[str, VerifyKey]:
    """By key id; BadConfig if it is none, or there is nothing in it that we could use."""
    found: dict[str, VerifyKey] = {}
    try:
        for given in msgspec.json.decode(text, type=KeySet).keys:
            jwk = msgspec.convert(given, _Jwk)
            algorithm = _ALGORITHMS.get((jwk.kty, jwk.crv))
            if jwk.kid is None or algorithm is None or jwk.alg not in (None, algorithm):
                continue
            if jwk.use not in (None, "sig"):
                continue
            key = jwt.PyJWK(given, algorithm).key
            if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS:
                continue
            found[jwk.kid] = VerifyKey(algorithm, key)
    except (msgspec.MsgspecError, *_BROKEN):
        raise BadConfig("this is no set of keys (JWKS)") from None
    if not found:
        raise BadConfig(
            "there is no key in it with a kid that is for EdDSA (Ed25519), ES256 (P-256) or RS256 "
            f"({_MIN_RSA_BITS} bits or more)"
        )
    return found


class Jwks:
    """The keys at one place."""

    def __init__(self, place: str, http: httpx.AsyncClient) -> None:
        self.place = place
        self.remote = "://" in place
        self._http = http
        self._keys: dict[str, VerifyKey] = {}
        self._loaded_at = -_STALE_S
        self._asked_at = -_RETRY_S
        self._asking: asyncio.Task[None] | None = None
        self._changed: list[Callable[[], None]] = []
        if not self.remote:
            self.read_again()

    def on_change(self, tell: list[Callable[[], None]]) -> None:
        """Instead of whoever was told before."""
        self._changed = tell

    def read_again(self) -> None:
        """A file; BadConfig if it is not good, and then the keys are those from before."""
        try:
            self._take(parse_jwks(Path(self.place).read_bytes()))
        except (OSError, BadConfig) as error:
            raise BadConfig(f"{self.place}: {error}") from None

    def find(self, kid: str) -> VerifyKey | None:
        """`Unavailable` if the keys were never had, or too long ago."""
        if self.remote and time.monotonic() - self._loaded_at >= _STALE_S:
            raise Unavailable("the keys of this app cannot be fetched: try again later")
        return self._keys.get(kid)

    def may_ask(self) -> bool:
        """Whether asking again now might bring a key that was not there."""
        if not self.remote:
            return False
        return self._asking is not None or time.monotonic() - self._asked_at >= _RETRY_S

    async def ask(self) -> None:
        """Once for everybody who waits. A failure is logged, and changes nothing."""
        if self._asking is None:
            self._asked_at = time.monotonic()
            self._asking = asyncio.get_running_loop().create_task(self._fetch())
        await asyncio.shield(self._asking)

    def due(self) -> bool:
        now = time.monotonic()
        return (
            self.remote and now - self._loaded_at >= _FRESH_S and now - self._asked_at >= _RETRY_S
        )

    async def _fetch(self) -> None:
        try:
            body = await ask_backend(
                self._http, "GET", self.place, timeout_s=_TIMEOUT_S, max_bytes=_MAX_BYTES
            )
            self._take(parse_jwks(body))
        except (NoAnswer, BadConfig) as error:
            _log.warning("the keys at %s could not be fetched: %s", self.place, error)
        finally:
            self._asking = None

    def _take(self, keys: dict[str, VerifyKey]) -> None:
        removed = self._keys.keys() - keys.keys()
        self._keys, self._loaded_at = keys, time.monotonic()
        if removed:
            for tell in self._changed:
                tell()


# Tokens.


class BadJwt(Exception):
    """Why it is refused: for logs at DEBUG and for `roskva token explain`, never for who asks."""


class UnknownKey(BadJwt):
    pass


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
    def __init__(self, app: str, audience: str, issuer: str | None, jwks: Jwks) -> None:
        self.app = app
        self.audience = audience
        self.jwks = jwks
        self._issuer = issuer
        self._verified: dict[str, tuple[Principal, float]] = {}
        """And when they expire. Signatures cost time, and a backend shows the same token with every
        request."""

    def forget(self) -> None:
        """Keys were taken away."""
        self._verified.clear()

    def verify(self, token: str) -> Principal:
        """`BadJwt` says why not; `UnknownKey` that other keys might do."""
        known, expires_at = self._verified.get(token, (None, 0.0))
        if known is not None and time.time() < expires_at + _LEEWAY_S:
            return known
        claims = self._claims(token, self._key_of(token))
        try:
            principal = Principal(_subject(claims), self.app, _issued_at(claims))
            expires_at = float(claims["exp"])
        except _BROKEN as error:
            raise BadJwt(str(error)) from None
        if len(self._verified) >= MAX_REMEMBERED:
            self._verified.clear()
        self._verified[token] = principal, expires_at
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
