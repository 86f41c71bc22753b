"""Many seeds on all cores, and what they amount to."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

import msgspec

from roskva.host.observer import WAYS
from roskva.simulation.sourced import SourcedWorld
from roskva.simulation.tape import DEFAULT_MINUTES, KINDS, Profile, Tape, kinds_of, tape_of
from roskva.simulation.world import COUNTED, Report, World

REPEATED: Final = 100
"""One seed in so many is run twice, to see that it is the same run."""

DOUBTS: Final = (
    *("attached", "slot missing", "slot lost", "slot ahead", "fork", "truncated", "log lost"),
)
_OF_CLUSTERS: Final = (
    *("message lost", "message repeated", "link half-open", "link down", "own write read"),
    "too much of one principal",
    *("datagram lost", "fan-out in slices", "packet sent again after a reconnect"),
    *("told unknown", "registration failed", "reset", "app reset", "another reset"),
    *("write failed", "publish refused for now"),
    *("power cut in a commit", "fast path lost an update", "feed missing by damage"),
    *("feed damaged unread", "feed missing by retention", "publisher met a dead shard"),
    *("bridge told of a gap", "bridge answered", "bridge closed a gap", "bridge skipped a range"),
    *("bridge repeated a range", "bridge met a dead shard"),
    *(f"news came by the way: {way}" for way in WAYS),
    *("peer wants an epoch", "peer missed something", "peer came back from old rows"),
    "silent for long",
    *("gap closed alone", "gap left to the bridge again", "told by the bridge alone"),
    *(f"core: {name}" for name in COUNTED),
)
_OF_SOURCES: Final = (
    *("told unknown", "message lost", "link down", "own write read"),
    *(f"news came by the way: {way}" for way in WAYS),
    *("transaction rolled back", "transaction seen late", "alarm on", "alarm off"),
    *("database not there", "database lost", "source ended by its disk", "doubt in the log"),
    *(f"doubt: {cause}" for cause in DOUBTS),
    *("hole in the log of changes", "late version refused", "reset asked for again"),
)
SOMETIMES: Final[dict[Profile, tuple[str, ...]]] = {
    "node": (*KINDS, *_OF_CLUSTERS),
    "sources": (*kinds_of("sources"), *_OF_SOURCES),
}
"""What has to happen in a campaign, or it has proved nothing about it."""


class Summary(msgspec.Struct):
    profile: Profile = "node"
    seeds: int = 0
    simulated_hours: float = 0.0
    wall_seconds: float = 0.0
    notifications: int = 0
    sometimes: Counter[str] = msgspec.field(default_factory=Counter)
    violations: list[Report] = msgspec.field(default_factory=list)

    def add(self, report: Report) -> None:
        self.seeds += 1
        self.simulated_hours += report.simulated_seconds / 3600
        self.notifications += report.notifications
        self.sometimes.update(report.sometimes)
        if report.violation:
            self.violations.append(report)

    def never(self) -> list[str]:
        return [what for what in SOMETIMES[self.profile] if not self.sometimes[what]]


def world_of(tape: Tape) -> World:
    return SourcedWorld(tape) if tape.profile == "sources" else World(tape)


def run_tape(tape: Tape) -> Report:
    return world_of(tape).run()


def run_seed(seed: int, minutes: float = DEFAULT_MINUTES, profile: Profile = "node") -> Report:
    report = run_tape(tape_of(seed, minutes, profile))
    if seed % REPEATED == 0:
        again = run_tape(tape_of(seed, minutes, profile))
        if again.trace_hash != report.trace_hash:
            return msgspec.structs.replace(report, violation="the same seed ran differently")
    return report


def run_seeds(
    seeds: Sequence[int],
    workers: int,
    minutes: float = DEFAULT_MINUTES,
    progress: Callable[[Report], None] | None = None,
    profile: Profile = "node",
) -> Summary:
    summary = Summary(profile)
    started = time.monotonic()
    for report in _reports(seeds, workers, minutes, profile):
        summary.add(report)
        if progress is not None:
            progress(report)
    summary.wall_seconds = time.monotonic() - started
    return summary


def _reports(
    seeds: Sequence[int], workers: int, minutes: float, profile: Profile
) -> Iterator[Report]:
    run = partial(run_seed, minutes=minutes, profile=profile)
    if workers == 1:
        yield from map(run, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(run, seeds, chunksize=1)


def shrink(tape: Tape, progress: Callable[[Tape], None] | None = None) -> Tape:
    """The fewest faults that still break it: halves first, then ever smaller pieces."""
    size = max(1, len(tape.faults) // 2)
    while True:
        smaller = _without_some(tape, size)
        if smaller is not None:
            tape = smaller
            if progress is not None:
                progress(tape)
        elif size == 1:
            return tape
        else:
            size //= 2


def _without_some(tape: Tape, size: int) -> Tape | None:
    for start in range(0, len(tape.faults), size):
        candidate = tape.without(set(range(start, start + size)))
        if run_tape(candidate).violation:
            return candidate
    return None
