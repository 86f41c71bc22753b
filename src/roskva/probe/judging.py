"""Whether a round kept what the settings promise, in words."""

from collections.abc import Sequence

from roskva.config import SloConfig
from roskva.probe.round import PATHS, Outcome


def missed(outcome: Outcome, slo: SloConfig) -> bool:
    return outcome.seconds is None or outcome.seconds * 1000 > slo.of(outcome.sli).target_ms


def sentence(outcomes: Sequence[Outcome], slo: SloConfig) -> str:
    hurt = [outcome for outcome in outcomes if missed(outcome, slo)]
    if not hurt:
        return f"All {len(outcomes)} paths are well."
    return " ".join(said(outcome, slo) for outcome in hurt)


def said(outcome: Outcome, slo: SloConfig) -> str:
    """Of one that was missed."""
    path = PATHS[outcome.sli]
    if outcome.seconds is None:
        return f"{outcome.sli} fails ({path}): {outcome.error}."
    took, target = outcome.seconds * 1000, slo.of(outcome.sli).target_ms
    return f"{outcome.sli} took {took:,.0f} ms, over its target of {target:,} ({path})."
