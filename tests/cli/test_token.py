"""`roskva token`: what it makes is what a node reads."""

import json
import os
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from roskva.cli.main import application
from roskva.links.own_keys import TOKEN_KEY
from roskva.server.access.keys import token_keys


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "keys.toml").write_text(
        '[apps.contacts]\njwks = "jwks.json"\nregister = ["{principal}/*"]\n'
    )
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(application(["token"]), ["token", *words])


@pytest.mark.parametrize("algorithm", ["EdDSA", "ES256", "RS256"])
def test_keys_are_made_and_what_they_sign_is_accepted(place: Path, algorithm: str) -> None:
    assert run("keys", "--algorithm", algorithm).exit_code == 0
    assert stat.S_IMODE(os.stat("jwt.pem").st_mode) == 0o600
    [key] = json.loads((place / "jwks.json").read_text())["keys"]
    assert key["alg"] == algorithm
    assert "d" not in key
    minted = run("mint", "--app", "contacts", "--principal", "alice", "--ttl", "5m")
    token = minted.stdout.strip()
    explained = run("explain", token, "--config", "keys.toml")
    assert explained.exit_code == 0
    assert "accepted as alice of contacts" in explained.stdout
    assert "{principal}/*" in explained.stdout


def test_another_key_is_added_and_none_is_replaced(place: Path) -> None:
    run("keys")
    again = run("keys")
    assert again.exit_code == 2
    assert "jwt.pem exists" in again.output
    assert run("keys", "--private-key", "second.pem").exit_code == 0
    assert len(json.loads((place / "jwks.json").read_text())["keys"]) == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--audience", "elsewhere"), "its aud is not that of one app (of contacts)"),
        (("--private-key", "other.pem"), "jwks.json has no key"),
    ],
)
def test_what_is_wrong_is_explained(place: Path, words: tuple[str, ...], why: str) -> None:
    run("keys")
    run("keys", "--private-key", "other.pem", "--jwks", "other.json")
    token = run("mint", "--app", "contacts", "--principal", "alice", *words).stdout.strip()
    explained = run("explain", token, "--config", "keys.toml")
    assert explained.exit_code == 1
    assert why in explained.stdout


def test_a_publish_key_is_explained_too(place: Path) -> None:
    (place / "publish.key").write_text("a secret of some length\n")
    (place / "keys.toml").write_text('[apps.contacts]\npublish_keys = ["file:publish.key"]\n')
    explained = run("explain", "file:publish.key", "--config", "keys.toml")
    assert "a publish key of contacts" in explained.stdout
    assert run("explain", "another secret", "--config", "keys.toml").exit_code == 1


@pytest.mark.parametrize("ttl", ["0s", "1", "-1h", "1y", ""])
def test_a_lifetime_has_a_unit(place: Path, ttl: str) -> None:
    run("keys")
    assert run("mint", "--app", "a", "--principal", "p", "--ttl", ttl).exit_code == 2


def test_rotating_keeps_the_last_key(place: Path) -> None:
    assert run("rotate", "--data", "nowhere").exit_code == 2
    (place / "data").mkdir()
    first = token_keys(place / "data")
    seen = [first]
    for _ in range(5):
        assert run("rotate", "--data", "data").exit_code == 0
        now = token_keys(place / "data")
        before = seen[-1]
        assert now.current != before.current
        assert set(now.keys) == {now.current, before.current}
        assert now.keys[before.current] == before.keys[before.current]
        seen.append(now)
    assert stat.S_IMODE((place / "data" / TOKEN_KEY).stat().st_mode) == 0o600
