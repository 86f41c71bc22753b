"""What `roskva sim --mutants` and `--exhaustive` do, and print."""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from verification.exploration import search
from verification.exploration.bounds import CONFIGURATIONS
from verification.mutants import MUTANTS, hunt, on_all_cores

console = Console()
Bar = Callable[[str], Progress]
"""A bar of progress, by what it counts."""


def _results(bar: Progress, *works: tuple[Callable[[Any], Any], Sequence[Any]]) -> list[list[Any]]:
    with bar:
        task = bar.add_task("", total=sum(len(items) for _, items in works), found="")
        return [on_all_cores(*work, lambda: bar.update(task, advance=1)) for work in works]


def report_mutants(bar_of: Bar, json: bool) -> int:
    started = time.monotonic()
    (hunts,) = _results(bar_of("mutants"), (hunt, MUTANTS))
    caught = sum(hunt.seed is not None for hunt in hunts)
    if json:
        sys.stdout.buffer.write(msgspec.json.encode(hunts) + b"\n")
    else:
        table = Table("planted bug", "caught by seed", "as", title_justify="left")
        for found in hunts:
            seed = "[red]lived[/]" if found.seed is None else str(found.seed)
            table.add_row(found.mutant, seed, found.violation or "")
        console.print(table)
        elapsed = time.monotonic() - started
        console.print(f"[bold]{caught} of {len(hunts)} caught[/] in {elapsed:.0f} s")
    return 0 if caught == len(hunts) else 1


def report_exploration(bar_of: Bar, json: bool) -> int:
    started = time.monotonic()
    explorations, hunts = _results(
        bar_of("clusters and planted bugs"),
        (search.explore, CONFIGURATIONS),
        (search.hunt_within_bounds, search.WITHIN_BOUNDS),
    )
    if json:
        result = {"explorations": explorations, "mutants": hunts}
        sys.stdout.buffer.write(msgspec.json.encode(result) + b"\n")
    else:
        _print_explorations(explorations)
        _print_hunted(hunts)
        console.print(f"in {time.monotonic() - started:.0f} s")
    broken = any(exploration.violations for exploration in explorations)
    lived = any(not hunted.exploration.violations for hunted in hunts)
    return 1 if broken or lived else 0


def _print_hunted(hunts: list[search.Hunted]) -> None:
    table = Table("planted bug", "states", "shows as", title_justify="left")
    for hunted in hunts:
        found = hunted.exploration.violations
        shown = f"{found[0].text}, after {len(found[0].trace)} steps" if found else "[red]lived[/]"
        table.add_row(hunted.mutant, f"{hunted.exploration.states:,}", shown)
    console.print(table)
    caught = sum(bool(hunted.exploration.violations) for hunted in hunts)
    console.print(f"[bold]{caught} of {len(hunts)} planted bugs caught[/]")


def _print_explorations(explorations: list[search.Exploration]) -> None:
    table = Table("bounds", "states", "transitions", "seconds", "violations")
    for exploration in explorations:
        bounds = exploration.bounds
        table.add_row(
            f"[bold]{bounds.name}[/]\n{bounds.described()}",
            f"{exploration.states:,}",
            f"{exploration.transitions:,}",
            f"{exploration.seconds:.1f}",
            str(len(exploration.violations)),
        )
    console.print(table)
    states = sum(exploration.states for exploration in explorations)
    transitions = sum(exploration.transitions for exploration in explorations)
    console.print(f"[bold]{states:,} states, {transitions:,} transitions[/], every frontier empty")
    if not any(exploration.violations for exploration in explorations):
        console.print("from every state everybody becomes fresh once the faults stop")
    for exploration in explorations:
        for found in exploration.violations:
            console.print(f"[red]{exploration.bounds.name}: {found.text}[/]")
            for step in found.trace:
                console.print(f"  {step}")
