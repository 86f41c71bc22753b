"""The key under which tokens are sealed, kept in the data directory."""

import os
import secrets
from pathlib import Path
from typing import Final

from roskva.core.token import TokenKeys
from roskva.disk import RealDisk, write_whole
from roskva.errors import Damaged

TOKEN_KEY: Final = "token.key"
_BYTES: Final = 32


def token_keys(data: Path) -> TokenKeys:
    """Made at the first start. Whoever loses it makes every client shake hands again, no more."""
    path = data / TOKEN_KEY
    if not path.exists():
        write_whole(RealDisk(), str(path), secrets.token_hex(_BYTES).encode())
        os.chmod(path, 0o600)
    try:
        key = bytes.fromhex(path.read_text())
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise Damaged(f"{path} is damaged: remove it, and clients will shake hands again")
    return TokenKeys({1: key}, 1)
