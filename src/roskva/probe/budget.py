"""How much of its error budget an objective has left, from rounds that kept it or missed it.

The budget of a day is the share of it that may be missed. A *burn rate* of 1 spends the budget of a
window just as the window ends. Time before the first round counts as kept, so that a node that was
just started does not spend its budget on one slow round. Kept are counts per minute, for a day.
"""

from collections import deque
from typing import Final

_MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S


class Budget:
    def __init__(self, share: float, now: float) -> None:
        """`share` of the rounds has to be kept. Times are monotonic seconds."""
        self._may_miss = 1 - share
        self._began = now
        self._minutes: deque[tuple[int, int, int]] = deque(maxlen=int(DAY_S / _MINUTE_S))
        """Which one; rounds in it; missed ones."""

    def count(self, missed: bool, now: float) -> None:
        minute = int(now // _MINUTE_S)
        rounds, bad = 0, 0
        if self._minutes and self._minutes[-1][0] == minute:
            _, rounds, bad = self._minutes.pop()
        self._minutes.append((minute, rounds + 1, bad + missed))

    def burn(self, window_s: float, now: float) -> float:
        first = int((now - window_s) // _MINUTE_S) + 1
        within = [minute for minute in self._minutes if minute[0] >= first]
        rounds = sum(minute[1] for minute in within)
        if not rounds:
            return 0.0
        share_missed = sum(minute[2] for minute in within) / rounds
        observed = min(1.0, max(now - self._began, _MINUTE_S) / window_s)
        return share_missed * observed / self._may_miss

    def left(self, now: float) -> float:
        """Of the budget of a day: from 1 down to 0, and below."""
        return 1 - self.burn(DAY_S, now)
