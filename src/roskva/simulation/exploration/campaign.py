"""All configurations on all cores; and planted bugs, which one of them must show."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import msgspec

from roskva.simulation.exploration.configurations import CONFIGURATIONS, HUNTING_GROUNDS
from roskva.simulation.exploration.search import Exploration, Patch, explore
from roskva.simulation.mutants import MUTANTS, planted

WITHIN_BOUNDS: Final = (
    "batch answered while only in memory",
    "marker advanced over a gap",
    "interest recorded after the load",
    "late load hides a newer version",
    "failed write forgotten",
    "restored snapshot keeps its epoch with the feed gone",
    "recreated feed taken for the old one",
    "new epoch not announced",
)
"""Planted bugs that show in clusters as small as these. The others need what is left out here
(resets, sources, MQTT) or more than fits."""


class Hunted(msgspec.Struct, frozen=True):
    mutant: str
    exploration: Exploration


def explore_all(
    workers: int, progress: Callable[[Exploration], None] | None = None
) -> list[Exploration]:
    """`progress` is handed each one as it ends, in the order of `CONFIGURATIONS`."""
    done: list[Exploration] = []
    with ProcessPoolExecutor(workers) as pool:
        for exploration in pool.map(explore, CONFIGURATIONS, chunksize=1):
            done.append(exploration)
            if progress is not None:
                progress(exploration)
    return done


def explore_mutant(patch: Patch) -> Exploration:
    """Up to the first violation; without one, the last of the grounds it was hunted on."""
    exploration = None
    for bounds in HUNTING_GROUNDS:
        exploration = explore(bounds, patch, first_only=True)
        if exploration.violations:
            return exploration
    assert exploration is not None
    return exploration


def hunt_within_bounds(
    workers: int, progress: Callable[[Hunted], None] | None = None
) -> list[Hunted]:
    done: list[Hunted] = []
    with ProcessPoolExecutor(workers) as pool:
        for hunted in pool.map(_hunt, WITHIN_BOUNDS, chunksize=1):
            done.append(hunted)
            if progress is not None:
                progress(hunted)
    return done


def _hunt(name: str) -> Hunted:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    return Hunted(name, explore_mutant(lambda: planted(mutant)))
