"""A backup of a node that goes on serving, and what is restored from it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.serving.conftest import StartNode
from tests.serving.nodes import Node


def roskva(*arguments: str | Path) -> str:
    command = [sys.executable, "-m", "roskva", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("flags", [(), ("--registrars", "1", "--matchers", "2")])
def test_a_node_is_backed_up_while_it_serves(
    start_node: StartNode, flags: tuple[str, ...], tmp_path: Path
) -> None:
    node = start_node(*flags)
    node.publish("backed-up/x", 7)
    roskva("backup", node.data, tmp_path / "backup")
    node.publish("backed-up/x", 8)
    assert node.read("backed-up/x") == 8
    restored = Node(tmp_path / "restored", *flags)
    told = roskva("restore", tmp_path / "backup", restored.data)
    assert told.count("a new epoch") == 4
    roskva("feed", "verify", restored.data)
    try:
        for epochs_begin in (True, False):
            restored.start()
            assert restored.read("backed-up/x") == (None if epochs_begin else 9)
            restored.publish("backed-up/x", 9)
            restored.stop()
        said = restored.said()
    finally:
        restored.end()
    assert said.count("as it was restored from a backup") == 1
    assert "begin a new epoch and tell their clients, once, to look again" in said
    assert "damage" not in said
    assert "has lost" not in said
    told = roskva("feed", "verify", restored.data)
    assert told.count("restored from a backup") == 4
    assert "damaged" not in told
