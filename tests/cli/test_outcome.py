"""One table of exit codes for all commands."""

import errno

import pytest
import typer

from roskva.cli.outcome import NodeRefused, sentences
from roskva.errors import BadConfig, BadInput, Damaged, StorageUnavailable, Unavailable
from roskva.feed.base import Locked


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (NodeRefused("no"), 1),
        (Damaged("not what was written"), 1),
        (BadInput("no"), 2),
        (BadConfig("no"), 2),
        (FileNotFoundError(errno.ENOENT, "No such file", "data"), 2),
        (NotADirectoryError(errno.ENOTDIR, "Not a directory", "data"), 2),
        (PermissionError(errno.EACCES, "Permission denied", "data"), 2),
        (Unavailable("later"), 3),
        (StorageUnavailable("full"), 3),
        (Locked("in use"), 3),
        (OSError(errno.ENOSPC, "No space left on device"), 3),
        (OSError(errno.EIO, "Input/output error"), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_an_error_is_a_sentence_and_a_code(
    error: BaseException, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, sentences():
        raise error
    assert ended.value.exit_code == code
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == ("" if code == 130 else f"roskva: {error}\n")


def test_a_reader_that_has_seen_enough_is_no_error_of_ours() -> None:
    with pytest.raises(BrokenPipeError), sentences():
        raise BrokenPipeError
