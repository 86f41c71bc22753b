"""Patterns of names, and who may name what by them."""

import re
from collections.abc import Sequence
from typing import Final

PRINCIPAL: Final = "{principal}"
_REMEMBERED: Final = 10_000
_PARTS: Final = re.compile(r"\*\*|\*|\{principal\}|[^*{]+")


class NamePatterns:
    """`*` is anything up to the next `/`, `**` anything at all, `{principal}` whoever asks.

    A principal with a `/` in its name is never put into a pattern: `{principal}/*` would give it
    names that lie deeper, among those of somebody else.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._for_all = _compiled([p for p in patterns if PRINCIPAL not in p], "")
        self._personal = [pattern for pattern in patterns if PRINCIPAL in pattern]
        self._by_principal: dict[str, re.Pattern[str] | None] = {}

    def match(self, name: str, principal: str) -> bool:
        if self._for_all is not None and self._for_all.fullmatch(name):
            return True
        if not self._personal or not principal or "/" in principal:
            return False
        own = self._by_principal.get(principal)
        if own is None:
            if len(self._by_principal) >= _REMEMBERED:
                self._by_principal.clear()
            own = self._by_principal[principal] = _compiled(self._personal, principal)
        return own is not None and own.fullmatch(name) is not None


def _compiled(patterns: list[str], principal: str) -> re.Pattern[str] | None:
    if not patterns:
        return None
    return re.compile("|".join(_expression(pattern, principal) for pattern in patterns))


def _expression(pattern: str, principal: str) -> str:
    spelt = {"*": "[^/]+", "**": ".+", PRINCIPAL: re.escape(principal)}
    return "".join(spelt.get(part, re.escape(part)) for part in _PARTS.findall(pattern))
