"""What `roskva watch --state` remembers, and when it forgets."""

from pathlib import Path

import pytest

from roskva.cli.watch import WatchLine, WatchState, line_of
from roskva.core.effects import Notify, NotifyUnknown
from roskva.errors import BadInput
from roskva.model import MAX_VERSION


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "watched"


def test_the_last_word_on_each_object_counts(file: Path) -> None:
    with WatchState(file) as state:
        state.remember(line_of(Notify("a/x", 1, 7)))
        state.remember(line_of(Notify("a/y", MAX_VERSION, 7, b"payload")))
        state.remember(line_of(Notify("a/z", 3, 7)))
        state.remember(line_of(Notify("a/x", 2, 7)))
        state.remember(line_of(NotifyUnknown("a/z", 8)))
    with WatchState(file) as state:
        assert state.version("a/x") == 2
        assert state.version("a/y") == MAX_VERSION
        assert state.version("a/z") is None
        assert state.version("a/never") is None
    assert "payload" not in file.read_text()


def test_a_torn_last_line_is_as_if_never_written(file: Path) -> None:
    with WatchState(file) as state:
        state.remember(line_of(Notify("a/x", 1, 7)))
        state.remember(line_of(Notify("a/x", 2, 7)))
    file.write_bytes(file.read_bytes()[:-5])
    with WatchState(file) as state:
        assert state.version("a/x") == 1
        state.remember(line_of(Notify("a/x", 3, 7)))
    with WatchState(file) as state:
        assert state.version("a/x") == 3


@pytest.mark.parametrize(
    "content",
    [
        "my diary\n",
        '{"object": "x", "version": "1", "epoch": "7"}\n',
        '{"object": "a/x", "version": "-1", "epoch": "7"}\n',
        '{"object": "a/x", "version": "99999999999999999999", "epoch": "7"}\n',
        '{"object": "a/x", "version": "' + "9" * 5000 + '", "epoch": "7"}\n',
    ],
)
def test_somebody_elses_file_is_left_alone(file: Path, content: str) -> None:
    file.write_text(content)
    with pytest.raises(BadInput, match="watched:1: this was not written by"), WatchState(file):
        pass
    assert file.read_text() == content


def test_an_identity_goes_with_what_it_stands_for(file: Path) -> None:
    with WatchState(file) as state:
        identity = state.identity("contacts")
    assert identity is not None
    identity.write_bytes(b"somebody")
    with WatchState(file):
        assert identity.exists()
    file.unlink()
    with WatchState(file):
        assert not identity.exists()


def test_the_file_stays_small_however_much_is_told(file: Path) -> None:
    with WatchState(file) as state:
        for version in range(5000):
            state.remember(line_of(Notify("a/x", version, 7)))
    assert len(file.read_text().splitlines()) < 1100
    with WatchState(file) as state:
        assert state.version("a/x") == 4999
    assert len(file.read_text().splitlines()) == 1


def test_without_a_file_nothing_is_kept() -> None:
    with WatchState(None) as state:
        state.remember(WatchLine("a/x", "1", "7"))
        assert state.identity("a") is None
        assert state.version("a/x") is None


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be used"), WatchState(tmp_path / "no/where"):
        pass
