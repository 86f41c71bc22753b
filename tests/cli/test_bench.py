"""`roskva bench`: what it finds, what it says; the measuring itself is not tested here."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.__main__ import BENCHMARKS, module
from benchmarks.record import Record
from benchmarks.result import Result, Settings
from benchmarks.serving.servers import runs
from tests.serving.nodes import await_that
from typer.testing import CliRunner

from roskva.cli.main import application

app = application(["bench"])


def test_the_list_has_every_benchmark() -> None:
    told = CliRunner().invoke(app, ["bench", "--list"])
    assert told.exit_code == 0
    assert [line.split()[0] for line in told.stdout.splitlines()] == list(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_every_benchmark_says_how_it_measures(name: str) -> None:
    assert callable(module(name).run)
    assert module(name).__doc__


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    told = CliRunner().invoke(app, ["bench", "serving", "nonsense"])
    assert told.exit_code == 2
    assert "No such benchmark: nonsense. There are " in told.output
    assert "serving" in told.output


def test_a_family_is_all_of_its_benchmarks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    measured = []
    for name in BENCHMARKS:

        def measure(settings: Settings, name: str = name) -> list[Result]:
            measured.append(name)
            return []

        monkeypatch.setattr(module(name), "run", measure)
    told = CliRunner().invoke(app, ["bench", "sources", "core", "--json", str(tmp_path / "json")])
    assert told.exit_code == 0
    assert measured == ["core", *(name for name in BENCHMARKS if name.startswith("sources."))]


def test_results_that_are_to_be_reported_need_a_place(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text("{}")
    told = CliRunner().invoke(app, ["bench", "--from", str(results)])
    assert told.exit_code == 2
    assert "--report" in told.output


def test_what_is_no_results_is_said_to_be_none(tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    results.write_text("{}")
    told = CliRunner().invoke(app, ["bench", "--from", str(results), "--report", str(tmp_path)])
    assert told.exit_code == 2
    assert "results.json" in told.output


def test_one_that_breaks_does_not_take_the_others_along(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def breaks(settings: Settings) -> list[Result]:
        raise RuntimeError("the server stalled")

    monkeypatch.setattr(module("core"), "run", breaks)
    monkeypatch.setattr(module("store"), "run", lambda settings: [Result("rows", 1.0, "s")])
    told = CliRunner().invoke(app, ["bench", "core", "store", "--report", str(tmp_path)])
    assert told.exit_code == 1
    assert "Failed, as was shown above: core." in told.output
    page = (tmp_path / "README.md").read_text()
    assert "## Core\n\nFailed: `RuntimeError: the server stalled`" in page
    assert "| rows | 1 s |" in page


def test_who_interrupts_keeps_what_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(settings: Settings) -> list[Result]:
        raise KeyboardInterrupt

    found, json, page = [Result("cost", 1.0, "µs")], tmp_path / "results.json", tmp_path / "page"
    monkeypatch.setattr(module("core"), "run", lambda settings: found)
    monkeypatch.setattr(module("store"), "run", interrupted)
    told = CliRunner().invoke(
        app, ["bench", "core", "store", "--json", str(json), "--report", str(page)]
    )
    assert told.exit_code == 130
    assert Record.load(json).results == {"core": found}
    assert not page.exists()


FOREVER = """
import subprocess, sys
sys.path.insert(0, {source!r})
from benchmarks import __main__ as frame, core

def run(settings):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    child.wait()

core.run = run
sys.argv = ["roskva", "bench", "core"]
from roskva.cli.main import main
main()
"""


def test_ctrl_c_leaves_no_process() -> None:
    source = str(Path(__file__).parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", FOREVER.format(source=source)], stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
    await_that(lambda: not runs(child), 60.0)
