"""What clients prove themselves with: JWTs. (Our own tokens are among the messages.)"""

import tempfile
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from tests.fuzzing.target import Target

from roskva.config import AppConfig, Config
from roskva.errors import Unauthorised
from roskva.model import Principal
from roskva.server.access.authority import Authority, authority_of

_APP: Final = "contacts"
_SUBJECT: Final = "alice"


class _Keys:
    def __init__(self) -> None:
        self._private: dict[str, Any] = {
            "EdDSA": ed25519.Ed25519PrivateKey.generate(),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
            "RS256": rsa.generate_private_key(65537, 2048),
        }

    def jwks(self) -> bytes:
        to_jwk: dict[str, Any] = {
            "EdDSA": OKPAlgorithm.to_jwk,
            "ES256": ECAlgorithm.to_jwk,
            "RS256": RSAAlgorithm.to_jwk,
        }
        keys = [
            {**to_jwk[name](key.public_key(), as_dict=True), "kid": name}
            for name, key in self._private.items()
        ]
        return msgspec.json.encode({"keys": keys})

    def tokens(self) -> list[bytes]:
        now = int(time.time())
        claims = {"sub": _SUBJECT, "aud": _APP, "exp": now + 86_400, "iat": now}
        return [
            jwt.encode(claims, key, algorithm=name, headers={"kid": name}).encode()
            for name, key in self._private.items()
        ]

    def forged(self) -> list[bytes]:
        """Never to be taken, however they are changed."""
        claims = {"sub": "mallory", "aud": _APP, "exp": int(time.time()) + 86_400}
        return [
            jwt.encode(claims, "", algorithm="none", headers={"kid": "EdDSA"}).encode(),
            jwt.encode(claims, "s" * 32, algorithm="HS256", headers={"kid": "RS256"}).encode(),
        ]


_KEYS: Final = _Keys()


@cache
def _authority() -> Authority:
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "jwks.json"
        file.write_bytes(_KEYS.jwks())
        app = AppConfig(jwks=str(file), register=["**"])
        return authority_of(Config(apps={_APP: app}))


def _identifies(data: bytes) -> bool:
    credential = data.decode("latin-1")
    found = [_identified(app, credential) for app in (_APP, None)]
    assert all(who is None or (who.name, who.app) == (_SUBJECT, _APP) for who in found)
    return any(found)


def _identified(app: str | None, credential: str) -> Principal | None:
    try:
        who = _authority().identify(app, credential)
    except Unauthorised:
        return None
    assert isinstance(who, Principal), "the keys are in a file: there is nothing to wait for"
    return who


TARGETS: Final = [Target("jwts", [*_KEYS.tokens(), *_KEYS.forged()], _identifies)]
