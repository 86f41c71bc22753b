"""What tests cost: the budget of CONTRIBUTING.md, and how `--costs` shows it."""

from tests.costs import RULES, budgets, directory_of, table
from tests.test_layout import TEST_FILES

ALLOWED = budgets(RULES.read_text(encoding="utf-8"))


def test_every_directory_has_a_budget_and_all_together_are_12_minutes_of_two_cores() -> None:
    assert {directory_of(name) for name in TEST_FILES} - ALLOWED.keys() == set()
    assert sum(ALLOWED.values()) <= 12 * 60 * 2


def test_what_is_in_no_directory_is_counted_with_the_tests_of_all() -> None:
    assert directory_of("tests/test_docs.py::test_x[a::b/c]") == "tests"
    assert directory_of("tests/server/admin/test_stages.py::test_y") == "tests/server"


def test_the_dearest_comes_first_and_who_spends_too_much_is_named() -> None:
    spent = {"tests/a": 5.0, "tests/b": 30.0, "tests/new": 1.0}
    lines = list(table(spent, dict.fromkeys(spent, 60.0), {"tests/a": 10, "tests/b": 20}))
    assert [line.split() for line in lines[1:]] == [
        ["tests/b", "30.0", "20", "150%", "60.0", "OVER"],
        ["tests/a", "5.0", "10", "50%", "60.0"],
        ["tests/new", "1.0", "0", "none", "60.0", "OVER"],
        ["all", "36.0", "30", "120%", "180.0", "OVER"],
    ]
