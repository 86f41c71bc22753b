"""`make bench`: every benchmark, a table for people and JSON for programs.

python -m benchmarks [NAME …] [--json FILE]
"""

import argparse
import importlib
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.result import NotMeasured, Result

BENCHMARKS = ("core", "feed", "store", "serving", "pipeline", "audit")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results here too")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BENCHMARKS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")

    console = Console()
    results: dict[str, list[Result]] = {}
    for name in arguments.names or BENCHMARKS:
        try:
            with console.status(f"measuring {name} …"):
                results[name] = importlib.import_module(f"benchmarks.{name}").run()
        except NotMeasured as missing:
            console.print(f"[bold]{name}[/] is not measured: {missing}")
        else:
            console.print(table(name, results[name]))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))


def table(title: str, results: list[Result]) -> Table:
    shown = Table(title=title, title_justify="left", title_style="bold")
    shown.add_column("what")
    shown.add_column("measured", justify="right")
    peers = sorted({peer for result in results for peer in result.peers})
    for peer in peers:
        shown.add_column(peer, justify="right")
    shown.add_column("target", justify="right")
    shown.add_column("")
    for result in results:
        sign = "≤" if result.better == "lower" else "≥"
        target = "" if result.target is None else f"{sign} {result.target:,g} {result.unit}"
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[result.met]
        shown.add_row(
            result.name + (f" [dim]({result.note})[/]" if result.note else ""),
            _figure(result.value, result.unit),
            *(
                _figure(result.peers[peer], result.unit) if peer in result.peers else ""
                for peer in peers
            ),
            target,
            verdict,
        )
    return shown


def _figure(value: float, unit: str) -> str:
    digits = ",.0f" if value >= 1000 else ",.4g"
    return f"{value:{digits}} {unit}"


if __name__ == "__main__":
    main()
