"""Whole clusters under every fault: 120 seeds here, more by `roskva sim`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from verification.mutants import MUTANTS, hunt, planted

from roskva.simulation.campaign import run_seed, run_tape, shrink
from roskva.simulation.tape import FAULTS_OF, TAPES, Tape, tape_of

SEEDS = 120
PORTION = 10
SOURCED_SEEDS = 4


@pytest.mark.parametrize("first", range(0, SEEDS, PORTION))
def test_clusters_hold(first: int) -> None:
    for seed in range(first, first + PORTION):
        report = run_seed(seed)
        assert report.violation is None, f"seed {seed}"
        assert report.simulated_seconds >= 600


def test_clusters_with_a_change_source_hold() -> None:
    for seed in range(SOURCED_SEEDS):
        report = run_seed(seed, profile="sources")
        assert report.violation is None, f"seed {seed}"
        assert report.sometimes["doubt in the log"] > 0


@pytest.mark.parametrize("path", TAPES, ids=lambda path: path.stem)
def test_what_once_broke_a_cluster_does_so_no_more(path: Path) -> None:
    assert run_tape(Tape.load(path)).violation is None


def test_a_seed_is_the_same_run_whatever_the_hash_seed() -> None:
    program = (
        "from roskva.simulation.campaign import run_tape\n"
        "from roskva.simulation.tape import tape_of\n"
        "print(run_tape(tape_of(7)).trace_hash, run_tape(tape_of(12)).trace_hash)"
    )
    hashes = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": value},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for value in ("1", "4242")
    }
    assert len(hashes) == 1


def test_a_tape_replays_as_the_seed_ran(tmp_path: Path) -> None:
    tape = tape_of(3)
    tape.save(tmp_path / "tape.json")
    again = Tape.load(tmp_path / "tape.json")
    assert again == tape
    assert run_tape(again).trace_hash == run_tape(tape).trace_hash


def test_a_failing_tape_shrinks_to_fewer_faults() -> None:
    planted_bug = next(mutant for mutant in MUTANTS if mutant.name == "reset only merged")
    with planted(planted_bug):
        seed = next(seed for seed in range(20) if run_tape(tape_of(seed)).violation)
        small = shrink(tape_of(seed))
        assert run_tape(small).violation
    assert len(small.faults) < len(tape_of(seed).faults) / 4
    assert run_tape(small).violation is None


def test_every_kind_of_fault_is_drawn() -> None:
    for profile, classes in FAULTS_OF.items():
        tapes = (tape_of(seed, profile=profile) for seed in range(100))
        drawn = {fault.kind for tape in tapes for fault in tape.faults}
        assert drawn == {kind for kinds in classes.values() for kind in kinds}


def test_every_mutant_can_be_planted_and_leaves_no_trace() -> None:
    before = run_tape(tape_of(5)).trace_hash
    for mutant in MUTANTS:
        with planted(mutant):
            pass
    assert run_tape(tape_of(5)).trace_hash == before


@pytest.mark.parametrize(
    "name",
    [
        *("fencing by last write", "packet id reused while in flight", "reset only merged"),
        *("told before visible", "idle log confirmed while something waits"),
    ],
)
def test_a_planted_bug_is_caught(name: str) -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.name == name)
    assert hunt(mutant).seed is not None
