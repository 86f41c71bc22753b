"""Keys by which a node lets in what belongs to it: its prober, and the flows of its sources.

They are made of the keys that tokens are sealed under. These are in the data directory, and whoever
may read that is of the node.
"""

import hmac
from pathlib import Path
from typing import Final

from roskva.core.identity import TokenKeys
from roskva.errors import Damaged

TOKEN_KEY: Final = "token.key"
KEY_BYTES: Final = 32
MAX_KEY_NUMBER: Final = 255

PROBER: Final = b"the prober of this node"
FLOWS: Final = b"the flows of this node"


def read_token_keys(data: Path) -> TokenKeys:
    """As they are kept in a data directory: a line for each, its number and the key in hex."""
    path = data / TOKEN_KEY
    found: dict[int, bytes] = {}
    try:
        for line in path.read_text().splitlines():
            number, _, key = line.partition(" ")
            found[int(number)] = bytes.fromhex(key)
    except ValueError:
        found = {}
    if not found or any(
        not 1 <= number <= MAX_KEY_NUMBER or len(key) != KEY_BYTES for number, key in found.items()
    ):
        raise Damaged(f"{path} is damaged: remove it, and clients will shake hands again")
    return TokenKeys(found, next(iter(found)))


def own_key(tokens: TokenKeys, purpose: bytes) -> str:
    """Of the older key, where there are two: after a rotation, a process that has not heard of the
    new one yet knows it as well."""
    older = next((number for number in tokens.keys if number != tokens.current), tokens.current)
    return _derived(tokens.keys[older], purpose)


def own_keys(tokens: TokenKeys, purpose: bytes) -> list[str]:
    """All that are accepted."""
    return [_derived(secret, purpose) for secret in tokens.keys.values()]


def _derived(secret: bytes, purpose: bytes) -> str:
    return hmac.digest(secret, purpose, "sha256").hex()


def flow_credential(app: str, key: str) -> str:
    """What a flow of a change source shows, to publish in its app."""
    return f"{app}:{key}"
