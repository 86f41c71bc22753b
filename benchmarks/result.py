"""One line of a benchmark's report."""

from typing import Literal

import msgspec


class Result(msgspec.Struct, frozen=True):
    name: str
    value: float
    unit: str
    target: float | None = None
    better: Literal["lower", "higher"] = "lower"
    note: str = ""

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.value <= self.target if self.better == "lower" else self.value >= self.target
