"""The options of our Spark sources and sinks, checked: what is wrong is a sentence."""

import difflib
import json
from collections.abc import Mapping
from typing import Final

from roskva.errors import BadInput
from roskva.feed.base import Marker
from roskva.pipeline.feeds import markers_of

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
Where = str | dict[int, Marker]
"""`earliest`, `latest`, or an offset for every shard."""


class Options:
    """As Spark gives them: text by name, in whatever case."""

    def __init__(self, source: str, given: Mapping[str, str], *known: str) -> None:
        self._source = source
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._given:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = (
                    f"did you mean {names[close[0]]}?" if close else f"it has: {', '.join(known)}"
                )
                raise BadInput(f"{source} has no option {name}; {hint}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given.get(name.lower(), default)
        if value is None:
            raise BadInput(f"{self._source} needs the option {name}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name.lower(), str(default)).strip().lower()
        if value not in ("true", "false"):
            raise BadInput(f"{name} is true or false; got {value!r}")
        return value == "true"

    def number(self, name: str, default: int | None = None) -> int | None:
        text = self._given.get(name.lower())
        if text is None:
            return default
        if not text.strip().isdecimal() or int(text) < 1:
            raise BadInput(f"{name} is a whole number from 1 on; got {text!r}")
        return int(text)

    def where(self, name: str, default: str) -> Where:
        text = self._given.get(name.lower(), default).strip()
        if text.lower() in (EARLIEST, LATEST):
            return text.lower()
        try:
            found = json.loads(text)
            return markers_of({str(key): int(value) for key, value in found.items()})
        except (ValueError, TypeError, AttributeError):
            raise BadInput(
                f'{name} is {EARLIEST}, {LATEST}, or offsets as in {{"shard-00": 4711}}; '
                f"got {text[:80]!r}"
            ) from None
