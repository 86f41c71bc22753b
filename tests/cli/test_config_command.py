"""`roskva config`: a file to start from, and a word on one that was written."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from roskva.cli import config
from roskva.config import Config, load

app = typer.Typer()
app.add_typer(config.app, name="config")


@pytest.fixture(autouse=True)
def in_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["config", *words], env={"COLUMNS": "120"})


def test_what_init_writes_check_finds_fine() -> None:
    assert run("init").exit_code == 0
    result = run("check")
    assert result.exit_code == 0
    assert result.stdout.endswith("roskva.toml is fine.\n")
    assert load(Path("roskva.toml"), None, {}) == Config()


def test_init_overwrites_only_when_told_to() -> None:
    Path("site.toml").write_text("precious")
    refused = run("init", "site.toml")
    assert refused.exit_code == 2
    assert "site.toml exists" in refused.stderr
    assert Path("site.toml").read_text() == "precious"
    assert run("init", "site.toml", "--force").exit_code == 0
    assert run("check", "site.toml").exit_code == 0


def test_init_where_nothing_can_be_written() -> None:
    result = run("init", "no/where.toml")
    assert result.exit_code == 2
    assert "cannot be written" in result.stderr


def test_check_says_what_holds() -> None:
    Path("roskva.toml").write_text(
        '[node]\nmqtt_port = "off"\n[apps.home]\nversions = "assigned"\n'
    )
    rows = [line.split() for line in run("check").stdout.splitlines()]
    assert ["node.port", "7600"] in rows
    assert ["node.mqtt_port", "off", "set"] in rows
    assert ["apps.home.versions", "assigned", "set"] in rows
    assert ["feed.retention_bytes", "not", "set"] in rows
    said = json.loads(run("check", "--json").stdout)
    assert said["node"]["mqtt_port"] is None
    assert said["node"]["data"] == "roskva-data"
    assert said["apps"]["home"]["versions"] == "assigned"


def test_check_names_everything_wrong() -> None:
    Path("roskva.toml").write_text("[node]\nprot = 1\n[feed]\nsegment_bytes = 1\n")
    result = run("check")
    assert (result.exit_code, result.stdout) == (2, "")
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [
        "roskva.toml:2",
        "roskva.toml:4",
    ]


def test_check_of_nothing() -> None:
    result = run("check")
    assert result.exit_code == 2
    assert "roskva config init" in result.stderr
