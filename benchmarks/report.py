"""What people see of results: tables on the terminal, and `docs/benchmarks/README.md`."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from types import ModuleType
from typing import Final

from rich.console import Group
from rich.table import Table

from benchmarks.plot import draw, number
from benchmarks.record import Record
from benchmarks.result import Result

Rows = tuple[list[str], list[list[str]]]
"""Headings, and below them a row per line."""


def write(record: Record, modules: Mapping[str, ModuleType], into: Path) -> None:
    """The page and its plots; plots of an earlier run are removed."""
    into.mkdir(parents=True, exist_ok=True)
    for old in into.glob("*.svg"):
        old.unlink()
    for name, results in record.results.items():
        for plot in getattr(modules[name], "PLOTS", ()):
            picture = draw(plot, results)
            if picture is not None:
                (into / f"{plot.file}.svg").write_text(picture)
    (into / "README.md").write_text(page(record, modules))


def page(record: Record, modules: Mapping[str, ModuleType]) -> str:
    kind = "long" if record.full else "short"
    parts = [
        "# Benchmarks",
        "Written by `make bench` from [what was measured](results.json); do not edit. "
        "`make bench-full` takes longer and repeats more; `roskva bench NAME` runs one of them.",
        f"The {kind} version, {record.repetitions} repetitions, {record.date:%Y-%m-%d %H:%M} UTC, "
        f"{sum(record.seconds.values()) / 60:.0f} minutes. A figure is the median of the "
        "repetitions where there are several, and every ratio comes from turns of one run.",
        f"**Machine**: {record.machine}. The load and what is measured share its cores.",
        "**Versions**: " + ", ".join(f"{name} {told}" for name, told in record.versions.items()),
        "**Clocks**: an update is received when the kernel has it for its client; by the program's "
        "clock, where it is said, when the program that is the client has read it.",
        "**Nodes** have neither prober nor pipeline, unless it is said, and the thread that syncs "
        "the feed has real-time priority where the system grants it."
        + (" Switches has each of these on and off." if "switches" in record.results else ""),
        "## Where others are better",
        _better(record),
        "## Targets that were missed",
        _missed(record),
    ]
    for name, module in modules.items():
        if name in record.results:
            parts += _section(name, module, record.results[name])
        elif name in record.left_out:
            parts += [f"## {_title(name, module)}", f"Not measured: {record.left_out[name]}"]
        elif name in record.failed:
            parts += [f"## {_title(name, module)}", f"Failed: `{record.failed[name]}`"]
    return "\n\n".join(parts) + "\n"


def _section(name: str, module: ModuleType, results: Sequence[Result]) -> Iterator[str]:
    yield f"## {_title(name, module)}"
    yield inspect.getdoc(module) or ""
    for headings, rows in tables(results):
        yield _markdown(headings, rows)
    for plot in getattr(module, "PLOTS", ()):
        if draw(plot, results) is not None:
            yield f"![{plot.title}]({plot.file}.svg)"


def _title(name: str, module: ModuleType) -> str:
    title: str = getattr(module, "TITLE", name.capitalize())
    return title


def _better(record: Record) -> str:
    lines = []
    for name, result in _named(record):
        theirs = {peer: value for peer, value in result.peers.items() if result.beaten_by(value)}
        if theirs:
            better = ", ".join(f"{p} {figure(v, result.unit)}" for p, v in theirs.items())
            lines.append([name, figure(result.value, result.unit), better, result.why])
    if not lines:
        return "Nowhere in this run."
    return _markdown(["what", "Roskva", "better", "why"], lines)


def _missed(record: Record) -> str:
    missed = [
        f"- {name}: {figure(result.value, result.unit)}, the target is {_target(result)}"
        for name, result in _named(record)
        if result.met is False
    ]
    return "\n".join(missed) if missed else "None."


def _named(record: Record) -> Iterator[tuple[str, Result]]:
    """With what it takes to know a result by its name alone: “…” is short for the one before."""
    for benchmark, results in record.results.items():
        whole = ""
        for result in results:
            if not result.name.startswith("…"):
                whole = full_name(result)
            name = full_name(result).replace("…", f"{whole} …", 1)
            yield f"{benchmark}: {name}", result


def full_name(result: Result) -> str:
    return result.name if result.at is None else f"{result.name} at {_at(result)}"


def _at(result: Result) -> str:
    return f"{number(result.at or 0)} {result.at_unit}".strip()


def tables(results: Sequence[Result]) -> Iterator[Rows]:
    """Results over something that was varied have a table of their own."""
    for unit, some in groupby(results, lambda r: None if r.at is None else r.at_unit):
        found = [result for result in some if not result.curve]
        if found:
            yield _plain(found) if unit is None else _varied(unit, found)


def _plain(results: list[Result]) -> Rows:
    peers = sorted({peer for result in results for peer in result.peers})
    rows = []
    for result in results:
        theirs = [figure(result.peers[p], result.unit) if p in result.peers else "" for p in peers]
        row = [result.name, figure(result.value, result.unit), *theirs]
        rows.append([*row, _target(result), _verdict(result), result.note])
    return _without_empty_columns(["what", "measured", *peers, "target", "", "note"], rows)


def _varied(unit: str, results: list[Result]) -> Rows:
    """A row for each value of what was varied, a column for each name."""
    names = list(dict.fromkeys((result.name, result.unit) for result in results))
    headings, columns = [unit], []
    for name, its_unit in names:
        mine = {r.at: r for r in results if (r.name, r.unit) == (name, its_unit)}
        headings.append(f"{name} ({its_unit})" if its_unit else name)
        columns.append({at: _cell(r) for at, r in mine.items()})
        for peer in sorted({peer for r in mine.values() for peer in r.peers}):
            headings.append(peer)
            columns.append({at: figure(r.peers[peer]) for at, r in mine.items() if peer in r.peers})
    headings.append("note")
    columns.append({r.at: r.note for r in results if r.note})
    steps = list(dict.fromkeys(result.at for result in results))
    rows = [[number(at or 0), *(column.get(at, "") for column in columns)] for at in steps]
    return _without_empty_columns(headings, rows)


def _cell(result: Result) -> str:
    verdict = {None: "", True: " (met)", False: f" (target {_target(result)})"}[result.met]
    return figure(result.value) + verdict


def _without_empty_columns(headings: list[str], rows: list[list[str]]) -> Rows:
    kept = [i for i in range(len(headings)) if any(row[i] for row in rows)]
    return [headings[i] for i in kept], [[row[i] for i in kept] for row in rows]


def figure(value: float, unit: str = "") -> str:
    digits = ",.0f" if abs(value) >= 1000 else ",.3g"
    return f"{value:{digits}} {unit}".strip()


def _target(result: Result) -> str:
    if result.target is None:
        return ""
    return f"{'≤' if result.better == 'lower' else '≥'} {figure(result.target, result.unit)}"


def _verdict(result: Result) -> str:
    return {None: "", True: "met", False: "missed"}[result.met]


def _markdown(headings: list[str], rows: list[list[str]]) -> str:
    lines = [
        headings,
        ["---", *("---:" if h not in _WORDS else "---" for h in headings[1:])],
        *rows,
    ]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


_WORDS: Final = {"note", "why", "", "better"}
_COLUMNS: Final = 12
"""On a terminal."""
_COLOURED: Final = {"met": "[green]met[/]", "missed": "[red]missed[/]"}


def on_terminal(title: str, results: Sequence[Result]) -> Group:
    """The same tables, without notes; one that is much too wide is turned."""
    shown = []
    for headings, rows in tables(results):
        kept = [i for i, heading in enumerate(headings) if heading != "note"]
        lines = [[line[i] for i in kept] for line in (headings, *rows)]
        if len(kept) > _COLUMNS and len(lines) < len(kept):
            lines = [list(line) for line in zip(*lines, strict=True)]
        table = Table(title=title, title_justify="left", title_style="bold")
        for i, heading in enumerate(lines[0]):
            table.add_column(heading, justify="right" if i else "left")
        for line in lines[1:]:
            table.add_row(*(_COLOURED.get(cell, cell) for cell in line))
        shown.append(table)
    return Group(*shown)
