"""Error budgets go on after a start, and time without a node counts."""

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.probe.hurting import GENEROUS
from tests.serving.nodes import Node, await_that

from roskva.config import SLIS, ProbeConfig, SloConfig
from roskva.probe.history import DAY_S, History, Note, forget
from roskva.probe.objectives import HOUR_S, Objectives
from roskva.probe.round import Measurement
from roskva.wire.admin import Objective

NOON = 1_800_000_000.0
EVERY_S = 5.0
GOOD, BAD = Measurement("publish", 0.01), Measurement("publish", None, "no")


def began(directory: Path, now: float) -> tuple[Objectives, History]:
    """A prober that starts, and finds its node ready."""
    history = History(directory)
    objectives = Objectives(
        ProbeConfig(every_seconds=EVERY_S), SloConfig(), 1, now, history.read(now)
    )
    history.add(objectives.begin(now)[1])
    return objectives, history


def run(directory: Path, now: float, seconds: float, outcome: Measurement = GOOD) -> float:
    """A run of the prober; it ends as a process that is killed does."""
    objectives, history = began(directory, now)
    end = now + seconds
    while now + EVERY_S <= end:
        now += EVERY_S
        history.add(objectives.add_round([outcome], now)[1])
    return now


def publish(directory: Path, now: float) -> Objective:
    """As the next run says when it starts."""
    found, _ = Objectives(
        ProbeConfig(every_seconds=EVERY_S), SloConfig(), 1, now, History(directory).read(now)
    ).begin(now)
    (objective,) = found.objectives
    return objective


def test_a_node_that_was_never_there_has_missed_nothing(tmp_path: Path) -> None:
    objectives, _ = began(tmp_path, NOON)
    found, _ = objectives.add_round([GOOD], NOON + EVERY_S)
    assert [one.budget_left for one in found.objectives] == [1.0]


def test_what_was_missed_is_not_forgotten_by_a_start(tmp_path: Path) -> None:
    now = run(tmp_path, NOON, 1800, BAD)
    now = run(tmp_path, now, 1800)
    found = publish(tmp_path, now)
    assert found.burn_1h == pytest.approx(50, rel=0.05)
    assert found.budget_left == pytest.approx(1 - 50 / 24, abs=0.1)
    assert (found.kept, found.measured, found.missed) == (None, 0, 0)


def test_the_time_between_two_runs_is_missed(tmp_path: Path) -> None:
    run(tmp_path, NOON, 1800)
    now = run(tmp_path, NOON + 2700, 900)
    assert publish(tmp_path, now).burn_1h == pytest.approx(25, rel=0.05)


def test_a_crash_loop_spends_the_budget_although_every_round_is_kept(tmp_path: Path) -> None:
    now = NOON
    while now < NOON + HOUR_S:
        now = run(tmp_path, now, 2 * EVERY_S) + 10.0
    found = publish(tmp_path, now - 10.0)
    assert found.burn_1h == pytest.approx(50, rel=0.05)


def test_a_node_that_is_away_for_days_comes_back_without_a_budget(tmp_path: Path) -> None:
    run(tmp_path, NOON, 600)
    assert publish(tmp_path, NOON + 3 * DAY_S).budget_left == pytest.approx(-99, rel=0.01)


def test_paths_that_were_never_measured_are_not_missed(tmp_path: Path) -> None:
    run(tmp_path, NOON, 600)
    found, _ = began(tmp_path, NOON + 7200)[0].begin(NOON + 7300)
    assert [one.sli for one in found.objectives] == ["publish"]


def test_a_history_takes_the_room_of_two_days_and_remembers_one(tmp_path: Path) -> None:
    history = History(tmp_path)
    minutes, rounds = 60.0, int(5 * DAY_S / 60)
    for number in range(rounds):
        history.add(Note(NOON + number * minutes, {"publish": False}))
    files = list(tmp_path.iterdir())
    assert len(files) == 2
    assert sum(file.stat().st_size for file in files) < 2 * (DAY_S / minutes + 2) * 30
    last = NOON + (rounds - 1) * minutes
    kept = [note.at for note in History(tmp_path).read(last)]
    assert kept[0] <= last - DAY_S
    assert kept == sorted(kept)
    assert all(file.stat().st_mode & 0o077 == 0 for file in files)


def test_what_is_no_note_is_left_out(tmp_path: Path) -> None:
    History(tmp_path).add(Note(NOON, {"publish": True, "register": False}))
    with (tmp_path / "history").open("a") as file:
        file.write(f"{NOON + 3:.1f} ++\n\x00\x00 x\nnan =\n{NOON + 5:.1f} ++")
    History(tmp_path).add(Note(NOON + 10, None))
    notes = [
        Note(NOON, {"register": False, "publish": True}),
        Note(NOON + 10, None),
    ]
    assert History(tmp_path).read(NOON + 10) == notes
    assert History(tmp_path).read(NOON + 9) == notes[:1], "the clock was set back"


def test_a_history_of_other_paths_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "history").write_text(f"roskva-probe 1 publish\n{NOON:.1f} x\n")
    assert History(tmp_path).read(NOON) == []
    History(tmp_path).add(Note(NOON + 5, None))
    assert History(tmp_path).read(NOON + 5) == [Note(NOON + 5, None)]
    assert (tmp_path / "history").read_text().split("\n")[0].split()[2:] == list(SLIS)


def test_a_history_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "history").mkdir()
    history = History(tmp_path)
    caplog.set_level(logging.WARNING)
    for number in range(3):
        history.add(Note(NOON + number, None))
    assert len(caplog.records) == 1


def test_nobody_has_missed_what_was_not_to_be_measured(tmp_path: Path) -> None:
    run(tmp_path, NOON, 600)
    forget(tmp_path)
    assert History(tmp_path).read(NOON + 700) == []


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    settings = tmp_path / "node.toml"
    settings.write_text(GENEROUS.read_text() + "\n[probe]\nevery_seconds = 0.5\n")
    node = Node(tmp_path / "data", "--config", str(settings), probe=True)
    yield node
    node.end()


def left(node: Node, rounds: int) -> float:
    """Of the budget for publishing, after so many rounds."""

    def found() -> dict[str, float] | None:
        probe = node.status()["probe"]
        by_sli = {one["sli"]: one["budget_left"] for one in probe["objectives"]}
        return by_sli if probe["rounds"] >= rounds and "publish" in by_sli else None

    return await_that(found, 60.0, lambda: json.dumps(node.status()["probe"]))["publish"]


def test_a_node_that_was_killed_comes_back_with_the_budget_it_has_left(node: Node) -> None:
    node.start()
    assert left(node, rounds=2) > 0.9
    node.kill()
    history = node.data / "probe" / "history"
    lines = history.read_text().split("\n")
    earlier = [line.split(" ") for line in lines[1:] if line]
    moved = [f"{float(at) - 3600:.1f} {marks}" for at, marks in earlier]
    history.write_text("\n".join([lines[0], *moved, ""]))  # as if it had been an hour ago
    node.start()
    assert left(node, rounds=1) == pytest.approx(1 - 100 / 24, rel=0.1)
    node.stop()
    node.start("--no-probe", *node.flags)
    assert not history.exists()
