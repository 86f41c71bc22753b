"""Settings of who may do what: what is wrong with them is said with file and line."""

from pathlib import Path

import pytest

from roskva.cli.token import Algorithm, add_to_jwks, generate
from roskva.config import Config, has_keys, load
from roskva.errors import BadConfig

HASH = "sha256:" + "0" * 64
OTHER = "sha256:" + "1" * 64


def complaint(directory: Path, text: str) -> str:
    file = directory / "roskva.toml"
    file.write_text(text)
    with pytest.raises(BadConfig) as refused:
        load(file, None, {})
    return str(refused.value).replace(f"{directory}/", "")


def loaded(directory: Path, text: str) -> Config:
    file = directory / "roskva.toml"
    file.write_text(text)
    return load(file, None, {})


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    add_to_jwks(tmp_path / "jwks.json", generate(Algorithm.EDDSA))
    (tmp_path / "empty.json").write_text('{"keys": []}')
    (tmp_path / "secret.json").write_text('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}')
    (tmp_path / "short.key").write_text("short")
    return tmp_path


def test_a_key_anywhere_means_that_there_are_keys(place: Path) -> None:
    assert not has_keys(loaded(place, '[apps.a]\nregister = ["**"]'))
    assert has_keys(loaded(place, f'[apps.a]\npublish_keys = ["{HASH}"]'))
    assert has_keys(loaded(place, '[apps.a]\njwks = "jwks.json"'))
    assert has_keys(loaded(place, '[defaults]\njwks = "jwks.json"'))


def test_a_full_table_is_fine(place: Path) -> None:
    config = loaded(
        place,
        f"""
[apps.contacts]
publish_keys = ["{HASH}"]
jwks = "jwks.json"
audience = "https://contacts.example"
register = ["public/*", "{{principal}}/**", "**"]
publish = ["{{principal}}/state"]
hook = "https://backend.example/may"
authorise_at_notify = true
generation = 2026-01-31T12:00:00Z
revoked = {{ alice = 2026-01-31T12:00:00+01:00 }}
""",
    )
    assert config.app("contacts").audience == "https://contacts.example"


@pytest.mark.parametrize(
    ("lines", "place_and_sentence"),
    [
        (
            'publish_keys = ["secret-as-it-is"]',
            "roskva.toml:2: a publish key is written sha256:HEX",
        ),
        ('publish_keys = ["sha256:abc"]', "roskva.toml:2: a publish key is written sha256:HEX"),
        (
            'publish_keys = ["env:NOT_THERE"]',
            "roskva.toml:2: a publish key: the variable NOT_THERE",
        ),
        (
            'publish_keys = ["file:none.key"]',
            "roskva.toml:2: a publish key: none.key cannot be read",
        ),
        ('publish_keys = ["file:short.key"]', "roskva.toml:2: a publish key: short.key has fewer"),
        ('publish_keys = "my-secret"', "roskva.toml:2: publish_keys must be a list of text"),
        ('jwks = "none.json"', "roskva.toml:2: none.json cannot be read"),
        ('jwks = "empty.json"', "roskva.toml:2: empty.json is no set of keys"),
        ('jwks = "secret.json"', "roskva.toml:2: secret.json holds a secret key"),
        ('jwks = "http://login.example/jwks"', "roskva.toml:2: jwks is asked over https"),
        (
            'jwks = "https://a:my-secret@login.example/"',
            "roskva.toml:2: jwks has a user or password",
        ),
        ('hook = "http://backend.example"\nregister = ["**"]', "roskva.toml:2: hook is asked over"),
        ('hook = "backend"\nregister = ["**"]', "roskva.toml:2: hook is a URL"),
        ('hook = "https://backend.example"', "roskva.toml:2: nobody may register"),
        ("authorise_at_notify = true", "roskva.toml:2: nobody may register"),
        ('register = ["**/x"]', "roskva.toml:2: '**/x' is no pattern"),
        ('register = ["a+"]', "roskva.toml:2: 'a+' is no pattern"),
        ('register = [""]', "roskva.toml:2: '' is no pattern"),
        (
            'channels = ["mqtt", "smtp"]',
            'roskva.toml:2: channels must be a list of "events", "http"',
        ),
        ("authorise_at_publish = true", "roskva.toml:2: there is nobody to ask: set hook"),
        (
            'authorise_at_publish = true\nhook = "https://backend.example"\nregister = ["**"]',
            "roskva.toml:2: nobody with a JWT may publish",
        ),
        ("channels = []", "roskva.toml:2: channels is empty"),
        ('publish = ["{user}/x"]', "roskva.toml:2: '{user}/x' is no pattern"),
        ("generation = 2026-01-31T12:00:00", "roskva.toml:2: generation must be a date and time"),
        ("generation = 3", "roskva.toml:2: generation must be a date and time"),
        ('revoked = { alice = "yes" }', "roskva.toml:2: revoked must be a table"),
    ],
)
def test_what_is_wrong_is_said_with_its_line(
    place: Path, lines: str, place_and_sentence: str
) -> None:
    said = complaint(place, f"[apps.contacts]\n{lines}\n")
    assert said.startswith(place_and_sentence), said
    assert "my-secret" not in said
    assert "secret-as-it-is" not in said


def test_an_audience_and_a_key_belong_to_one_app(place: Path) -> None:
    tables = '[apps.a]\njwks = "jwks.json"\n[apps.b]\njwks = "jwks.json"\naudience = "a"\n'
    assert complaint(place, tables).startswith("roskva.toml:5: a and b have the same audience")
    tables = f'[apps.a]\npublish_keys = ["{HASH}", "{OTHER}"]\n[apps.b]\npublish_keys = ["{OTHER}"]'
    assert complaint(place, tables).startswith("roskva.toml:4: a publish key of a is given again")


@pytest.mark.parametrize("line", [f'publish_keys = ["{HASH}"]', 'audience = "x"'])
def test_what_is_an_apps_own_has_no_default(place: Path, line: str) -> None:
    assert "is an app's own" in complaint(place, f"[defaults]\n{line}\n")


def test_defaults_are_for_every_app(place: Path) -> None:
    config = loaded(
        place, '[defaults]\njwks = "jwks.json"\nregister = ["**"]\n[apps.a]\n[apps.b]\n'
    )
    assert config.app("a").jwks == config.app("b").jwks == "jwks.json"
