"""What tests cost: processor time by directory, beside the budget that CONTRIBUTING.md gives it.

`--costs` prints it at the end. Processor time says the same on a busy machine as on an idle one,
and counts processes that a test starts, once they have ended. Nothing fails because it took long.
"""

import re
import resource
from collections import defaultdict
from collections.abc import Generator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Final

import pytest

RULES: Final = Path(__file__).parents[1] / "CONTRIBUTING.md"
_COST: Final = "processor seconds"


class Costs:
    def __init__(self) -> None:
        self._before = _processor_seconds()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """With its report, a worker sends what each step of a test has taken."""
        report = yield
        now = _processor_seconds()
        report.user_properties.append((_COST, now - self._before))
        self._before = now
        return report

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        spent: defaultdict[str, float] = defaultdict(float)
        waited: defaultdict[str, float] = defaultdict(float)
        for report in (each for kind in terminalreporter.stats.values() for each in kind):
            if isinstance(report, pytest.TestReport):
                where = directory_of(report.nodeid)
                waited[where] += report.duration
                spent[where] += sum(
                    float(str(value)) for name, value in report.user_properties if name == _COST
                )
        terminalreporter.section("what they cost, in seconds of processor time")
        for line in table(spent, waited, budgets(RULES.read_text(encoding="utf-8"))):
            terminalreporter.write_line(line, red=line.endswith("OVER"))


def directory_of(test: str) -> str:
    """`tests/core`; of a file that is in none, `tests`."""
    return "/".join(test.partition("::")[0].split("/")[:-1][:2])


def budgets(rules: str) -> dict[str, int]:
    """By directory: rows of a table that end in a number of seconds."""
    rows = re.findall(r"^\| `(tests[/\w]*)` \|.*\| ([\d,]+) s \|$", rules, re.MULTILINE)
    return {name: int(seconds.replace(",", "")) for name, seconds in rows}


def table(
    spent: Mapping[str, float], waited: Mapping[str, float], allowed: dict[str, int]
) -> Generator[str, None, None]:
    yield f"{'':20}{'spent':>8}{'budget':>8}{'share':>8}{'elapsed':>9}"
    ranked = sorted(spent.items(), key=itemgetter(1), reverse=True)
    for where, seconds in [*ranked, ("all", sum(spent.values()))]:
        budget = sum(allowed.values()) if where == "all" else allowed.get(where, 0)
        share = f"{seconds / budget:.0%}" if budget else "none"
        elapsed = sum(waited.values()) if where == "all" else waited[where]
        over = "  OVER" if seconds > budget else ""
        yield f"{where:20}{seconds:8.1f}{budget:8,}{share:>8}{elapsed:9.1f}{over}"


def _processor_seconds() -> float:
    both = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(used.ru_utime + used.ru_stime for used in both)
