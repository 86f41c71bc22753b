"""Secrets that a node checks by itself: under which tokens are sealed, that publish, of the prober.

**Token keys** are kept in the data directory, a line for each: its number, and the key in hex. New
tokens are sealed under the first; those under the second, the one before, are accepted still.

**Publish keys** are of an app's backend. Only their hashes are kept.

**The prober** may use its own two apps, and nothing else. The node's own has a key that is made of
the token keys: every process of the node has these, and nobody else. One from elsewhere shows the
`key` of `[probe]`.

**Flows of a change source** publish in its app, and do nothing else. Those beside the node have a
key that is made in the same way.
"""

import hashlib
import hmac
import secrets
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from roskva.config import AppConfig, ProbeConfig, read_secret
from roskva.config.access import key_digest
from roskva.core.identity import TokenKeys
from roskva.disk import RealDisk, write_whole
from roskva.links.own_keys import (
    FLOWS,
    KEY_BYTES,
    MAX_KEY_NUMBER,
    PROBER,
    TOKEN_KEY,
    own_keys,
    read_token_keys,
)
from roskva.model import PROBE_APPS, Principal
from roskva.server.directory import close_to_others

_LIVE: Final = 2
_NAME_BYTES: Final = 6


def token_keys(data: Path) -> TokenKeys:
    """Made at the first start. Whoever loses it makes every client shake hands again, no more."""
    path = data / TOKEN_KEY
    if not path.exists():
        _write(path, [(1, secrets.token_bytes(KEY_BYTES))])
    close_to_others(path)
    return read_token_keys(data)


def rotate(data: Path) -> None:
    """A new key from now on. Tokens of the last one hold until they expire, or until the next
    rotation; those of the one before do not any more."""
    path = data / TOKEN_KEY
    known = list(read_token_keys(data).keys.items()) if path.exists() else []
    number = known[0][0] % MAX_KEY_NUMBER + 1 if known else 1
    _write(path, [(number, secrets.token_bytes(KEY_BYTES)), *known][:_LIVE])


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


class ProberKeys:
    def __init__(self, config: ProbeConfig, tokens: TokenKeys | None) -> None:
        keys: list[str] = []
        if tokens is not None:
            keys += own_keys(tokens, PROBER)
            if config.key is not None:
                keys.append(read_secret("key under [probe]", config.key))
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def find(self, credential: str) -> Principal | None:
        named, _, key = credential.partition(":")
        app, _, who = named.partition("/")
        if app not in PROBE_APPS or not who:
            return None
        return Principal(who, app) if _is_among(key, self._digests) else None


class FlowKeys:
    """Of those beside the node: one elsewhere shows a publish key of the app."""

    def __init__(self, apps: Collection[str] = (), tokens: TokenKeys | None = None) -> None:
        """`apps`: those that have a change source."""
        self._flows = {app: Principal(f"flow-{app}", app, key=True) for app in apps}
        keys = [] if tokens is None else own_keys(tokens, FLOWS)
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def names(self) -> dict[str, str]:
        """Of each its app."""
        return {flow.name: app for app, flow in self._flows.items()}

    def find(self, credential: str) -> Principal | None:
        app, _, key = credential.partition(":")
        return self._flows.get(app) if _is_among(key, self._digests) else None


def _is_among(key: str, digests: list[bytes]) -> bool:
    digest = hashlib.sha256(key.encode()).digest()
    return any([hmac.compare_digest(digest, each) for each in digests])
