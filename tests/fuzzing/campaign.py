"""Mutated inputs by the million: no crash, no hang, no leak."""

import gc
import resource
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from tests.fuzzing.mutation import mutated
from tests.fuzzing.target import Target

MAX_INPUT_S: Final = 1.0
"""For one input of some hundred bytes: a thousand times what any of them takes, so that a busy
machine is not taken for a hang."""
MAX_GROWTH_BYTES: Final = 24 << 20
"""Of the process, after the first tenth of the rounds. What leaks a hundred bytes per input shows
in a quarter of a million of them."""


@dataclass(frozen=True)
class Outcome:
    rounds: int
    taken: int
    seconds: float
    slowest_s: float
    grown_bytes: int

    def __str__(self) -> str:
        return (
            f"{self.rounds:,} inputs, {self.taken:,} taken, {self.rounds / self.seconds:,.0f}/s, "
            f"slowest {1000 * self.slowest_s:.1f} ms, grown by {self.grown_bytes >> 10:,} KiB"
        )


class Failed(AssertionError):
    """Holds the input, in hex, to be run again."""


def fuzz(target: Target, seed: int, rounds: int) -> Outcome:
    dice = Random(f"{target.name} {seed}")
    corpus, takes, clock = target.corpus, target.takes, time.perf_counter
    taken, slowest, began, before = 0, 0.0, clock(), 0
    for i in range(rounds):
        if i == rounds // 10:
            before = _resident_bytes()
        data = mutated(dice.choice(corpus), dice.choice(corpus), dice)
        at = clock()
        try:
            taken += takes(data)
        except BaseException as error:
            raise Failed(f"{target.name}, seed {seed}: {data.hex()}") from error
        if (took := clock() - at) > slowest:
            slowest = took
            if took > MAX_INPUT_S and _again(target, data) > MAX_INPUT_S:
                raise Failed(f"{target.name}, seed {seed}, {took:.1f} s: {data.hex()}")
    seconds = clock() - began
    grown = max(0, _resident_bytes() - before)
    if grown > MAX_GROWTH_BYTES:
        raise Failed(f"{target.name}, seed {seed}: the process grew by {grown} bytes")
    return Outcome(rounds, taken, seconds, slowest, grown)


def _again(target: Target, data: bytes) -> float:
    """In processor time: somebody else may have had the core."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    target.takes(data)
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _resident_bytes() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
