"""Who may do what, as far as the settings say it and it can be checked without a node.

Secrets are not written into a file of settings: a publish key is there as its SHA-256, or as the
name of a variable or a file that holds it.

Whether a node may be started where its settings put it is `exposed`. On loopback nobody but this
machine reaches it, so a first try needs nothing. Everywhere else what is sent has to be unreadable
on the way (TLS here, or at a proxy in front), and apps need keys.
"""

import hashlib
import ipaddress
import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from roskva.config.sections import AppConfig, Config, Conflict
from roskva.errors import BadConfig

_MIN_CHARACTERS: Final = 16
_HASHED: Final = re.compile(r"sha256:([0-9a-f]{64})\Z")
_NAME_PATTERN: Final = re.compile(r"(?:(?!\*\*)[^{}+#\x00-\x1f]|\{principal\}|\*\*\Z)+\Z")
_ONLY_IN_APPS: Final = ("publish_keys", "audience", "revoked")


# Secrets.


def read_secret(setting: str, text: str, at_least: int = _MIN_CHARACTERS) -> str:
    """What `env:NAME` or `file:PATH` leads to, with so many characters. What is wrong is said of
    `setting`, and never with what may be a secret in it."""
    kind, _, place = text.partition(":")
    if kind == "env":
        found = os.environ.get(place, "")
        where = f"the variable {place}"
    elif kind == "file":
        try:
            found = Path(place).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise BadConfig(f"{setting}: {place} cannot be read: {reason}") from None
        where = place
    else:
        raise BadConfig(f"{setting}: write env:NAME or file:PATH, where the secret is")
    if not found:
        raise BadConfig(f"{setting}: {where} is not set, or empty")
    if len(found) < at_least:
        raise BadConfig(
            f"{setting}: {where} has fewer than {at_least} characters: take a longer "
            "secret, such as `openssl rand -hex 32` makes"
        )
    return found


# Exposure.


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def has_keys(config: Config) -> bool:
    """Whether somebody has to show who they are; then nothing is allowed that is not granted."""
    apps = (config.defaults, *config.apps.values())
    return any(app.jwks is not None or app.publish_keys for app in apps)


def open_to_this_machine(config: Config) -> bool:
    """A first try: nobody shows who they are, and nobody else can come."""
    node = config.node
    return is_loopback(node.host) and not node.behind_proxy and not has_keys(config)


def takes_any_name(config: Config) -> bool:
    """Whether it cannot matter by which name clients call the node. Nothing says how it is called,
    and nobody is told anything without a credential, which no browser shows by itself."""
    node = config.node
    named = bool(node.allowed_hosts) or config.tls.enabled
    return has_keys(config) and not named and not is_loopback(node.host)


def exposed(config: Config) -> list[str]:
    """What would be wrong with starting it, each with what to do; nothing if all is well."""
    node, found = config.node, []
    if not is_loopback(node.host):
        if not config.tls.enabled and not node.behind_proxy:
            found.append(
                f"{node.host} can be reached from other machines, and everything would be readable "
                "on the way: set certificate and key under [tls] (`roskva certs` makes some to try "
                "with), or name the proxy that ends TLS with --behind-proxy"
            )
        if not has_keys(config):
            found.append(
                f"{node.host} can be reached from other machines, and no app has keys, so whoever "
                "reaches it may publish and read everything: give each app keys under [apps.NAME]"
            )
    found += [
        f"{path} holds a secret, and everybody on this machine may read it: chmod 600 it"
        for path in _secret_files(config)
        if _everybody_may_read(path)
    ]
    admin = config.admin
    if admin.port is not None and not is_loopback(admin.host):
        if not config.tls.enabled:
            found.append(
                f"the admin port on {admin.host} would be readable on the way: set certificate and "
                "key under [tls], or leave it on 127.0.0.1"
            )
        if admin.key is None:
            found.append(
                f"the admin port on {admin.host} is open to whoever reaches it: set key under "
                "[admin], or leave it on 127.0.0.1"
            )
    return found


def _secret_files(config: Config) -> list[Path]:
    """That the settings name."""
    apps, ingest = {"": config.defaults, **config.apps}, config.ingest
    named = [key for app in apps.values() for key in app.publish_keys]
    named += [key for key in (config.admin.key, config.probe.key) if key is not None]
    named += [source.key for source in ingest.values() if source.key is not None]
    files = [Path(text.removeprefix("file:")) for text in named if text.startswith("file:")]
    return files if config.tls.key is None else [*files, config.tls.key]


def _everybody_may_read(path: Path) -> bool:
    """A group may: it was made for that. A directory that is closed closes what is in it."""
    try:
        place = path.resolve()
        entered = all(parent.stat().st_mode & 0o001 for parent in place.parents)
        return entered and bool(place.stat().st_mode & 0o004)
    except OSError:  # who reads it says what is wrong
        return False


# Access.


class KeySet(msgspec.Struct):
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
    if not app.channels:
        raise _wrong(section, "channels", "channels is empty, and nobody could use it: name some")
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
    asks_at_publish = app.authorise_at_publish
    if asks_at_publish and app.hook is None:
        raise _wrong(
            section,
            "authorise_at_publish",
            "there is nobody to ask: set hook to a URL of the app's backend",
        )
    if asks_at_publish and not app.publish:
        raise _wrong(
            section,
            "authorise_at_publish",
            'nobody with a JWT may publish: say for which names it is asked, as publish = ["**"]',
        )
    asks = (app.hook is not None and not asks_at_publish) or app.authorise_at_notify
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
    if "@" in url.netloc:
        raise _wrong(section, key, f"{key} has a user or password in it: settings hold no secrets")
    if url.scheme == "https" and url.hostname:
        return
    if url.scheme == "http" and is_loopback(url.hostname or ""):
        return
    raise _wrong(section, key, f"{key} is asked over https, or over http on this machine alone")


def _check_jwks_file(section: str, path: Path) -> None:
    try:
        found = msgspec.json.decode(path.read_bytes(), type=KeySet)
    except OSError as error:
        raise _wrong(section, "jwks", f"{path} cannot be read: {error.strerror}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        found = KeySet([])
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
