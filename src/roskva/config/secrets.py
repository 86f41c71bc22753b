"""Secrets of the settings: never in the settings themselves, but in the environment or a file."""

import os
from pathlib import Path
from typing import Final

from roskva.errors import BadConfig

_MIN_CHARACTERS: Final = 16


def read_secret(setting: str, text: str) -> str:
    """What `env:NAME` or `file:PATH` leads to. What is wrong is said of `setting`, and never with
    what may be a secret in it."""
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
    if len(found) < _MIN_CHARACTERS:
        raise BadConfig(
            f"{setting}: {where} has fewer than {_MIN_CHARACTERS} characters: take a longer "
            "secret, such as `openssl rand -hex 32` makes"
        )
    return found
