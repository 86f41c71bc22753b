"""The stages of made-up traces, as a node would have left them."""

from pathlib import Path

import pytest
from benchmarks.thialfi.stages import mean_stages_ms
from benchmarks.traces import START_US, write_traces

from roskva.feed.trace import DIRECTORY, Trace
from roskva.model import Update


def test_the_means_are_those_of_the_stages(tmp_path: Path) -> None:
    note(tmp_path, 1, published=0, appended=2000, matched=2100, sent=2400, acked=3400)
    note(tmp_path, 2, published=0, appended=4000, matched=4300, sent=4400, acked=4400)
    assert mean_stages_ms(tmp_path) == pytest.approx(
        {"appended": 3.0, "matched": 0.2, "sent": 0.2, "acked": 0.5}
    )


def test_an_update_that_nobody_acked_is_left_out(tmp_path: Path) -> None:
    note(tmp_path, 1, published=0, appended=2000, matched=2100, sent=2400, acked=3400)
    note(tmp_path, 2, published=0, appended=900_000, matched=900_100)
    assert mean_stages_ms(tmp_path)["appended"] == pytest.approx(2.0)


def test_the_last_ack_counts(tmp_path: Path) -> None:
    write_traces(tmp_path, 50, clients=1, bridged=False)
    of_one = mean_stages_ms(tmp_path)["acked"]
    write_traces(tmp_path / "more", 50, clients=20, bridged=False)
    assert mean_stages_ms(tmp_path / "more")["acked"] > of_one


def note(data: Path, version: int, **stages: int) -> None:
    trace = Trace(data / DIRECTORY / f"process-{version}", 1, START_US)
    for stage, at_us in stages.items():
        trace.write([Update("app/x", version, stage, published_at=START_US + at_us)], START_US)
    trace.close(START_US)
