"""Everything that takes bytes from outside, given bytes that are almost right.

Some thousands of each in an ordinary run, and a million of each in `make verify`
(`ROSKVA_FUZZ_ROUNDS` changes that; connections and requests, which take longer, have fewer).
"""

import mmap
import os
import sys
from typing import Final

import pytest
from tests.fuzzing import binlog, campaign, feed, http, links, messages, mqtt, tokens, websocket
from tests.fuzzing.campaign import Failed, fuzz
from tests.fuzzing.target import Target

TARGETS: Final = {
    target.name: target
    for module in (messages, mqtt, websocket, http, tokens, feed, links, binlog)
    for target in module.TARGETS
}
SOME: Final = 3000
SHARES: Final = 2
"""Of a million, for as many processes."""

every_target = pytest.mark.parametrize("name", TARGETS)


@every_target
def test_what_is_sound_is_taken(name: str) -> None:
    target = TARGETS[name]
    assert sum(map(target.takes, target.corpus)) >= len(target.corpus) / 2


@every_target
def test_thousands_of_mutated_inputs_do_no_harm(name: str) -> None:
    outcome = fuzz(TARGETS[name], seed=0, rounds=SOME)
    assert outcome.taken < SOME


@pytest.mark.verify
@pytest.mark.parametrize("share", range(SHARES))
@every_target
def test_a_million_mutated_inputs_do_no_harm(name: str, share: int) -> None:
    target = TARGETS[name]
    rounds = min(target.rounds, int(os.environ.get("ROSKVA_FUZZ_ROUNDS", target.rounds)))
    outcome = fuzz(target, seed=1 + share, rounds=rounds // SHARES)
    sys.stderr.write(f"{name}: {outcome}\n")


# The fuzzer itself.


def _target(takes: object) -> Target:
    assert callable(takes)
    return Target("broken", [b"sound"], takes)


def test_a_crash_is_reported_with_its_input() -> None:
    def crashes(data: bytes) -> bool:
        if b"x" in data:
            raise KeyError("x")
        return True

    with pytest.raises(Failed, match=r"broken, seed 0: [0-9a-f]*78"):
        fuzz(_target(crashes), seed=0, rounds=100_000)


def test_a_leak_is_reported() -> None:
    kept: list[mmap.mmap] = []  # which nothing that was freed before has room for

    def leaks(data: bytes) -> bool:
        kept.append(mmap.mmap(-1, 50_000))
        kept[-1].write(bytes(50_000))
        return True

    with pytest.raises(Failed, match="grew by"):
        fuzz(_target(leaks), seed=0, rounds=2000)


def test_a_hang_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def hangs(data: bytes) -> bool:
        return sum(range(3_000_000)) > 0

    monkeypatch.setattr(campaign, "MAX_INPUT_S", 0.01)
    with pytest.raises(Failed, match=r" s: [0-9a-f]"):
        fuzz(_target(hangs), seed=0, rounds=10)
