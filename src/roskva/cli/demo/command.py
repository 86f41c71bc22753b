"""`roskva demo`: a real node, four kinds of client, and what happens when processes die."""

import asyncio
import logging
import os
import tempfile
from pathlib import Path

import typer
from rich.console import Console

from roskva.cli.demo.crashes import show_crashes, three_programs
from roskva.cli.demo.node import PATIENCE_S, DemoNode
from roskva.cli.demo.pipeline import show_pipeline, write_settings
from roskva.cli.options import command
from roskva.cli.outcome import FAILED, OK
from roskva.pipeline.machine import SHORT_LIVED_JVM, what_is_missing


@command("roskva demo", codes="")
def demo() -> None:
    """See Roskva at work: a node in a temporary directory, published to, and killed in parts."""
    console = Console(highlight=False)
    logging.getLogger("roskva").setLevel(logging.ERROR)  # the demo itself says what goes wrong
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JVM)
    with tempfile.TemporaryDirectory(prefix="roskva-demo-") as directory:
        try:
            held = asyncio.run(_run(console, Path(directory)))
        except TimeoutError:
            console.print(
                f"[red]Nothing happened for {PATIENCE_S:.0f} seconds.[/] If this machine is not "
                "very busy, try [bold]roskva doctor[/]."
            )
            raise typer.Exit(FAILED) from None
    raise typer.Exit(OK if held else FAILED)


async def _run(console: Console, directory: Path) -> bool:
    """Whether every client knew what it should."""
    console.print(
        "[bold]Roskva tells clients that what they cache has changed:[/] “the latest version "
        "is now N”. It keeps no queues: whoever was away is told the latest version, once.\n"
    )
    missing = what_is_missing()
    settings, incoming = write_settings(directory)
    async with (
        DemoNode(console, directory / "data", settings) as node,
        three_programs(console, node) as viewers,
    ):
        held = await show_crashes(console, node, viewers)
        if missing is None:
            held &= await show_pipeline(console, node, incoming)
    if missing is not None:
        console.print(
            "[yellow]Left out: the pipeline[/], which publishes what other programs write, and "
            "audits all clients. It runs on Apache Spark, and something is missing for that."
        )
        console.print(missing, style="yellow", markup=False)
        console.print()
    if held:
        console.print("[bold green]Every client knew the latest version at the end.[/]")
        console.print(
            "Start a node of your own with [bold]roskva serve[/]; the README goes on from here."
        )
    return held
