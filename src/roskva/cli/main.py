"""The command line: one file per group of commands, put together here."""

import typer

from roskva import __version__
from roskva.cli import backup, config, demo, doctor, feed, publish, serve, sim, status, watch

app = typer.Typer(
    name="roskva",
    help="Tell clients, reliably and at once, that the data they cache has changed.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
app.command("sim")(sim.sim)
app.add_typer(feed.app, name="feed")
for group in (serve, publish, watch, status, doctor, config, backup, demo):
    group.register(app)


@app.callback(invoke_without_command=True)
def version(
    show: bool = typer.Option(False, "--version", help="Show the version and exit."),
) -> None:
    if show:
        typer.echo(f"roskva {__version__}")
        raise typer.Exit


def main() -> None:
    app()
