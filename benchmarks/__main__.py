"""`make bench`: every benchmark, a table for people and JSON for programs.

python -m benchmarks [NAME …] [--json FILE]
"""

import argparse
import importlib
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from benchmarks.result import Result

BENCHMARKS = ("core", "feed", "store")


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
        with console.status(f"measuring {name} …"):
            results[name] = importlib.import_module(f"benchmarks.{name}").run()
        console.print(table(name, results[name]))
    if arguments.json:
        arguments.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))


def table(title: str, results: list[Result]) -> Table:
    shown = Table(title=title, title_justify="left", title_style="bold")
    shown.add_column("what")
    shown.add_column("measured", justify="right")
    shown.add_column("target", justify="right")
    shown.add_column("")
    for result in results:
        sign = "≤" if result.better == "lower" else "≥"
        target = "" if result.target is None else f"{sign} {result.target:,g} {result.unit}"
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[result.met]
        shown.add_row(
            result.name + (f" [dim]({result.note})[/]" if result.note else ""),
            f"{result.value:,.4g} {result.unit}",
            target,
            verdict,
        )
    return shown


if __name__ == "__main__":
    main()
