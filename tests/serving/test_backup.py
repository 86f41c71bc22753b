"""A backup of a node that goes on serving, and what is restored from it."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.serving.conftest import StartNode


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
    told = roskva("restore", tmp_path / "backup", tmp_path / "restored")
    assert told.count("a new epoch") == 4
