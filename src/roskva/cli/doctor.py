"""`roskva doctor`: is this machine fit for a node, and if not, what to do?"""

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from roskva.cli.checkup import check_up
from roskva.cli.finding import Finding
from roskva.cli.outcome import FAILED, sentences
from roskva.config import load

_COLOURS = {"ok": "green", "warn": "yellow", "bad": "red"}


def register(app: typer.Typer) -> None:
    app.command(
        epilog="Examples: roskva doctor\n\n"
        "roskva doctor --config roskva.toml --json | jq '.[] | select(.verdict != \"ok\")'\n\n"
        "Exit codes: 0 nothing is bad (there may be warnings), 1 something is bad, 2 bad usage or "
        "configuration."
    )(doctor)


def doctor(
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data directory.", show_default=False),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A file of settings.", show_default=False),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Look at what a node needs of this machine; say what is wrong and how to fix it.

    It measures how long the disk takes to sync, for which it writes a temporary file beside the
    data. Safe beside a running node.
    """
    with sentences():
        settings = load(config, {"node.data": None if data is None else str(data)})
        with Console(stderr=True).status("looking …"):
            findings = list(check_up(settings))
    if json:
        print(msgspec.json.encode(findings).decode())
    else:
        show(findings)
    raise typer.Exit(FAILED if any(finding.verdict == "bad" for finding in findings) else 0)


def show(findings: list[Finding]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for finding in findings:
        colour = _COLOURS[finding.verdict]
        table.add_row(f"[{colour}]{finding.verdict}[/]", finding.what, escape(finding.found))
        if finding.do:
            table.add_row("", "", f"[{colour}]→[/] {escape(finding.do)}")
    Console(highlight=False).print(table)
    count = {verdict: sum(f.verdict == verdict for f in findings) for verdict in _COLOURS}
    print(f"\n{count['ok']} ok, {count['warn']} to look at, {count['bad']} bad")
