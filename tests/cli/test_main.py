"""How commands are found, and what they cost to start."""

import os
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from roskva import __version__
from roskva.cli.main import COMMANDS, application


def names(app: typer.Typer) -> set[str]:
    return set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]  # it is a group


def test_every_command_is_found_in_its_file() -> None:
    for file in set(COMMANDS.values()):
        assert names(application([file])) == {name for name in COMMANDS if COMMANDS[name] == file}
    assert names(application()) == set(COMMANDS)


def test_version() -> None:
    assert CliRunner().invoke(application([]), ["--version"]).stdout == f"roskva {__version__}\n"


@pytest.mark.parametrize("command", ["publish", "status", "watch"])
def test_a_small_command_does_not_load_the_server(command: str) -> None:
    loads = (
        "import sys\n"
        "from roskva.cli.main import COMMANDS, application\n"
        f"application([COMMANDS[{command!r}]])\n"
        "print([name for name in ('litestar', 'pyarrow', 'rocksdict', 'roskva.simulation')"
        " if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str) -> None:
    words = {
        "_ROSKVA_COMPLETE": f"complete_{shell}",
        "COMP_WORDS": "roskva pub",
        "COMP_CWORD": "1",
        "_TYPER_COMPLETE_ARGS": "roskva pub",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
    }
    done = subprocess.run(
        [f"{sys.prefix}/bin/roskva"], env={**os.environ, **words}, capture_output=True, text=True
    )
    assert "publish" in done.stdout
