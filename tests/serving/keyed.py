"""Nodes with keys, and every kind of credential that one might be shown."""

import base64
import hashlib
import hmac
import json
import secrets
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import httpx
from cryptography.hazmat.primitives import serialization
from tests.serving.nodes import START_S, Node, await_that

from roskva.cli.token import Algorithm, PrivateKey, add_to_jwks, generate, key_id, mint_jwt

ADMIN_KEY: Final = "the-admin-key-of-the-tests"
HOUR: Final = 3600


class Issuer:
    """An app's login: it signs JWTs, and says with which keys."""

    def __init__(self, jwks: Path, algorithm: Algorithm = Algorithm.EDDSA) -> None:
        self.jwks = jwks
        self.key: PrivateKey = generate(algorithm)
        add_to_jwks(jwks, self.key)

    def jwt(self, principal: str, audience: str, **claims: Any) -> str:
        now = int(time.time())
        said = {"sub": principal, "aud": audience, "iat": now, "exp": now + HOUR, **claims}
        return mint_jwt(
            self.key, {name: value for name, value in said.items() if value is not None}
        )

    def unsigned(self, principal: str, audience: str) -> str:
        head = {"alg": "none", "typ": "JWT", "kid": key_id(self.key)}
        return f"{_part(head)}.{_part(_claims(principal, audience))}."

    def confused(self, principal: str, audience: str) -> str:
        """Signed with the public key as if it were a shared secret."""
        public = self.key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        head = {"alg": "HS256", "typ": "JWT", "kid": key_id(self.key)}
        signed = f"{_part(head)}.{_part(_claims(principal, audience))}"
        signature = hmac.digest(public, signed.encode(), "sha256")
        return f"{signed}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


def tampered(token: str, **claims: Any) -> str:
    """Other claims under the old signature."""
    head, body, signature = token.split(".")
    said = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    return f"{head}.{_part({**said, **claims})}.{signature}"


def _claims(principal: str, audience: str) -> dict[str, Any]:
    now = int(time.time())
    return {"sub": principal, "aud": audience, "iat": now, "exp": now + HOUR}


def _part(value: Mapping[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


class KeyedNode(Node):
    """`settings` is what its file says beside the admin key; it may be changed and reloaded."""

    def __init__(self, data: Path, settings: str, *flags: str, beside: bool = False) -> None:
        """`beside`: with its pipeline and its prober."""
        self.file = data.with_name(data.name + ".toml")
        self.write(settings)
        super().__init__(data, "--config", str(self.file), *flags, pipeline=beside, probe=beside)

    def write(self, settings: str) -> None:
        secret = self.file.with_suffix(".admin")
        secret.write_text(ADMIN_KEY)
        self.file.write_text(f'[admin]\nkey = "file:{secret}"\n\n{settings}')

    def reload_with(self, settings: str, sign: str = "were read again") -> None:
        """Until its log says so once more, in every process."""
        self.write(settings)
        before = self.said().count(sign)
        processes = len(self.status()["processes"])
        assert self._parent is not None
        self._parent.send_signal(signal.SIGHUP)
        await_that(lambda: self.said().count(sign) >= before + processes, START_S, self.said)

    def status(self) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {ADMIN_KEY}"}
        answer = self._http.get("/v1/status", headers=headers)
        status: dict[str, Any] = answer.raise_for_status().json()
        return status

    def ask(
        self, method: str, path: str, credential: str | None = None, body: Any = None
    ) -> httpx.Response:
        headers = {} if credential is None else {"authorization": f"Bearer {credential}"}
        return self._http.request(method, path, headers=headers, json=body)

    def publish_as(self, credential: str | None, key: str, version: int) -> httpx.Response:
        app, _, name = key.partition("/")
        update = {"app": app, "name": name, "version": str(version)}
        return self.ask("POST", "/v1/publish", credential, update)

    def feed(self) -> list[int]:
        """Of each shard, how much was ever published."""
        return [shard["feed_end"] for shard in self.status()["shards"]]


def publish_key() -> tuple[str, str]:
    """A secret, and how it is written into a file of settings."""
    secret = secrets.token_hex(32)
    return secret, f"sha256:{hashlib.sha256(secret.encode()).hexdigest()}"
