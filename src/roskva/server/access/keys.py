"""Secrets that a node checks by itself: under which tokens are sealed, that publish, of the prober.

**Token keys** are kept in the data directory, a line for each: its number, and the key in hex. New
tokens are sealed under the first; those under the second, the one before, are accepted still.

**Publish keys** are of an app's backend. Only their hashes are kept.

**The prober** may use its own two apps, and nothing else. The node's own has a key that is made of
the token keys: every process of the node has these, and nobody else. One from elsewhere shows the
`key` of `[probe]`.
"""

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from roskva.config import AppConfig, ProbeConfig, read_secret
from roskva.config.access import key_digest
from roskva.core.identity import TokenKeys
from roskva.disk import RealDisk, write_whole
from roskva.errors import Damaged
from roskva.model import PROBE_APPS, Principal
from roskva.server.directory import close_to_others

TOKEN_KEY: Final = "token.key"
_BYTES: Final = 32
_MAX_NUMBER: Final = 255
_LIVE: Final = 2
_NAME_BYTES: Final = 6
_PURPOSE: Final = b"the prober of this node"


def token_keys(data: Path) -> TokenKeys:
    """Made at the first start. Whoever loses it makes every client shake hands again, no more."""
    path = data / TOKEN_KEY
    if not path.exists():
        _write(path, [(1, secrets.token_bytes(_BYTES))])
    close_to_others(path)
    keys = _read(path)
    return TokenKeys(dict(keys), keys[0][0])


def rotate(data: Path) -> None:
    """A new key from now on. Tokens of the last one hold until they expire, or until the next
    rotation; those of the one before do not any more."""
    path = data / TOKEN_KEY
    known = _read(path) if path.exists() else []
    number = known[0][0] % _MAX_NUMBER + 1 if known else 1
    _write(path, [(number, secrets.token_bytes(_BYTES)), *known][:_LIVE])


def _read(path: Path) -> list[tuple[int, bytes]]:
    found = []
    try:
        for line in path.read_text().splitlines():
            number, _, key = line.partition(" ")
            found.append((int(number), bytes.fromhex(key)))
    except ValueError:
        found = []
    if not found or any(
        not 1 <= number <= _MAX_NUMBER or len(key) != _BYTES for number, key in found
    ):
        raise Damaged(f"{path} is damaged: remove it, and clients will shake hands again")
    return found


def _write(path: Path, keys: list[tuple[int, bytes]]) -> None:
    text = "".join(f"{number} {key.hex()}\n" for number, key in keys)
    write_whole(RealDisk(), str(path), text.encode())


class PublishKeys:
    def __init__(self, apps: Mapping[str, AppConfig]) -> None:
        self._keys: dict[str, tuple[bytes, Principal]] = {}
        for app, settings in apps.items():
            for digest in map(key_digest, settings.publish_keys):
                name = _name(digest)
                self._keys[name] = digest, Principal(name, app, key=True)

    def names(self) -> dict[str, str]:
        """Of each key its app."""
        return {name: app for name, (_, who) in self._keys.items() if (app := who.app)}

    def find(self, credential: str) -> Principal | None:
        """Found by the beginning of its hash, which says nothing of the key; then compared in a
        time that does not depend on where the two differ."""
        digest = hashlib.sha256(credential.encode()).digest()
        kept, who = self._keys.get(_name(digest), (b"", None))
        return who if hmac.compare_digest(kept, digest) else None


def _name(digest: bytes) -> str:
    """For logs, and to know a session again whose key was taken away."""
    return "key-" + digest[:_NAME_BYTES].hex()


def credential(app: str, who: str, key: str) -> str:
    """What one of the prober's clients shows, to be let into one of its apps. Each is a principal
    of its own, so that no limit for principals is in its way."""
    return f"{app}/{who}:{key}"


def own_key(tokens: TokenKeys) -> str:
    """Of the older key, where there are two: after a rotation, a process that has not heard of the
    new one yet knows it as well."""
    older = next((number for number in tokens.keys if number != tokens.current), tokens.current)
    return _derived(tokens.keys[older])


def _derived(secret: bytes) -> str:
    return hmac.digest(secret, _PURPOSE, "sha256").hex()


class ProberKeys:
    def __init__(self, config: ProbeConfig, tokens: TokenKeys | None) -> None:
        keys: list[str] = []
        if tokens is not None:
            keys += map(_derived, tokens.keys.values())
            if config.key is not None:
                keys.append(read_secret("key under [probe]", config.key))
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def find(self, credential: str) -> Principal | None:
        named, _, key = credential.partition(":")
        app, _, who = named.partition("/")
        if app not in PROBE_APPS or not who:
            return None
        digest = hashlib.sha256(key.encode()).digest()
        known = [hmac.compare_digest(digest, each) for each in self._digests]
        return Principal(who, app) if any(known) else None
