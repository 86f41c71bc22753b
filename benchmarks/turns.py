"""Measuring in turns: everybody once, then everybody again the other way round, so that whatever
else the machine does meets all alike. A figure is the median of turns, and a ratio that of the
ratios of turns."""

import statistics
from collections.abc import Callable, Sequence
from typing import Final, Literal, Protocol, TypeVar

from benchmarks.result import Result, Settings

OURS: Final = "Roskva"


class Named(Protocol):
    @property
    def name(self) -> str: ...


P = TypeVar("P", bound=Named)
T = TypeVar("T")
Better = Literal["lower", "higher", "neither"]


def in_turns(
    parties: Sequence[P],
    settings: Settings,
    measure: Callable[[P], T],
    *,
    often: int = 1,
    once: Sequence[P] = (),
    doing: str = "",
) -> dict[str, list[T]]:
    """`often`: turns in each repetition; short ones are closer to each other. `once`: who has only
    the first turn, because it takes long or is the same every time."""
    found: dict[str, list[T]] = {party.name: [] for party in parties}
    turns = settings.repetitions * often
    for turn in range(turns):
        for party in parties[:: -1 if turn % 2 else 1]:
            if turn and party in once:
                continue
            settings.progress(f"{doing or party.name}, turn {turn + 1} of {turns}")
            found[party.name].append(measure(party))
    return found


def figure(
    name: str,
    unit: str,
    turns: dict[str, list[T]],
    of: Callable[[T], float | None],
    *,
    better: Better | None = None,
    note: str = "",
    why: str = "",
    at: float | None = None,
    at_unit: str = "",
) -> Result:
    """The medians. Who has no such figure in some turn, because something was lost, has none; nor
    has who had no turn."""
    values = {party: [of(turn) for turn in some] for party, some in turns.items() if some}
    runs = {party: [v for v in some if v is not None] for party, some in values.items()}
    medians = {
        party: statistics.median(some)
        for party, some in runs.items()
        if some and len(some) == len(values[party])
    }
    missing = {
        "never": [party for party in values if party not in medians],
        "not installed": [party for party in turns if party not in values],
    }
    notes = [note, *(f"{why}: {', '.join(some)}" for why, some in missing.items() if some)]
    if OURS not in medians:
        raise RuntimeError(f"{name}: Roskva has lost something, which it must not")
    return Result(
        name,
        medians.pop(OURS),
        unit,
        better=better or ("higher" if unit == "/s" else "lower"),
        note="; ".join(part for part in notes if part),
        peers=medians,
        runs=runs,
        why=why,
        at=at,
        at_unit=at_unit,
    )


def ratio(
    of: Result, peer: str, *, target: float | None = None, better: Better = "higher"
) -> list[Result]:
    """Of ours to theirs, turn by turn; nothing if they are not here."""
    if peer not in of.runs or len(of.runs[peer]) != len(of.runs[OURS]):
        return []
    ratios = [a / b for a, b in zip(of.runs[OURS], of.runs[peer], strict=True)]
    note = f"{min(ratios):.2f} to {max(ratios):.2f}"
    return [Result(f"… to {peer}", statistics.median(ratios), "×", target, better, note)]
