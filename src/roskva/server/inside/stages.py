"""How long the stages between publish and ack take, from the updates that were sampled lately."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from roskva.feed.trace import STAGES
from roskva.server.inside.facts import Passed
from roskva.wire.admin import StageTime


def stage_times(passed: Iterable[Passed]) -> list[StageTime]:
    """In their order; `passed` may come from several processes, in any order."""
    first: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for object, version, stage, at_us in passed:
        seen = first[object, version]
        seen[stage] = min(at_us, seen.get(stage, at_us))
    times: defaultdict[str, list[float]] = defaultdict(list)
    for seen in first.values():
        if seen.get("bridged", 0) >= seen.get("matched", seen.get("bridged", 0) + 1):
            del seen["bridged"]  # the bridge has brought what was there already
        stages = [stage for stage in STAGES if stage in seen]
        for before, stage in pairwise(stages):
            times[stage].append(max(0, seen[stage] - seen[before]) / 1000)
    return [
        StageTime(
            stage, round(median(times[stage]), 2), round(_p99(times[stage]), 2), len(times[stage])
        )
        for stage in STAGES
        if stage in times
    ]


def _p99(times: Sequence[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(0.99 * len(times)))]
