"""The command line: one file per group of commands, put together here.

Only the file that the named command is in is loaded: whoever publishes in a loop should not wait
for the server and the simulator.
"""

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Final

import typer

from roskva import __version__

COMMANDS: Final = {
    "serve": "serve",
    "publish": "publish",
    "reset": "publish",
    "watch": "watch",
    "status": "status",
    "explain": "explain",
    "probe": "probe",
    "doctor": "doctor",
    "config": "config",
    "certs": "certs",
    "token": "token",
    "backup": "backup",
    "restore": "backup",
    "feed": "feed",
    "pipeline": "pipeline",
    "sim": "sim",
    "job": "job",
    "bench": "bench",
    "demo": "demo.command",
}
"""And the file of each. A file has a function `register` that adds its commands."""


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
        import_module(f"roskva.cli.{file}").register(app)
    return app


def version(
    show: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if show:
        typer.echo(f"roskva {__version__}")
        raise typer.Exit


def main() -> None:
    named = sys.argv[1] if len(sys.argv) > 1 else ""
    app = application([COMMANDS[named]] if named in COMMANDS else COMMANDS.values())
    app()
