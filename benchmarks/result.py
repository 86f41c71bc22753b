"""What a benchmark is told, and what it brings back.

A benchmark is a module of this package with `run(settings) -> list[Result]`; its docstring says how
it measures, and stands in the report. It may have `PLOTS` (`plot.py`), too.
"""

from collections.abc import Callable
from typing import Literal

import msgspec


class NotMeasured(Exception):
    """Something is missing that a benchmark cannot do without; the sentence says what."""


class Settings(msgspec.Struct, frozen=True):
    repetitions: int = 3
    full: bool = False
    """The long version: more clients, longer runs. The short one fits into minutes."""
    progress: Callable[[str], None] = lambda text: None
    """Say what is measured now."""


class Result(msgspec.Struct, frozen=True):
    """One figure. Those of one name that differ in `at` make a table together, and a curve."""

    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher", "neither"] = "lower"
    note: str = ""
    peers: dict[str, float] = {}
    """The same figure of other servers, in the same run; or what a paper reports."""
    runs: dict[str, list[float]] = {}
    """Every repetition, by who was measured, where the figure is the median of several."""
    why: str = ""
    """Why a peer may be better; told only where one is."""
    at: float | None = None
    """Under which load, or whatever else was varied."""
    at_unit: str = ""
    curve: list[tuple[float, float]] = []
    """For a plot: a whole curve in one result."""

    @property
    def met(self) -> bool | None:
        return None if self.target is None else not self.beaten_by(self.target)

    def beaten_by(self, other: float) -> bool:
        if self.better == "neither":
            return False
        return other < self.value if self.better == "lower" else other > self.value
