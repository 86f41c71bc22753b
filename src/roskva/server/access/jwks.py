"""The public keys that JWTs are signed with: from a file, or from a URL that is asked again.

Each key is good for one algorithm, which its kind decides and never the token. Keys of other kinds
are passed over: a set may serve others as well.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from roskva.errors import BadConfig, Unavailable

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


class VerifyKey(msgspec.Struct, frozen=True):
    algorithm: str
    key: Any


class _Jwk(msgspec.Struct):
    kty: str
    kid: str | None = None
    crv: str | None = None
    alg: str | None = None
    use: str | None = None


class _Jwks(msgspec.Struct):
    keys: list[msgspec.Raw]


_ALGORITHMS: Final = {
    ("OKP", "Ed25519"): "EdDSA",
    ("EC", "P-256"): "ES256",
    ("RSA", None): "RS256",
}


def parse_jwks(text: bytes) -> dict[str, VerifyKey]:
    """By key id; BadConfig if it is none, or there is nothing in it that we could use."""
    found: dict[str, VerifyKey] = {}
    try:
        for raw in msgspec.json.decode(text, type=_Jwks).keys:
            jwk = msgspec.json.decode(raw, type=_Jwk)
            algorithm = _ALGORITHMS.get((jwk.kty, jwk.crv))
            if jwk.kid is None or algorithm is None or jwk.alg not in (None, algorithm):
                continue
            if jwk.use not in (None, "sig"):
                continue
            key = PyJWK(msgspec.json.decode(raw), algorithm).key
            if isinstance(key, RSAPublicKey) and key.key_size < _MIN_RSA_BITS:
                continue
            found[jwk.kid] = VerifyKey(algorithm, key)
    except (msgspec.MsgspecError, UnicodeDecodeError, PyJWTError, ValueError):
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
        asking = self._asking
        await asyncio.shield(asking)

    def due(self) -> bool:
        now = time.monotonic()
        return (
            self.remote and now - self._loaded_at >= _FRESH_S and now - self._asked_at >= _RETRY_S
        )

    async def _fetch(self) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                self._take(parse_jwks(await self._body()))
        except (httpx.HTTPError, TimeoutError, BadConfig) as error:
            why = str(error) or type(error).__name__
            _log.warning("the keys at %s could not be fetched: %s", self.place, why)
        finally:
            self._asking = None

    async def _body(self) -> bytes:
        body = b""
        async with self._http.stream("GET", self.place) as answer:
            if answer.status_code != 200:
                raise BadConfig(f"status {answer.status_code}")
            async for part in answer.aiter_bytes():
                body += part
                if len(body) > _MAX_BYTES:
                    raise BadConfig(f"more than {_MAX_BYTES} bytes")
        return body

    def _take(self, keys: dict[str, VerifyKey]) -> None:
        removed = self._keys.keys() - keys.keys()
        self._keys, self._loaded_at = keys, time.monotonic()
        if removed:
            for tell in self._changed:
                tell()
