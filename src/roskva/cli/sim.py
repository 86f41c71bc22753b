"""`roskva sim`: break simulated clusters, and see that they hold."""

import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from typer import Option

from roskva.cli.checkout import from_checkout
from roskva.cli.options import command
from roskva.cli.outcome import progress
from roskva.simulation.campaign import SOMETIMES, Summary, run_seeds, run_tape, shrink, world_of
from roskva.simulation.tape import DEFAULT_MINUTES, FAULTS_OF, Profile, Tape, kinds_of, tape_of
from roskva.simulation.world import Report

console = Console()
CORES = os.cpu_count() or 1


@command()
def sim(
    seeds: Annotated[int, Option(min=1, help="How many clusters to break.")] = 100,
    seed_start: Annotated[int, Option(min=0, help="The first seed.")] = 0,
    minutes: Annotated[
        float, Option(min=0.5, help="Simulated minutes of faults per seed.")
    ] = DEFAULT_MINUTES,
    profile: Annotated[
        Profile, Option(help="What the clusters are: a node, or one whose app has a change source.")
    ] = "node",
    seed: Annotated[int | None, Option(min=0, help="Run this seed alone.")] = None,
    trace: Annotated[bool, Option(help="With --seed or --tape: print what happened.")] = False,
    tape: Annotated[
        Path | None, Option(exists=True, dir_okay=False, help="Replay a fault tape.")
    ] = None,
    shrink_tape: Annotated[
        Path | None,
        Option("--shrink", exists=True, dir_okay=False, help="Leave out all faults it can."),
    ] = None,
    mutants: Annotated[bool, "Plant known bugs: each must be caught."] = False,
    exhaustive: Annotated[bool, "Explore every state of tiny clusters."] = False,
    json: Annotated[bool, "Print the result as JSON."] = False,
    tapes: Annotated[
        Path, Option(exists=True, file_okay=False, writable=True, help="Where failing tapes go.")
    ] = Path("."),
) -> None:
    """Run whole clusters in virtual time, on the code that serves, under every fault.

    A seed decides everything, so what fails can be run again: it is written as a fault tape.

    Planted bugs and exhaustive exploration come with the source.

    Exit codes: 0 all well; 1 a violation, a mutant that lived, or a fault that never happened; 2
    bad usage, or there is no source.

    Examples:

        roskva sim --seeds 500

        roskva sim --profile sources --seeds 200

        roskva sim --seed 42 --trace

        roskva sim --tape seed-42.json

        roskva sim --shrink seed-42.json

        roskva sim --mutants

        roskva sim --exhaustive
    """
    if tape is not None or seed is not None:
        chosen = _load(tape) if tape is not None else tape_of(seed or 0, minutes, profile)
        raise typer.Exit(_run_one(chosen, trace, json))
    if shrink_tape is not None:
        raise typer.Exit(_shrink(shrink_tape))
    if mutants or exhaustive:
        report = from_checkout(
            "verification.report", "Planted bugs and exhaustive exploration", "make verify"
        )
        prove = report.report_mutants if mutants else report.report_exploration
        raise typer.Exit(prove(_bar, json))
    chosen_seeds = range(seed_start, seed_start + seeds)
    raise typer.Exit(_campaign(chosen_seeds, minutes, json, tapes, profile))


def _load(path: Path) -> Tape:
    try:
        tape = Tape.load(path)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} is no fault tape: {error}") from error
    unknown = {fault.kind for fault in tape.faults} - set(kinds_of(tape.profile))
    if unknown:
        raise typer.BadParameter(f"{path} has faults unknown here: {', '.join(sorted(unknown))}")
    return tape


def _bar(what: str) -> Progress:
    found = TextColumn("{task.fields[found]}")
    return progress(
        TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), found
    )


def _campaign(seeds: range, minutes: float, json: bool, tapes: Path, profile: Profile) -> int:
    with _bar("clusters") as bar:
        task = bar.add_task("", total=len(seeds), found="")
        bad = 0

        def show(report: Report) -> None:
            nonlocal bad
            bad += report.violation is not None
            bar.update(task, advance=1, found=f"[red]{bad} violations" if bad else "")

        summary = run_seeds(seeds, CORES, minutes, show, profile)
    for report in summary.violations:
        tape_of(report.seed, minutes, profile).save(_tape_in(tapes, report, profile))
    if json:
        sys.stdout.buffer.write(msgspec.json.encode(summary) + b"\n")
    else:
        _print_summary(summary, tapes)
    enough = len(seeds) >= 100
    return 1 if summary.violations or (enough and summary.never()) else 0


def _tape_in(tapes: Path, report: Report, profile: Profile) -> Path:
    of_profile = "" if profile == "node" else f"{profile}-"
    return tapes / f"{of_profile}seed-{report.seed}.json"


def _print_summary(summary: Summary, tapes: Path) -> None:
    simulated = summary.simulated_hours * 3600
    table = Table(show_header=False, box=None)
    table.add_row("seeds", f"{summary.seeds:,}")
    table.add_row(
        "simulated",
        f"{summary.simulated_hours:,.1f} h, {simulated / summary.seeds / 60:.1f} min per seed",
    )
    table.add_row(
        "wall time",
        f"{summary.wall_seconds:.1f} s, {simulated / summary.wall_seconds:,.0f} × real time",
    )
    table.add_row("notifications", f"{summary.notifications:,}")
    console.print(table)
    faults = Table("class", "faults injected", title="Faults", title_justify="left")
    for group, kinds in FAULTS_OF[summary.profile].items():
        counts = [f"{kind} {summary.sometimes[kind]}" for kind in kinds]
        faults.add_row(group, ", ".join(counts))
    console.print(faults)
    kinds_of_all = kinds_of(summary.profile)
    paths = [what for what in SOMETIMES[summary.profile] if what not in kinds_of_all]
    console.print("[bold]What happened, and how it was recovered from[/]")
    console.print(", ".join(f"{what} {summary.sometimes[what]:,}" for what in paths))
    if summary.never() and summary.seeds >= 100:
        console.print(f"[red]never happened:[/] {', '.join(summary.never())}")
    for report in summary.violations:
        console.print(f"[red]seed {report.seed}:[/] {report.violation}")
        console.print(f"  roskva sim --tape {_tape_in(tapes, report, summary.profile)} --trace")
    colour = "red" if summary.violations else "green"
    console.print(f"[{colour} bold]{len(summary.violations)} violations[/]")


def _run_one(tape: Tape, trace: bool, json: bool) -> int:
    world = world_of(tape)
    if trace:
        world.oracle.trace = []
    report = world.run()
    for line in world.oracle.trace or ():
        print(line)
    if json:
        sys.stdout.buffer.write(msgspec.json.encode(report) + b"\n")
    else:
        console.print(
            f"seed {report.seed}: {report.simulated_seconds / 60:.1f} simulated minutes, "
            f"{report.notifications:,} notifications, trace {report.trace_hash}"
        )
        console.print(f"[red]{report.violation}[/]" if report.violation else "[green]holds[/]")
    return 1 if report.violation else 0


def _shrink(path: Path) -> int:
    tape = _load(path)
    if run_tape(tape).violation is None:
        console.print("this tape breaks nothing; there is nothing to shrink")
        return 1
    with console.status("shrinking …") as status:
        small = shrink(tape, lambda t: status.update(f"shrinking … {len(t.faults)} faults left"))
    target = path.with_suffix(".small.json")
    small.save(target)
    console.print(f"{len(tape.faults)} faults → {len(small.faults)}: {target}")
    for fault in small.faults:
        console.print(f"  {fault.at:9.3f} s  {fault.kind}  for {fault.length:.1f} s")
    console.print(f"[red]{run_tape(small).violation}[/]")
    return 0
