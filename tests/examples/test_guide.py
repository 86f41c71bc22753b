"""The programs in docs/client.md run as they stand, against a node."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from tests.serving.nodes import Node

import roskva

GUIDE: Final = (Path(__file__).parents[2] / "docs/client.md").read_text()
PROGRAMS: Final = re.findall(r"^```py\n(.*?)^```$", GUIDE, re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_program_runs_to_its_end(program: str, node: Node) -> None:
    program = program.replace("localhost:7600", f"127.0.0.1:{node.port}")
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


def test_every_public_event_is_explained() -> None:
    events = [kind.__name__ for kind in roskva.ClientEvent.__args__]
    assert [name for name in events if f"| `{name}` |" not in GUIDE] == []
