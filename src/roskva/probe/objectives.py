"""What the prober knows after some rounds: per objective how it stands, for the node to tell.

**The error budget** of a day is the share of it that may be missed. A *burn rate* of 1 spends the
budget of a window just as the window ends. What was found is on disk (`history.py`), and budgets go
on with it after a start. From the last note of a run until the next run begins to measure there was
no node, or nobody could tell: that time counts as missed, whoever stopped the node and why, as
users were not served either. Time before the first note counts as kept, so that a new node does not
spend its budget on one slow round. Kept are counts per minute, for a day.

Times are wall-clock seconds; within a run they follow the monotonic clock.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from roskva.config import SLIS, ProbeConfig, SloConfig
from roskva.metrics import Times
from roskva.probe.history import DAY_S, Note
from roskva.probe.round import PATHS, Measurement
from roskva.wire.admin import Objective, ProbeNow

_MINUTE_S: Final = 60.0
HOUR_S: Final = 3600.0


class Budget:
    def __init__(self, share: float, began: float) -> None:
        """`share` of the rounds has to be kept."""
        self._may_miss = 1 - share
        self._began = began
        self._minutes: deque[tuple[int, float, float]] = deque(maxlen=int(DAY_S / _MINUTE_S))
        """Which one; rounds in it; missed ones."""

    def __bool__(self) -> bool:
        """Whether anything was counted."""
        return bool(self._minutes)

    def count(self, missed: bool, now: float, rounds: float = 1.0) -> None:
        minute = int(now // _MINUTE_S)
        before, bad = 0.0, 0.0
        if self._minutes and self._minutes[-1][0] == minute:
            _, before, bad = self._minutes.pop()
        self._minutes.append((minute, before + rounds, bad + missed * rounds))

    def miss(self, since: float, until: float, every_s: float) -> None:
        """The rounds that there would have been."""
        since = max(since, until - DAY_S)
        while since < until:
            end = min(until, (since // _MINUTE_S + 1) * _MINUTE_S)
            self.count(True, since, (end - since) / every_s)
            since = end

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
    def __init__(
        self,
        probe: ProbeConfig,
        slo: SloConfig,
        pid: int,
        now: float,
        history: Sequence[Note] = (),
    ) -> None:
        """`history`: of earlier runs, the oldest first."""
        self._every_s, self._slo, self._pid = probe.every_seconds, slo, pid
        self._rounds = 0
        self._until = history[0].at if history else now
        """Up to here it is known, or counted as missed, how it was."""
        self._kept = {sli: _Kept(Budget(slo.of(sli).share, self._until)) for sli in SLIS}
        for note in history:
            if note.missed is None:
                self._count_gap(note.at)
            else:
                self._count(note.missed.items(), note.at)

    def _count(self, found: Iterable[tuple[str, bool]], now: float) -> None:
        for sli, was_missed in found:
            self._kept[sli].budget.count(was_missed, now)
        self._until = now

    def _count_gap(self, now: float) -> None:
        for kept in self._kept.values():
            if kept.budget:
                kept.budget.miss(self._until, now, self._every_s)
        self._until = now

    def begin(self, now: float) -> tuple[ProbeNow, Note]:
        """Before the first round, when the node may still be starting: how it stands with the time
        until now as missed. To be said again when it is ready; only then it is noted."""
        self._count_gap(now)
        text = "Nothing is measured before the node is ready."
        return self._now("starting", text, (), now), Note(now, None)

    def add_round(self, outcomes: Sequence[Measurement], now: float) -> tuple[ProbeNow, Note]:
        """How it stands after one more, and what to note."""
        self._rounds += 1
        found = {outcome.sli: missed(outcome, self._slo) for outcome in outcomes}
        for outcome in outcomes:
            self._kept[outcome.sli].count(outcome, found[outcome.sli])
        self._count(found.items(), now)
        text = sentence(outcomes, self._slo)
        return self._now("running", text, outcomes, now), Note(now, found)

    def _now(
        self,
        state: Literal["starting", "running"],
        text: str,
        outcomes: Sequence[Measurement],
        now: float,
    ) -> ProbeNow:
        last = {outcome.sli: outcome for outcome in outcomes}
        return ProbeNow(
            state=state,
            pid=self._pid,
            at=now,
            every_seconds=self._every_s,
            rounds=self._rounds,
            sentence=text,
            objectives=[
                self._objective(sli, kept, last.get(sli), now)
                for sli, kept in self._kept.items()
                if kept.budget
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

    def count(self, outcome: Measurement, missed: bool) -> None:
        self.measured += 1
        self.missed += missed
        if outcome.seconds is not None:
            self.times.observe(outcome.seconds)
