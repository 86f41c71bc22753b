"""Whose word still counts: of clients that came with keys or tokens, who may stay.

A **generation** is a moment, in seconds since 1970. Whatever was issued to an app's clients, or to
one of its principals, before their generation is void: the credential itself, tokens that were
granted for it, and tokens that were granted for those. A session is as old as the credential it
began with. Raising a generation is how somebody is sent away before their tokens expire.
"""

import msgspec

from roskva.model import Principal


class Standing(msgspec.Struct, frozen=True):
    """Without keys everybody stands."""

    keyed: bool = False
    apps: dict[str, int] = {}
    """The apps that let clients in, each with its generation."""
    principals: dict[str, dict[str, int]] = {}
    """By app and name, where a principal's generation is above its app's."""
    keys: dict[str, str] = {}
    """The publish keys by name, each with its app."""

    def holds(self, who: Principal) -> bool:
        if not self.keyed:
            return True
        if who.key:
            return self.keys.get(who.name) == who.app
        generation = self.apps.get(who.app or "")
        if generation is None or not who.name:
            return False
        own = self.principals.get(who.app or "", {}).get(who.name, generation)
        return who.issued_at >= max(generation, own)
