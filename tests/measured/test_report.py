"""The page is made of results that were recorded: nothing is measured here."""

import io
import re
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import msgspec
import pytest
from benchmarks import machine, report
from benchmarks.plot import Plot, draw
from benchmarks.record import Record
from benchmarks.result import Result
from rich.console import Console

FAN_OUT = Result("fan-out", 50_000, "/s", 40_000, "higher", peers={"Other": 60_000}, why="It is C.")
SLOW = Result("recovery", 2.5, "s", 1.0, note="of 3")
AT = [
    Result("median", 1.5 * rate / 1000, "ms", at=rate, at_unit="updates/s", peers={"Paper": 5.1})
    for rate in (1000.0, 2000.0)
]
SHARE = Result("share", 0.0, "", curve=[(1.0, 0.0), (2.0, 0.5), (30.0, 1.0)])
PLOT = Plot("median", "How long it takes", "updates/s", "ms", ("median",))


@pytest.fixture
def module() -> ModuleType:
    made = ModuleType("made", "How it is measured.")
    made.TITLE = "Made up"  # type: ignore[attr-defined]
    made.PLOTS = (PLOT,)  # type: ignore[attr-defined]
    return made


@pytest.fixture
def record() -> Record:
    return Record(
        datetime(2026, 1, 2, 3, 4, tzinfo=UTC),
        "2 cores",
        {"Roskva": "1.0", "Other": "2.3"},
        full=False,
        repetitions=3,
        results={"made": [FAN_OUT, SLOW, *AT, SHARE]},
        seconds={"made": 120.0},
        left_out={"spark": "no Java"},
    )


def test_where_others_are_better_it_is_said_why() -> None:
    recorded = Record.load(Path(__file__).parents[2] / "docs/benchmarks/results.json")
    silent = [
        (name, result.name)
        for name, results in recorded.results.items()
        for result in results
        if any(map(result.beaten_by, result.peers.values())) and not result.why
    ]
    assert silent == []


def test_the_recorded_commit_is_one_of_this_repository() -> None:
    root = Path(__file__).parents[2]
    if git(root, "rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("the history is not here")
    told = Record.load(root / "docs/benchmarks/results.json").versions["Roskva"]
    commit = re.search(r"\((?:recorded in )?([0-9a-f]{7,40})\)$", told)
    assert commit, f"{told} names no commit, or one that had changes"
    assert git(root, "merge-base", "--is-ancestor", commit[1], "HEAD").returncode == 0


def test_a_commit_is_named_with_whether_it_was_changed(tmp_path: Path) -> None:
    assert machine.commit(tmp_path) == ""
    author = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    report_of_it = tmp_path / "docs" / "benchmarks" / "README.md"
    report_of_it.parent.mkdir(parents=True)
    report_of_it.write_text("one")
    (tmp_path / "code.py").write_text("one")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, *author, "commit", "-m", "one")
    head = git(tmp_path, "rev-parse", "--short", "HEAD").stdout.strip()
    report_of_it.write_text("two")
    assert machine.commit(tmp_path) == f" ({head})"
    (tmp_path / "code.py").write_text("two")
    assert machine.commit(tmp_path) == f" ({head}, changed)"


def git(root: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True)


def test_a_record_survives_being_written(record: Record, tmp_path: Path) -> None:
    record.save(tmp_path / "deep" / "results.json")
    assert Record.load(tmp_path / "deep" / "results.json") == record


def test_the_page(record: Record, module: ModuleType, tmp_path: Path) -> None:
    report.write(record, {"made": module, "spark": ModuleType("spark")}, tmp_path)
    assert (tmp_path / "README.md").read_text() == GOLDEN
    assert (tmp_path / "median.svg").exists()


def test_plots_of_an_earlier_run_do_not_stay(
    record: Record, module: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "old.svg").write_text("<svg/>")
    report.write(record, {"made": module}, tmp_path)
    assert [path.name for path in tmp_path.glob("*.svg")] == ["median.svg"]


def test_nobody_is_better_and_nothing_missed(record: Record, module: ModuleType) -> None:
    better = msgspec.structs.replace(FAN_OUT, peers={"Other": 30_000})
    text = report.page(
        msgspec.structs.replace(record, results={"made": [better]}), {"made": module}
    )
    assert "Nowhere in this run." in text
    assert "## Targets that were missed\n\nNone." in text


def test_a_result_that_goes_on_from_another_is_known_by_both_names(
    record: Record, module: ModuleType
) -> None:
    goes_on = Result("… to Other", 0.8, "×", 1.0, "higher")
    text = report.page(
        msgspec.structs.replace(record, results={"made": [FAN_OUT, goes_on]}), {"made": module}
    )
    assert "- made: fan-out … to Other: 0.8 ×, the target is ≥ 1 ×" in text


def test_the_terminal_shows_every_figure_and_no_notes() -> None:
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report.on_terminal("made", [FAN_OUT, SLOW, *AT, SHARE]))
    shown = console.export_text()
    for text in ("fan-out", "50,000 /s", "60,000 /s", "met", "missed", "1,000", "1.5", "5.1"):
        assert text in shown
    assert "of 3" not in shown


def test_a_table_that_is_much_too_wide_for_a_terminal_is_turned() -> None:
    console = Console(width=80, record=True, file=io.StringIO())
    peers = {f"peer {i}": float(i) for i in range(20)}
    wide = [msgspec.structs.replace(result, peers=peers) for result in AT]
    console.print(report.on_terminal("made", wide))
    lines = console.export_text().splitlines()
    assert any("updates/s" in line and "1,000" in line and "2,000" in line for line in lines)
    assert sum("peer" in line for line in lines) == 20


@pytest.mark.parametrize("log", [False, True])
def test_a_plot_is_well_formed_and_inside_its_frame(log: bool) -> None:
    plot = msgspec.structs.replace(PLOT, of=("median", "share"), log_x=log, log_y=log)
    drawn = draw(plot, [*AT, SHARE])
    assert drawn is not None
    tree = ElementTree.fromstring(drawn)
    texts = [text.text for text in tree.findall(".//{*}text")]
    assert {"How long it takes", "updates/s", "ms", "median", "median: Paper", "share"} <= {*texts}
    for circle in tree.findall(".//{*}circle"):
        assert 0 < float(circle.attrib["cx"]) < 760
        assert 0 < float(circle.attrib["cy"]) < 420
    assert "prefers-color-scheme:dark" in drawn


def test_side_by_side_each_server_has_a_colour_and_each_name_a_kind_of_line() -> None:
    plot = msgspec.structs.replace(PLOT, of=("one", "two"), side_by_side=True)
    results = [msgspec.structs.replace(result, name=n) for n in plot.of for result in AT]
    drawn = draw(plot, results)
    assert drawn is not None
    tree = ElementTree.fromstring(drawn)
    texts = [text.text for text in tree.findall(".//{*}text")]
    assert [text for text in texts if text in (*plot.of, "Roskva", "Paper")] == [
        "Roskva",
        "Paper",
        *plot.of,
    ]
    lines = [
        (path.attrib["class"], "stroke-dasharray" in path.attrib)
        for path in tree.findall(".//{*}path[@class]")
        if path.attrib["class"].startswith("line")
    ]
    in_the_legend, drawn_lines = lines[:4], lines[4:]
    assert in_the_legend == [
        ("line c0", False),
        ("line c1", False),
        ("line c5", False),
        ("line c5", True),
    ]
    assert drawn_lines == [
        ("line c0", False),
        ("line c1", False),
        ("line c0", True),
        ("line c1", True),
    ]


def test_a_plot_of_one_point_can_be_drawn() -> None:
    one = [msgspec.structs.replace(AT[0], value=0.0, peers={})]
    for log in (False, True):
        assert draw(msgspec.structs.replace(PLOT, log_x=log, log_y=log), one) is not None


def test_nothing_is_drawn_of_what_was_not_measured() -> None:
    assert draw(PLOT, [SLOW]) is None


def test_the_page_in_the_documents_is_that_of_its_results(tmp_path: Path) -> None:
    from benchmarks.__main__ import write_report

    documents = Path(__file__).parents[2] / "docs/benchmarks"
    write_report(Record.load(documents / "results.json"), tmp_path)
    for made in tmp_path.iterdir():
        same = made.read_text() == (documents / made.name).read_text()
        assert same, f"{made.name}: roskva bench --from docs/benchmarks/results.json --report …"
    assert not re.search(r"\bnan\b|\binf\b", (tmp_path / "README.md").read_text())


GOLDEN = """\
# Benchmarks

Written by `make bench` from [what was measured](results.json); do not edit. \
`make bench-full` takes longer and repeats more; `roskva bench NAME` runs one of them.

The short version, 3 repetitions, 2026-01-02 03:04 UTC, 2 minutes. A figure is the median of the \
repetitions where there are several, and every ratio comes from turns of one run.

**Machine**: 2 cores. The load and what is measured share its cores.

**Versions**: Roskva 1.0, Other 2.3

**Clocks**: an update is received when the kernel has it for its client; by the program's clock, \
where it is said, when the program that is the client has read it.

**Nodes** have neither prober nor pipeline, unless it is said, and the thread that syncs the feed \
has real-time priority where the system grants it.

## Where others are better

| what | Roskva | better | why |
| --- | ---: | --- | --- |
| made: fan-out | 50,000 /s | Other 60,000 /s | It is C. |

## Targets that were missed

- made: recovery: 2.5 s, the target is ≤ 1 s

## Made up

How it is measured.

| what | measured | Other | target |  | note |
| --- | ---: | ---: | ---: | --- | --- |
| fan-out | 50,000 /s | 60,000 /s | ≥ 40,000 /s | met |  |
| recovery | 2.5 s |  | ≤ 1 s | missed | of 3 |

| updates/s | median (ms) | Paper |
| --- | ---: | ---: |
| 1,000 | 1.5 | 5.1 |
| 2,000 | 3 | 5.1 |

![How long it takes](median.svg)

## Spark

Not measured: no Java
"""
