"""The demo as users see it: what it promises on the screen is what it checks."""

import os
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.cli.real_node import ENVIRONMENT, ROSKVA

from roskva.pipeline.machine import tree, what_is_missing


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
    assert re.search(r"✓ by Spark: [1-9][\d,]*, by itself: 0\n", shown.stdout), shown.stdout


@pytest.mark.verify
@pytest.mark.skipif(what_is_missing() is not None, reason="Spark or Java is missing")
def test_with_its_bridge_stopped_the_demo_says_that_it_was_not_spark() -> None:
    """The ingest stops with it, and goes on when shards have read by themselves."""
    demo = subprocess.Popen(
        [ROSKVA, "demo"],
        env={**ENVIRONMENT, "COLUMNS": "200"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert demo.stdout is not None
    shown, stopped = "", list[int]()
    try:
        for line in demo.stdout:
            shown += line
            if "knows version 1 of all" in line:
                stopped = spark_of(demo.pid)
                signal_all(stopped, signal.SIGSTOP)
            elif "its gap is closed" in line:
                signal_all(stopped, signal.SIGCONT)
        assert demo.wait(600) == 1, shown
    finally:
        signal_all(stopped, signal.SIGCONT)
        demo.kill()
        demo.wait()
        demo.stdout.close()
    assert re.search(r"✗ by Spark: [\d,]+, by itself: [1-9]", shown), shown


def spark_of(demo: int) -> list[int]:
    """The pipeline of its node, and all below."""
    for pid in tree(demo):
        if "roskva.pipeline.child" in Path(f"/proc/{pid}/cmdline").read_text():
            return list(tree(pid))
    raise AssertionError("the demo has no pipeline")


def signal_all(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
