"""Public keys: which of them are used, and how they are fetched and fetched again."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from tests.loops import in_loop
from tests.server.access.settings import access, app, identified
from tests.serving.backend import Backend, running_backend
from tests.serving.keyed import Issuer

from roskva.cli.token import Algorithm, generate, key_id, public_jwk
from roskva.errors import BadConfig, Unauthorised, Unavailable
from roskva.server.access import jwt
from roskva.server.access.jwt import Jwks, parse_jwks

GOOD = public_jwk(generate(Algorithm.EDDSA))


def as_set(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


def test_the_kind_of_a_key_decides_its_algorithm() -> None:
    keys = {a.value: public_jwk(generate(a)) for a in Algorithm}
    for jwk in keys.values():
        del jwk["alg"]
    found = parse_jwks(as_set(*keys.values()))
    assert {found[jwk["kid"]].algorithm for jwk in keys.values()} == set(keys)


def test_keys_of_other_kinds_are_passed_over() -> None:
    small = RSAAlgorithm.to_jwk(rsa.generate_private_key(65537, 1024).public_key(), as_dict=True)
    curve = ec.generate_private_key(ec.SECP384R1()).public_key()
    others = [
        {**small, "kid": "small"},
        {**ECAlgorithm.to_jwk(curve, as_dict=True), "kid": "curve"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared"},
        {**GOOD, "kid": "hmac", "alg": "HS256"},
        {**GOOD, "kid": "for encryption", "use": "enc"},
        {name: value for name, value in GOOD.items() if name != "kid"},
    ]
    assert list(parse_jwks(as_set(GOOD, *others))) == [GOOD["kid"]]
    with pytest.raises(BadConfig, match="no key in it"):
        parse_jwks(as_set(*others))


@pytest.mark.parametrize(
    "text",
    [b"", b"[]", b"{}", b'{"keys": [1]}', b'{"keys": [{"kty": "OKP"}]}', b"\xff", b"[" * 9000],
)
def test_anything_else_is_no_set_of_keys(text: bytes) -> None:
    with pytest.raises(BadConfig):
        parse_jwks(text)


def test_a_file_that_went_bad_changes_nothing(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    keys = Jwks(str(issuer.jwks), httpx.AsyncClient())
    issuer.jwks.write_text("{")
    with pytest.raises(BadConfig, match=r"jwks\.json"):
        keys.read_again()
    assert keys.find(key_id(issuer.key)) is not None


@in_loop
async def test_keys_are_fetched_when_they_are_needed_and_then_kept(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    with running_backend() as backend:
        backend.jwks = issuer.jwks.read_bytes()
        found = access(contacts=app(jwks=backend.url))
        for _ in range(3):
            asked = found.identify("contacts", issuer.jwt("alice", "contacts"))
            assert (await identified(asked)).name == "alice"
        assert backend.fetched == 1
        await found.close()


@in_loop
async def test_an_unknown_key_is_asked_for_once_in_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = Issuer(tmp_path / "old.json"), Issuer(tmp_path / "new.json")
    with running_backend() as backend:
        backend.jwks = old.jwks.read_bytes()
        found = access(contacts=app(jwks=backend.url))
        token = old.jwt("alice", "contacts")
        await identified(found.identify("contacts", token))
        for _ in range(5):
            with pytest.raises(Unauthorised):
                await identified(found.identify(None, new.jwt("alice", "contacts")))
        assert backend.fetched == 1, "it was asked a moment ago"

        monkeypatch.setattr(jwt, "_RETRY_S", 0.0)
        backend.jwks = new.jwks.read_bytes()
        await identified(found.identify(None, new.jwt("alice", "contacts")))
        assert backend.fetched == 2
        with pytest.raises(Unauthorised):
            await identified(found.identify("contacts", token))
        await found.close()


@pytest.mark.parametrize("wrong", ["down", "status", "text", "long"])
@in_loop
async def test_keys_that_cannot_be_fetched_are_no_answer(tmp_path: Path, wrong: str) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    with running_backend() as backend:
        backend.jwks = issuer.jwks.read_bytes()
        break_(backend, wrong)
        url = "http://127.0.0.1:1" if wrong == "down" else backend.url
        found = access(contacts=app(jwks=url))
        with pytest.raises(Unavailable):
            await identified(found.identify(None, issuer.jwt("alice", "contacts")))
        await found.close()


def break_(backend: Backend, how: str) -> None:
    match how:
        case "status":
            backend.status = 500
        case "text":
            backend.jwks = b"<html>"
        case "long":
            backend.jwks = backend.jwks + b" " * (1 << 20)


@in_loop
async def test_the_last_keys_hold_while_there_are_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    issuer = Issuer(tmp_path / "jwks.json")
    with running_backend() as backend:
        backend.jwks = issuer.jwks.read_bytes()
        found = access(contacts=app(jwks=backend.url))
        await identified(found.identify(None, issuer.jwt("alice", "contacts")))
        backend.status = 500
        monkeypatch.setattr(jwt, "_RETRY_S", 0.0)
        await identified(found.identify(None, issuer.jwt("bob", "contacts")))
        monkeypatch.setattr(jwt, "_STALE_S", 0.0)
        with pytest.raises(Unavailable):
            await identified(found.identify(None, issuer.jwt("carol", "contacts")))
        await found.close()
