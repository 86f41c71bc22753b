"""Counters as rates: how fast they have risen over the last seconds."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

_EVERY_S: Final = 1.0
_OVER: Final = 6
"""Samples, and thus one second less."""


class Rates:
    def __init__(self, counters: Callable[[], Mapping[str, int]]) -> None:
        self._counters = counters
        self._samples: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=_OVER)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._samples.append((time.monotonic(), self._counters()))
            await asyncio.sleep(_EVERY_S)

    def per_second(self) -> dict[str, float]:
        if len(self._samples) < 2:
            return {}
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        took = ended - began
        return {name: round((value - first.get(name, 0)) / took, 2) for name, value in last.items()}
