"""Real processes on a real disk: killed, stopped, woken, and watched from outside."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.feed.publisher_process import FENCED
from tests.feed.scenes import contents, damage, open_log, publish

from roskva.disk import RealDisk
from roskva.feed.base import Batch, Locked, Marker
from roskva.feed.reader import LogReader, wait_for_growth

ROOT = Path(__file__).parents[2]
ROUNDS = 10
ROUNDS_IN_VERIFY = int(os.environ.get("ROSKVA_KILL_ROUNDS", "100"))
TIMEOUT_S = 30


@contextmanager
def publisher(directory: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "tests.feed.publisher_process", str(directory)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            yield process
        finally:
            process.kill()


def acknowledged(process: "subprocess.Popen[bytes]", count: int) -> dict[int, int]:
    """Offset → version of the next so many acknowledged updates."""
    assert process.stdout is not None
    lines = (process.stdout.readline() for _ in range(count))
    return dict((int(offset), int(version)) for offset, version in map(bytes.split, lines))


def the_rest(process: "subprocess.Popen[bytes]") -> dict[int, int]:
    assert process.stdout is not None
    whole = [line for line in process.stdout if line.endswith(b"\n")]
    return dict((int(offset), int(version)) for offset, version in map(bytes.split, whole))


def versions(directory: Path) -> dict[int, int]:
    reader = LogReader(RealDisk(), str(directory))
    assert not damage(reader)
    return {offset: update.version for offset, update in contents(reader).items()}


def kill_again_and_again(directory: Path, rounds: int) -> None:
    told: dict[int, int] = {}
    for number in range(rounds):
        with publisher(directory) as process:
            new = acknowledged(process, 1 + 37 * number % 400)
            process.kill()
            new |= the_rest(process)
        assert not new.keys() & told.keys(), "an offset was used twice"
        told |= new
    open_log(RealDisk(), str(directory)).close()
    assert told.items() <= versions(directory).items()


def test_no_acknowledged_update_is_lost_when_the_writer_is_killed(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "feed", ROUNDS)


@pytest.mark.verify
def test_no_acknowledged_update_is_lost_however_often_the_writer_is_killed(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path / "feed", ROUNDS_IN_VERIFY)


def test_a_stopped_writer_keeps_its_lock_and_a_woken_one_is_fenced(tmp_path: Path) -> None:
    disk, directory = RealDisk(), str(tmp_path / "feed")
    with publisher(tmp_path / "feed") as process:
        told = acknowledged(process, 100)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        with pytest.raises(Locked):
            open_log(disk, directory)
        log = open_log(disk, directory, takeover=True)
        taken_over_at = log.recovered.last
        publish(log, 1, 2)
        process.send_signal(signal.SIGCONT)
        told |= the_rest(process)
        assert process.wait(TIMEOUT_S) == FENCED
        publish(log, 3)
    log.close()
    found = versions(tmp_path / "feed")
    assert told.items() <= found.items()
    later = [version for offset, version in found.items() if offset > taken_over_at]
    assert later == [1, 2, 3]


def test_a_reader_in_another_process_sees_every_update_once_and_in_order(tmp_path: Path) -> None:
    with publisher(tmp_path / "feed") as process:
        told = acknowledged(process, 1)
        reader = LogReader(RealDisk(), str(tmp_path / "feed"))
        seen: list[int] = []
        while len(seen) < 2000:
            assert wait_for_growth(reader, len(seen), TIMEOUT_S)
            answer = reader.read(Marker(reader.lineage, len(seen)))
            assert isinstance(answer, Batch)
            assert answer.base == len(seen) + 1
            seen += [update.version for update in answer.updates()]
            told |= acknowledged(process, 1)
    for offset, version in told.items():
        assert offset > len(seen) or seen[offset - 1] == version
