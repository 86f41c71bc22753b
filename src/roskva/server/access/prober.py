"""The rights of the prober on a node with keys: its own two apps, and nothing else.

The node's own prober has a key that is made of the keys under which tokens are sealed: every
process of the node has these, and nobody else. One from elsewhere shows the `key` of `[probe]`.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from roskva.config import ProbeConfig, read_secret
from roskva.core.identity import TokenKeys
from roskva.model import PROBE_APPS, Principal

_PURPOSE: Final = b"the prober of this node"


def credential(app: str, who: str, key: str) -> str:
    """What one of the prober's clients shows, to be let into one of its apps. Each is a principal
    of its own, so that no limit for principals is in its way."""
    return f"{app}/{who}:{key}"


def own_key(tokens: TokenKeys) -> str:
    """Of the older key, where there are two: after a rotation, a process that has not heard of the
    new one yet knows it as well."""
    older = next((number for number in tokens.keys if number != tokens.current), tokens.current)
    return _derived(tokens.keys[older])


def accepted_keys(config: ProbeConfig, tokens: TokenKeys) -> list[str]:
    given = [] if config.key is None else [read_secret("key under [probe]", config.key)]
    return [*given, *map(_derived, tokens.keys.values())]


def _derived(secret: bytes) -> str:
    return hmac.digest(secret, _PURPOSE, "sha256").hex()


class ProberKeys:
    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [hashlib.sha256(key.encode()).digest() for key in keys]

    def find(self, credential: str) -> Principal | None:
        named, _, key = credential.partition(":")
        app, _, who = named.partition("/")
        if app not in PROBE_APPS or not who:
            return None
        digest = hashlib.sha256(key.encode()).digest()
        known = [hmac.compare_digest(digest, each) for each in self._digests]
        return Principal(who, app) if any(known) else None
