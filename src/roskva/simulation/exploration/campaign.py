"""All configurations on all cores; and planted bugs, which one of them must show."""

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor

from roskva.simulation.exploration.configurations import CONFIGURATIONS, HUNTING_GROUNDS
from roskva.simulation.exploration.search import Exploration, Patch, explore


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
