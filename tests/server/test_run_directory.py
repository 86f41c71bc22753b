"""Where the processes of a node meet."""

import shutil
from pathlib import Path

import pytest

from roskva.server.processes import run_directory


def test_what_a_killed_node_left_is_gone(tmp_path: Path) -> None:
    (tmp_path / "run/pipeline").mkdir(parents=True)
    with run_directory(tmp_path) as path:
        assert list(path.iterdir()) == []
    assert list(tmp_path.iterdir()) == []


def test_what_its_pipeline_still_writes_keeps_no_node_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = shutil.rmtree

    def remove_and_written_anew(path: Path, ignore_errors: bool) -> None:
        remove(path, ignore_errors)
        (path / "pipeline").mkdir(parents=True)

    monkeypatch.setattr(shutil, "rmtree", remove_and_written_anew)
    with run_directory(tmp_path) as path:
        assert path.is_dir()
