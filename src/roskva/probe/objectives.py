"""What the prober knows after some rounds: per objective how it stands, for the node to tell.

**The error budget** of a day is the share of it that may be missed. A *burn rate* of 1 spends the
budget of a window just as the window ends. Time before the first round counts as kept, so that a
node that was just started does not spend its budget on one slow round. Kept are counts per minute,
for a day.
"""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from roskva.config import SLIS, ProbeConfig, SloConfig
from roskva.metrics import Times
from roskva.probe.round import PATHS, Measurement
from roskva.wire.admin import Objective, ProbeNow

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


def missed(outcome: Measurement, slo: SloConfig) -> bool:
    return outcome.seconds is None or outcome.seconds * 1000 > slo.of(outcome.sli).target_ms


def sentence(outcomes: Sequence[Measurement], slo: SloConfig) -> str:
    hurt = [outcome for outcome in outcomes if missed(outcome, slo)]
    if not hurt:
        return f"All {len(outcomes)} paths are well."
    return " ".join(why_missed(outcome, slo) for outcome in hurt)


def why_missed(outcome: Measurement, slo: SloConfig) -> str:
    """Why an objective was missed, in a sentence."""
    path = PATHS[outcome.sli]
    if outcome.seconds is None:
        return f"{outcome.sli} fails ({path}): {outcome.error}."
    took, target = outcome.seconds * 1000, slo.of(outcome.sli).target_ms
    return f"{outcome.sli} took {took:,.0f} ms, over its target of {target:,} ({path})."


class Objectives:
    def __init__(self, probe: ProbeConfig, slo: SloConfig, pid: int) -> None:
        self._every_s, self._slo, self._pid = probe.every_seconds, slo, pid
        self._rounds = 0
        now = time.monotonic()
        self._kept = {sli: _Kept(Budget(slo.of(sli).share, now)) for sli in SLIS}

    def add_round(self, outcomes: Sequence[Measurement]) -> ProbeNow:
        """As it stands after one more round."""
        now = time.monotonic()
        self._rounds += 1
        for outcome in outcomes:
            self._kept[outcome.sli].count(outcome, missed(outcome, self._slo), now)
        last = {outcome.sli: outcome for outcome in outcomes}
        return ProbeNow(
            state="running",
            pid=self._pid,
            at=time.time(),
            every_seconds=self._every_s,
            rounds=self._rounds,
            sentence=sentence(outcomes, self._slo),
            objectives=[
                self._objective(sli, kept, last.get(sli), now)
                for sli, kept in self._kept.items()
                if kept.measured
            ],
        )

    def _objective(
        self, sli: str, kept: "_Kept", last: Measurement | None, now: float
    ) -> Objective:
        target_ms, share = self._slo.of(sli)
        wrong = last is not None and missed(last, self._slo)
        took = None if last is None or last.seconds is None else round(last.seconds * 1000, 2)
        return Objective(
            sli=sli,
            path=PATHS[sli],
            target_ms=target_ms,
            share=share,
            kept=None if last is None else not wrong,
            took_ms=took,
            text=why_missed(last, self._slo) if last is not None and wrong else "",
            budget_left=round(kept.budget.left(now), 4),
            burn_1h=round(kept.budget.burn(HOUR_S, now), 3),
            burn_24h=round(kept.budget.burn(DAY_S, now), 3),
            measured=kept.measured,
            missed=kept.missed,
            total_seconds=kept.times.total,
            counts=kept.times.counts,
        )


@dataclass
class _Kept:
    budget: Budget
    times: Times = field(default_factory=Times)
    measured: int = 0
    missed: int = 0

    def count(self, outcome: Measurement, missed: bool, now: float) -> None:
        self.measured += 1
        self.missed += missed
        self.budget.count(missed, now)
        if outcome.seconds is not None:
            self.times.observe(outcome.seconds)
