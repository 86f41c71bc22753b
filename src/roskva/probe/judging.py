"""Whether a round kept what the settings promise, in words."""

from collections.abc import Mapping, Sequence
from typing import Final

from roskva.probe.round import Outcome

TARGETS_MS: Final[Mapping[str, float]] = {
    "register": 500,
    "publish": 250,
    "notify-websocket": 500,
    "notify-events": 500,
    "notify-mqtt": 500,
    "notify-pipeline": 5000,
    "reconnect": 1000,
}
"""By SLI. The way through the pipeline waits for a micro-batch."""


def missed(outcome: Outcome) -> bool:
    return outcome.seconds is None or outcome.seconds * 1000 > TARGETS_MS[outcome.sli]


def sentence(outcomes: Sequence[Outcome]) -> str:
    hurt = [outcome for outcome in outcomes if missed(outcome)]
    if not hurt:
        return f"All {len(outcomes)} paths are well."
    return " ".join(_said(outcome) for outcome in hurt)


def _said(outcome: Outcome) -> str:
    if outcome.seconds is None:
        return f"{outcome.sli} fails ({outcome.path}): {outcome.error}."
    took, target = outcome.seconds * 1000, TARGETS_MS[outcome.sli]
    return f"{outcome.sli} took {took:.0f} ms of {target:.0f} ({outcome.path})."
