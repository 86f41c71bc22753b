"""Default deny: what an app's settings do not grant, nobody may do."""

import hashlib
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jwt
import pytest
from tests.loops import in_loop
from tests.server.access.settings import access, app, identified, issuer_at, judged
from tests.serving.keyed import HOUR, Issuer, tampered

from roskva.cli.token import Algorithm, generate, key_id, mint_jwt
from roskva.config import Config
from roskva.errors import Unauthorised
from roskva.model import NOBODY, Principal
from roskva.server.access.authority import ALLOWED, Verdict, authority_of
from roskva.server.access.keyed import KeyedAuthority

KEY = "a publish key of some length"
HASHED = f"sha256:{hashlib.sha256(KEY.encode()).hexdigest()}"


async def refusal(found: KeyedAuthority, credential: str | None, of: str | None = None) -> str:
    with pytest.raises(Unauthorised) as refused:
        await identified(found.identify(of, credential))
    return str(refused.value)


def test_without_keys_everybody_may_do_everything() -> None:
    authority = authority_of(Config(apps={"contacts": app()}))
    assert authority.identify("contacts", None) is NOBODY
    assert authority.may_publish(NOBODY, "contacts/x")
    assert authority.may_register(NOBODY, ["contacts/x"]) is ALLOWED


@in_loop
async def test_one_key_anywhere_closes_everything_else(tmp_path: Path) -> None:
    found = access(contacts=app(publish_keys=[HASHED]), other=app())
    await refusal(found, None)
    for key in ("contacts/x", "other/x", "unheard-of/x"):
        assert not found.may_publish(NOBODY, key)
        assert found.may_register(NOBODY, [key]) == Verdict(frozenset([key]))


@in_loop
async def test_a_publish_key_publishes_in_its_app_and_does_nothing_else() -> None:
    found = access(contacts=app(publish_keys=[HASHED]), other=app())
    who = await identified(found.identify(None, KEY))
    assert who.app == "contacts" and who.key  # noqa: PT018
    assert await identified(found.identify("contacts", KEY)) == who
    assert found.may_publish(who, "contacts/x")
    assert not found.may_publish(who, "other/x")
    assert found.may_register(who, ["contacts/x"]) == Verdict(frozenset(["contacts/x"]))
    await refusal(found, KEY, "other")
    await refusal(found, KEY + ".")


@pytest.mark.parametrize("algorithm", list(Algorithm))
@in_loop
async def test_every_algorithm_that_is_named_works(tmp_path: Path, algorithm: Algorithm) -> None:
    issuer = Issuer(tmp_path / "jwks.json", algorithm)
    found = access(contacts=app(issuer))
    who = await identified(found.identify(None, issuer.jwt("alice", "contacts")))
    assert (who.name, who.app) == ("alice", "contacts")
    assert abs(who.issued_at - time.time()) < 60


@in_loop
async def test_whatever_is_wrong_is_said_in_the_same_words(tmp_path: Path) -> None:
    issuer, stranger = issuer_at(tmp_path), issuer_at(tmp_path, "stranger")
    now = int(time.time())
    found = access(contacts=app(issuer, issuer="https://login"), other=app(stranger))
    good = issuer.jwt("alice", "contacts", iss="https://login")
    await identified(found.identify(None, good))
    foreign = jwt.encode(
        {"sub": "a", "aud": "contacts", "exp": now + HOUR, "iss": "https://login"},
        generate(Algorithm.EDDSA),
        "EdDSA",
        headers={"kid": key_id(issuer.key)},
    )
    said: dict[str, Any] = {"iss": "https://login"}
    bad = {
        "nothing": None,
        "no JWT": "a.b.c",
        "another key under its name": foreign,
        "another issuer": issuer.jwt("alice", "contacts"),
        "no sub": issuer.jwt("", "contacts", **said),
        "no exp": issuer.jwt("alice", "contacts", exp=None, **said),
        "expired": issuer.jwt("alice", "contacts", exp=now - 60, **said),
        "not yet": issuer.jwt("alice", "contacts", nbf=now + 60, **said),
        "issued in the future": issuer.jwt("alice", "contacts", iat=now + 60, **said),
        "audience": issuer.jwt("alice", "elsewhere", **said),
        "no audience": issuer.jwt("alice", "contacts", aud=None, **said),
        "endless": issuer.jwt("alice", "contacts", exp=float("inf"), **said),
        "tampered": tampered(good, sub="bob"),
        "none": issuer.unsigned("alice", "contacts"),
        "confused": issuer.confused("alice", "contacts"),
        "unknown kid": stranger.jwt("alice", "contacts", **said),
        "without kid": jwt.encode(
            {"sub": "a", "aud": "contacts", "exp": now + HOUR, **said},
            issuer.key,
            "EdDSA",
        ),
        "too long": "x" * 5000,
        "deep": "W" * 2000 + ".W." + "W" * 2000,
        "not text": "\ud800.\x00.\udfff",
    }
    words = {name: await refusal(found, shown) for name, shown in bad.items()}
    assert len(set(words.values())) == 1, words
    for name, shown in bad.items():
        assert await refusal(found, shown, "contacts") == words[name]


@in_loop
async def test_a_key_of_one_app_is_no_key_of_another(tmp_path: Path) -> None:
    ours, theirs = issuer_at(tmp_path, "ours"), issuer_at(tmp_path, "theirs")
    found = access(contacts=app(ours), other=app(theirs))
    await refusal(found, theirs.jwt("alice", "contacts"))
    await refusal(found, theirs.jwt("alice", "other"), "contacts")
    who = await identified(found.identify(None, theirs.jwt("alice", "other")))
    assert found.may_register(who, ["contacts/x", "other/x"]) == Verdict(frozenset(["contacts/x"]))
    await refusal(found, ours.jwt("alice", "contacts", aud=["contacts", "other"]))


def test_patterns_say_who_may_register_and_publish(tmp_path: Path) -> None:
    issuer = issuer_at(tmp_path)
    rules = app(issuer, register=["public/*", "{principal}/**"], publish=["{principal}/state"])
    authority = access(contacts=rules)
    alice = Principal("alice", "contacts", int(time.time()))
    assert authority.may_register(alice, ["contacts/public/x", "contacts/alice/x"]) is ALLOWED
    assert authority.may_register(alice, ["contacts/bob/x"]) == Verdict(
        frozenset(["contacts/bob/x"])
    )
    assert authority.may_publish(alice, "contacts/alice/state")
    assert not authority.may_publish(alice, "contacts/bob/state")
    assert not authority.may_publish(alice, "contacts/public/x")


@in_loop
async def test_what_was_issued_before_a_generation_is_void(tmp_path: Path) -> None:
    issuer = issuer_at(tmp_path)
    now = int(time.time())
    old = {n: issuer.jwt(n, "contacts", iat=now - 100) for n in ("alice", "bob")}
    dateless = issuer.jwt("alice", "contacts", iat=None)
    moment = datetime.now(UTC) - timedelta(seconds=50)

    revoked = access(contacts=app(issuer, revoked={"alice": moment}))
    await refusal(revoked, old["alice"])
    await refusal(revoked, dateless)
    await identified(revoked.identify(None, old["bob"]))
    await identified(revoked.identify(None, issuer.jwt("alice", "contacts")))

    raised = access(contacts=app(issuer, generation=moment))
    for token in old.values():
        await refusal(raised, token)
    await identified(raised.identify(None, issuer.jwt("bob", "contacts")))
    before = Principal("bob", "contacts", now - 100)
    assert not raised.may_publish(before, "contacts/x")
    assert await judged(raised.may_register(before, ["contacts/x"])) != ALLOWED


@in_loop
async def test_a_key_that_is_taken_out_of_its_file_counts_no_more(tmp_path: Path) -> None:
    issuer = issuer_at(tmp_path)
    config = Config(apps={"contacts": app(issuer)})
    found = KeyedAuthority(config)
    token = issuer.jwt("alice", "contacts")
    await identified(found.identify(None, token))
    issuer.jwks.unlink()
    newer = Issuer(issuer.jwks)
    found.reload(config)
    await refusal(found, token)
    await identified(found.identify(None, newer.jwt("alice", "contacts")))


def test_minted_tokens_name_their_key(tmp_path: Path) -> None:
    key = generate(Algorithm.ES256)
    assert jwt.get_unverified_header(mint_jwt(key, {"sub": "a"}))["kid"] == key_id(key)
