"""What the settings of apps say about who may do what, checked as far as it can be without a node.

Secrets are not written into a file of settings: a publish key is there as its SHA-256, or as the
name of a variable or a file that holds it.
"""

import hashlib
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from roskva.config.apps import AppConfig
from roskva.config.exposure import is_loopback
from roskva.config.kinds import Conflict
from roskva.config.secrets import read_secret
from roskva.config.sections import Config
from roskva.errors import BadConfig

_HASHED: Final = re.compile(r"sha256:([0-9a-f]{64})\Z")
_NAME_PATTERN: Final = re.compile(r"(?:(?!\*\*)[^{}+#\x00-\x1f]|\{principal\}|\*\*\Z)+\Z")
_ONLY_IN_APPS: Final = ("publish_keys", "audience", "revoked")


class _Jwks(msgspec.Struct):
    keys: list[dict[str, object]]


def key_digest(reference: str) -> bytes:
    """The SHA-256 of the publish key that a setting stands for; BadConfig if there is none."""
    hashed = _HASHED.match(reference)
    if hashed:
        return bytes.fromhex(hashed[1])
    if not reference.startswith(("env:", "file:")):
        raise BadConfig(
            "a publish key is written sha256:HEX (64 digits, its hash), env:NAME or file:PATH"
        )
    secret = read_secret("a publish key", reference)
    if not secret.isascii():
        raise BadConfig("a publish key is sent in a header: let it be of ASCII characters")
    return hashlib.sha256(secret.encode()).digest()


def check_access(config: Config) -> None:
    """`Conflict` with what is wrong first."""
    for key in _ONLY_IN_APPS:
        if getattr(config.defaults, key):
            raise Conflict(f"{key} is an app's own: move it to [apps.NAME]", f"defaults.{key}")
    _check_app("defaults", config.defaults)
    for name, app in config.apps.items():
        _check_app(f"apps.{name}", app)
        _check_hook(f"apps.{name}", app)
    _check_keys(config)
    _check_audiences(config)


def _check_app(section: str, app: AppConfig) -> None:
    if app.jwks is not None:
        _check_place(section, "jwks", app.jwks)
        if "://" not in app.jwks:
            _check_jwks_file(section, Path(app.jwks))
    if app.hook is not None:
        if "://" not in app.hook:
            raise _wrong(section, "hook", "hook is a URL: https://backend.example/may-register")
        _check_place(section, "hook", app.hook)
    for key in ("register", "publish"):
        for pattern in getattr(app, key):
            if not _NAME_PATTERN.match(pattern):
                raise _wrong(
                    section,
                    key,
                    f"{pattern!r} is no pattern of names: * stands for anything up to the next "
                    "'/', ** at the end for anything at all, {principal} for who asks",
                )


def _check_hook(section: str, app: AppConfig) -> None:
    asks = app.hook is not None or app.authorise_at_notify
    if asks and not app.register:
        raise _wrong(
            section,
            "authorise_at_notify" if app.hook is None else "hook",
            'nobody may register: say for which names it is asked, as register = ["**"]',
        )


def _check_place(section: str, key: str, place: str) -> None:
    """What decides who is let in is not fetched where anybody could change it on the way."""
    if "://" not in place:
        return
    url = urlsplit(place)
    if url.scheme == "https" and url.hostname:
        return
    if url.scheme == "http" and is_loopback(url.hostname or ""):
        return
    raise _wrong(section, key, f"{key} is asked over https, or over http on this machine alone")


def _check_jwks_file(section: str, path: Path) -> None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_Jwks)
    except OSError as error:
        raise _wrong(section, "jwks", f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError):
        found = _Jwks([])
    if not found.keys:
        raise _wrong(
            section, "jwks", f"{path} is no set of keys (JWKS): make one with `roskva token keys`"
        )
    if any("d" in key or key.get("kty") == "oct" for key in found.keys):
        raise _wrong(section, "jwks", f"{path} holds a secret key: only public ones belong there")


def _check_keys(config: Config) -> None:
    owners: dict[bytes, str] = {}
    for name, app in config.apps.items():
        for reference in app.publish_keys:
            try:
                digest = key_digest(reference)
            except BadConfig as error:
                raise _wrong(f"apps.{name}", "publish_keys", str(error)) from None
            if digest in owners:
                raise _wrong(
                    f"apps.{name}",
                    "publish_keys",
                    f"a publish key of {owners[digest]} is given again: each key has its own app",
                )
            owners[digest] = name


def _check_audiences(config: Config) -> None:
    owners: dict[str, str] = {}
    for name, app in config.apps.items():
        if app.jwks is None:
            continue
        audience = app.audience or name
        if audience in owners:
            raise Conflict(
                f"{owners[audience]} and {name} have the same audience, and nobody could tell "
                "their tokens apart: give one of them another",
                f"apps.{name}.audience",
                f"apps.{owners[audience]}.audience",
            )
        owners[audience] = name


def _wrong(section: str, key: str, sentence: str) -> Conflict:
    return Conflict(sentence, f"{section}.{key}", f"defaults.{key}")
