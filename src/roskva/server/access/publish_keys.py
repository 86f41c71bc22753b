"""Publish keys: secrets of an app's backend. Only their hashes are kept here."""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Final

from roskva.model import Principal

_NAME_BYTES: Final = 6


class PublishKeys:
    def __init__(self, digests: Iterable[tuple[str, bytes]]) -> None:
        """Apps, each with the SHA-256 of one of its keys."""
        self._keys: dict[str, tuple[bytes, Principal]] = {}
        for app, digest in digests:
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
