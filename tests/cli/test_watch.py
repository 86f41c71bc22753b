"""`roskva watch`, where no node is needed."""

import pytest
import typer
from typer.testing import CliRunner

from roskva.cli import watch
from roskva.cli.options import add_commands

app = typer.Typer()
add_commands(app, watch.__name__)


def test_nobody_there_is_exit_code_3(nobody: str) -> None:
    result = CliRunner().invoke(app, ["contacts/alice", "--url", nobody])
    assert result.exit_code == 3
    assert f"no node answers at {nobody}" in result.stderr


@pytest.mark.parametrize(
    "words",
    [[], ["alice"], ["contacts/alice", "--count", "0"], ["contacts/alice", "--url", "nowhere"]],
)
def test_bad_usage_is_exit_code_2(words: list[str]) -> None:
    assert CliRunner().invoke(app, words).exit_code == 2


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (b"21.5", "21.5"),
        ("grün".encode(), "grün"),
        (b"two\nlines", "'two\\nlines'"),
        (b"\xff\x00", "2 bytes: ff 00"),
    ],
)
def test_payloads_are_shown_as_well_as_they_can_be(payload: bytes, text: str) -> None:
    assert watch.readable(payload) == text
