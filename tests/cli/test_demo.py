"""The demo as users see it: what it promises on the screen is what it checks."""

import re
import subprocess

import pytest
from tests.cli.real_node import ENVIRONMENT, ROSKVA

from roskva.pipeline.machine import what_is_missing


def demonstrated(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROSKVA, "demo"],
        env={**ENVIRONMENT, "COLUMNS": "200", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=600,
    )


def test_without_java_the_demo_says_what_it_leaves_out_and_how_to_get_it() -> None:
    shown = demonstrated(JAVA_HOME="/nowhere")
    assert shown.returncode == 0, shown.stdout
    assert "Left out: the pipeline" in shown.stdout
    assert "install" in shown.stdout
    # Once as a rule; that it may be more is in the nature of messages.
    assert re.search(r"told (once|twice|3 times), not 100 times", shown.stdout), shown.stdout
    assert "Every client knew the latest version" in shown.stdout


@pytest.mark.verify
@pytest.mark.skipif(what_is_missing() is not None, reason="Spark or Java is missing")
def test_with_the_pipeline_its_gap_closes_and_nobody_is_stale() -> None:
    shown = demonstrated()
    assert shown.returncode == 0, shown.stdout
    assert "its gap is closed" in shown.stdout
    assert "\n    0 stale" in shown.stdout
