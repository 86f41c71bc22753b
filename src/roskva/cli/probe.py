"""`roskva probe`: measure what users would see."""

import asyncio
import time
from typing import Annotated, Final

import httpx
import msgspec
import typer
from rich.console import Console
from rich.table import Table

from roskva.cli.node import DEFAULT_URL, UrlOption
from roskva.cli.outcome import EXIT_CODES, FAILED, sentences
from roskva.probe.judging import TARGETS_MS, missed, sentence
from roskva.probe.round import Outcome, Target, probe
from roskva.publisher.address import http_url

_EXAMPLES: Final = """Examples:

roskva probe --once

roskva probe --once --json --mqtt-port 1883

roskva probe --interval 10"""


class Round(msgspec.Struct, frozen=True):
    at: float
    kept: bool
    sentence: str
    outcomes: list[Outcome]


def register(app: typer.Typer) -> None:
    app.command("probe", epilog=f"{_EXAMPLES}\n\n{EXIT_CODES}")(command)


def command(
    url: UrlOption = DEFAULT_URL,
    mqtt_port: Annotated[
        int | None, typer.Option(help="Where it speaks MQTT. Not given: MQTT is left out.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="One round, and then the exit code.")
    ] = False,
    interval: Annotated[float, typer.Option(help="Seconds from one round to the next.")] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="A line of JSON per round.")] = False,
) -> None:
    """Be a publisher and a client over each channel, and say which path is hurt.

    Measured are the time to register, to have a publish acknowledged, to be told of it, and to
    catch up after coming back, each on objects of apps of the prober's own. With --once the exit
    code is 1 if a target was missed. It probes nodes without keys.
    """
    with sentences():
        while True:
            began = time.monotonic()
            found = asyncio.run(_round(http_url(url, ""), mqtt_port))
            print(msgspec.json.encode(found).decode()) if json else _show(found)
            if once:
                raise typer.Exit(0 if found.kept else FAILED)
            time.sleep(max(0.0, interval - (time.monotonic() - began)))


async def _round(url: str, mqtt_port: int | None) -> Round:
    target = Target(url, mqtt_port, pipeline=await _has_pipeline(url))
    outcomes = await probe(target)
    kept = not any(missed(outcome) for outcome in outcomes)
    return Round(time.time(), kept, sentence(outcomes), outcomes)


async def _has_pipeline(url: str) -> bool:
    """Whether it runs, or should; a node that does not tell us is not asked for it."""
    try:
        async with httpx.AsyncClient(base_url=url, timeout=5.0) as http:
            status = (await http.get("/v1/status")).raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return False
    return bool(status["pipeline"]["state"] == "running")


def _show(found: Round) -> None:
    table = Table("measured", "took", "target", "path", box=None)
    for outcome in found.outcomes:
        took = "failed" if outcome.seconds is None else f"{outcome.seconds * 1000:,.1f} ms"
        target = f"{TARGETS_MS[outcome.sli]:,.0f} ms"
        style = "red" if missed(outcome) else ""
        table.add_row(outcome.sli, took, target, outcome.path, style=style)
    console = Console(markup=False, highlight=False)
    console.print(table, "", found.sentence)
