"""The command line: one file per group of commands, put together here.

Only the file that the named command is in is loaded: whoever publishes in a loop should not wait
for the server and the simulator.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import typer
from typer import Option

from roskva import __version__
from roskva.cli.options import add_commands

_FILES: Final = (
    *("serve", "publish", "watch", "status", "explain", "probe", "doctor", "config", "certs"),
    *("token", "backup", "feed", "pipeline", "source", "sim", "job", "bench", "demo.command"),
)
COMMANDS: Final = {
    **{file.partition(".")[0]: file for file in _FILES},
    "reset": "publish",
    "restore": "backup",
}
"""And the file of each. A file with a group of commands has an `app` of its own."""


def application(files: Iterable[str] = COMMANDS.values()) -> typer.Typer:
    app = typer.Typer(
        name="roskva",
        help="Tell clients, reliably and at once, that the data they cache has changed.",
        no_args_is_help=True,
        rich_markup_mode="markdown",
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(version)
    for file in dict.fromkeys(files):
        module = import_module(f"roskva.cli.{file}")
        add_commands(app, module.__name__)
        if hasattr(module, "app"):
            app.add_typer(module.app, name=file)
    return app


def version(
    show: bool = Option(False, "--version", help="Show the version and exit."),
) -> None:
    if show:
        typer.echo(f"roskva {__version__}")
        raise typer.Exit


def main() -> None:
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    app = application([COMMANDS[named]] if named in COMMANDS else COMMANDS.values())
    app()
