"""What `roskva doctor` finds."""

from typing import Literal

import msgspec

Verdict = Literal["ok", "warn", "bad"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    what: str
    verdict: Verdict
    found: str
    do: str = ""
    """How to fix it."""
