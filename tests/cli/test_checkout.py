"""What comes with the source only: what `roskva bench` and half of `roskva sim` are made of."""

from pathlib import Path

import pytest
from typer.testing import CliRunner
from verification.mutants import MUTANTS

from roskva.cli import checkout
from roskva.cli.checkout import from_checkout
from roskva.cli.main import application

app = application(["sim", "bench"])


@pytest.mark.parametrize(
    ("command", "instead"),
    [
        (["bench"], "make bench"),
        (["sim", "--mutants"], "make verify"),
        (["sim", "--exhaustive"], "make verify"),
    ],
)
def test_without_the_source_it_says_where_to_get_it(
    command: list[str], instead: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkout, "SOURCE", tmp_path)
    told = CliRunner().invoke(app, command)
    assert told.exit_code == 2
    assert "come with Roskva's source" in told.output
    assert f"clone the repository, and run `{instead}` there" in told.output


def test_without_the_source_clusters_are_still_simulated(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkout, "SOURCE", tmp_path)
    told = CliRunner().invoke(app, ["sim", "--seed", "1"])
    assert told.exit_code == 0
    assert "holds" in told.output


def test_what_is_loaded_is_the_module_that_tests_import() -> None:
    assert from_checkout("verification.mutants", "Planted bugs", "make verify").MUTANTS is MUTANTS
