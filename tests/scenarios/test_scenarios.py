"""Every scenario file gives the trace that it shows. ROSKVA_REWRITE=1 rewrites them instead."""

import os
from pathlib import Path

import pytest
from tests.scenarios.cluster import WIDTH, ScriptError
from tests.scenarios.runner import SCENARIOS, difference, perform, rewrite


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    if os.environ.get("ROSKVA_REWRITE"):
        rewrite(path)
    lines = difference(path)
    if lines:
        pytest.fail("\n".join([f"{path.name} tells another story:", *lines]), pytrace=False)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_lines_are_short_enough_to_read_side_by_side(path: Path) -> None:
    assert [line for line in path.read_text().splitlines() if len(line) > WIDTH] == []


_CLUSTER = "cluster clients=alice\n----\n\n"


@pytest.mark.parametrize(
    ("script", "complaint"),
    [
        ("start alice\n----\n", "line 1: a scenario begins with a cluster"),
        (_CLUSTER + "dance alice\n----\n", "no such command: dance"),
        (_CLUSTER + "start mallory\n----\n", "there is no mallory"),
        (_CLUSTER + "start alice loudly\n----\n", "takes"),
        (_CLUSTER + "run fast\n----\n", "not a duration"),
        (_CLUSTER + "start alice\n", "not followed by ----"),
        (_CLUSTER + "----\n", "without a command"),
        (_CLUSTER + "start alice\n----\n", "while things still happen"),
        (_CLUSTER + "run 1s\nhold r1>alice\n----\n", "messages held"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused_by_name(script: str, complaint: str) -> None:
    with pytest.raises(ScriptError, match=complaint):
        perform(script)


def test_a_trace_that_differs_shows_what_happened(tmp_path: Path) -> None:
    path = tmp_path / "story.txt"
    path.write_text(_CLUSTER + "start alice\nsettle\n----\nalice > r1        hello?\n")
    assert "-alice > r1        hello?" in difference(path)
    rewrite(path)
    assert difference(path) == []
