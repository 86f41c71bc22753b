"""kill −9 of a process that writes: what it was told is durable is there, and no batch is torn."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from tests.store.killed import check

from roskva.store.rocksdb import RocksStore

ROOT = Path(__file__).parents[2]
ROUNDS = int(os.environ.get("ROSKVA_KILL_ROUNDS", "10"))
VERIFY_ROUNDS = int(os.environ.get("ROSKVA_KILL_ROUNDS", "100"))


def killed_after(directory: Path, lines: int) -> dict[int, int]:
    """Run the writer, kill it after so many answers, and return the last one of each writer."""
    command = [sys.executable, "-m", "tests.store.killed", str(directory)]
    acknowledged: dict[int, int] = {}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for seen, line in enumerate(process.stdout, 1):
            writer, number = map(int, line.split())
            acknowledged[writer] = number
            if seen == lines:
                process.kill()
    assert process.returncode == -9
    return acknowledged


def kill_in_a_loop(directory: Path, rounds: int) -> None:
    chance = random.Random(3)
    for _ in range(rounds):
        acknowledged = killed_after(directory, chance.randrange(1, 60))
        store = RocksStore(directory)
        check(dict(store.scan()), acknowledged)
        store.close()


def test_kill_9_loses_nothing_acknowledged_and_tears_no_batch(tmp_path: Path) -> None:
    kill_in_a_loop(tmp_path / "store", ROUNDS)


@pytest.mark.verify
def test_kill_9_many_times_loses_nothing_acknowledged(tmp_path: Path) -> None:
    kill_in_a_loop(tmp_path / "store", VERIFY_ROUNDS)
