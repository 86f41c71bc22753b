"""The prober against real nodes, whole ones and hurt ones."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.serving.nodes import ROSKVA, Node

from roskva.probe.judging import TARGETS_MS, missed, sentence
from roskva.probe.round import Outcome


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path / "data")
    yield node
    node.end()


def probed(node: Node, expected: int) -> tuple[dict[str, Any], str]:
    """What was measured, by SLI, and the sentence."""
    result = subprocess.run(
        [
            *(ROSKVA, "probe", "--once", "--json", "--url", node.url),
            *("--mqtt-port", str(node.mqtt_port)),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == expected, result.stdout + result.stderr
    found = json.loads(result.stdout)
    return {outcome["sli"]: outcome for outcome in found["outcomes"]}, found["sentence"]


def hurt(outcomes: dict[str, Any]) -> set[str]:
    return {sli for sli, outcome in outcomes.items() if outcome["seconds"] is None}


def test_a_whole_node_fails_nothing_and_users_are_not_counted_with_it(node: Node) -> None:
    node.start("--versions", "assigned")
    outcomes, _ = probed(node, 0)
    assert set(outcomes) == set(TARGETS_MS) - {"notify-pipeline"}
    assert not hurt(outcomes)
    assert node.counter("applied") == 0
    assert node.counter("probe_applied") > 0


def test_a_registrar_that_hangs_hurts_every_path(node: Node) -> None:
    node.start("--registrars", "1")
    node.signal("registrar-0", signal.SIGSTOP)
    outcomes, said = probed(node, 1)
    assert hurt(outcomes) == set(outcomes)
    assert "register fails" in said


def test_a_matcher_that_hangs_is_noticed_and_named(node: Node) -> None:
    node.start("--matchers", "1", "--registrars", "1")
    node.signal("state-0", signal.SIGSTOP)
    outcomes, said = probed(node, 1)
    assert "notify-websocket" in hurt(outcomes)
    assert "feed → matcher" in said


def test_nothing_there_is_noticed(node: Node) -> None:
    outcomes, _ = probed(node, 1)
    assert hurt(outcomes) == set(outcomes)


def test_a_feed_whose_disk_is_full_hurts_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = tmp_path / "full"
    monkeypatch.setenv("FULL_WHILE", str(full))
    node = Node(tmp_path / "data", command=(sys.executable, "-m", "tests.probe.full_disk"))
    node.start()
    try:
        full.touch()
        outcomes, said = probed(node, 1)
        assert "publish" in hurt(outcomes)
        assert "register" not in hurt(outcomes)
        assert "publisher → feed" in said
        full.unlink()
        assert not hurt(probed(node, 0)[0])
    finally:
        node.end()


def test_the_sentence_names_what_was_too_slow() -> None:
    slow = Outcome("publish", "publisher → feed", 0.4)
    good = Outcome("register", "client → registrar", 0.1)
    assert missed(slow)
    assert not missed(good)
    assert sentence([good]) == "All 1 paths are well."
    assert sentence([good, slow]) == "publish took 400 ms of 250 (publisher → feed)."
