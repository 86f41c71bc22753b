"""What the prober knows after some rounds: per objective how it stands, for the node to tell."""

import time
from collections.abc import Sequence

from roskva.config import SLIS, ProbeConfig, SloConfig
from roskva.metrics import Times
from roskva.probe.budget import DAY_S, HOUR_S, Budget
from roskva.probe.judging import missed, said, sentence
from roskva.probe.round import PATHS, Outcome
from roskva.wire.admin import Objective, ProbeNow


class Watch:
    def __init__(self, probe: ProbeConfig, slo: SloConfig, pid: int) -> None:
        self._every_s, self._slo, self._pid = probe.every_seconds, slo, pid
        self._rounds = 0
        now = time.monotonic()
        self._kept = {sli: _Kept(Budget(slo.of(sli).share, now)) for sli in SLIS}

    def took(self, outcomes: Sequence[Outcome]) -> ProbeNow:
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

    def _objective(self, sli: str, kept: "_Kept", last: Outcome | None, now: float) -> Objective:
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
            text=said(last, self._slo) if last is not None and wrong else "",
            budget_left=round(kept.budget.left(now), 4),
            burn_1h=round(kept.budget.burn(HOUR_S, now), 3),
            burn_24h=round(kept.budget.burn(DAY_S, now), 3),
            measured=kept.measured,
            missed=kept.missed,
            total_seconds=kept.times.total,
            counts=kept.times.counts,
        )


class _Kept:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.times = Times()
        self.measured = 0
        self.missed = 0

    def count(self, outcome: Outcome, missed: bool, now: float) -> None:
        self.measured += 1
        self.missed += missed
        self.budget.count(missed, now)
        if outcome.seconds is not None:
            self.times.observe(outcome.seconds)
