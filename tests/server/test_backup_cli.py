"""`roskva backup` and `roskva restore`, as somebody types them."""

from pathlib import Path

import pytest
from tests.server.history import apply_in, open_feed, publish
from typer.testing import CliRunner, Result

from roskva.cli.main import application
from roskva.server.backup import MANIFEST
from roskva.server.directory import DataDirectory


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with DataDirectory.open_or_create(tmp_path / "data", 1).own(0) as shard:
        log = open_feed(shard.path)
        publish(log, 10, 20)
        log.close()
        apply_in(shard.path, 10, 1)
    return tmp_path / "data"


def roskva(*arguments: str | Path) -> Result:
    return CliRunner().invoke(application(["backup"]), [str(argument) for argument in arguments])


def test_there_and_back_again(data: Path, tmp_path: Path) -> None:
    done = roskva("backup", data, tmp_path / "backup")
    assert done.exit_code == 0
    assert done.stdout.startswith("1 shards, ")
    done = roskva("restore", tmp_path / "backup", tmp_path / "new")
    assert done.exit_code == 0
    assert f"{tmp_path / 'new'} is as it was at " in done.stdout
    assert "shard 0: 1 updates to catch up with from the feed; a new epoch" in done.stdout
    done = roskva("restore", tmp_path / "backup", tmp_path / "b", "--nothing-published-since")
    assert "from the feed; its epoch goes on" in done.stdout


def test_errors_are_a_sentence_and_an_exit_code(data: Path, tmp_path: Path) -> None:
    roskva("backup", data, tmp_path / "backup")
    done = roskva("backup", data, tmp_path / "backup")
    assert (done.exit_code, done.stdout) == (2, "")
    expected = f"roskva: {tmp_path / 'backup'} is not empty: name an empty or a new directory\n"
    assert done.stderr == expected

    done = roskva("backup", tmp_path / "nowhere", tmp_path / "other")
    assert done.exit_code == 2
    assert "is no data directory of Roskva" in done.stderr

    with DataDirectory.open(data).own(0):
        done = roskva("backup", data, tmp_path / "other")
    assert done.exit_code == 3
    assert "in use by another process" in done.stderr

    (tmp_path / "backup" / MANIFEST).write_bytes(b"{}")
    done = roskva("restore", tmp_path / "backup", tmp_path / "new")
    assert done.exit_code == 1
    assert "is not what was written" in done.stderr
