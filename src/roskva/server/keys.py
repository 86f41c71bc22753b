"""The keys under which tokens are sealed, kept in the data directory.

A line for each: its number, and the key in hex. New tokens are sealed under the first; those under
the second, the one before, are accepted still.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from roskva.core.identity import TokenKeys
from roskva.disk import RealDisk, write_whole
from roskva.errors import Damaged

TOKEN_KEY: Final = "token.key"
_BYTES: Final = 32
_MAX_NUMBER: Final = 255
_LIVE: Final = 2


def token_keys(data: Path) -> TokenKeys:
    """Made at the first start. Whoever loses it makes every client shake hands again, no more."""
    path = data / TOKEN_KEY
    if not path.exists():
        _write(path, [(1, secrets.token_bytes(_BYTES))])
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
    os.chmod(path, 0o600)
