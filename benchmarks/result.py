"""One line of a benchmark's report."""

from typing import Literal

import msgspec


class NotMeasured(Exception):
    """Something is missing that a benchmark cannot do without; the sentence says what."""


class Result(msgspec.Struct, frozen=True):
    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    note: str = ""
    peers: dict[str, float] = {}
    """The same figure of other servers, in the same run."""
    runs: dict[str, list[float]] = {}
    """Every repetition, by who was measured, where the figure is the median of several."""

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.better == "lower" else self.value >= self.target
