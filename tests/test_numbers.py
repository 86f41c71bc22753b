"""`tools/numbers.py`, on a small tree: what it counts, and what it does not."""

from pathlib import Path

from tools.numbers import modules_passed, numbers, shells_in, twice


def tree(root: Path, **files: str) -> Path:
    for name, text in files.items():
        path = root / "src/roskva" / name.replace("__", "/")
        path.with_suffix(".py").parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".py").write_text(text)
    return root


MAKES = "from roskva.core.rows import Rows\nclass _A:\n    made = Rows()\n"


def test_a_file_that_only_marks_a_package_is_none(tmp_path: Path) -> None:
    found = numbers(tree(tmp_path, a="x = 1\ny = 2\n", package__init='"""A package."""\n'))
    assert (found["files in src"], found["lines in src"]) == ("1", "3")


def test_class_names_that_stand_twice_are_found_private_ones_too(tmp_path: Path) -> None:
    tree(tmp_path, a="class _A: ...\n", b="class _A: ...\nclass B: ...\n")
    assert twice(tmp_path) == {"_A": ["a.py", "b.py"]}


def test_who_makes_a_machine_is_found_but_for_the_core_and_the_hosts(tmp_path: Path) -> None:
    tree(tmp_path, server__shard=MAKES, core__part=MAKES, host__shard=MAKES, feed__other="Rows()\n")
    assert shells_in(tmp_path)["Rows"] == ["server/shard.py"]


def test_the_path_of_an_update_is_counted_where_it_was_recorded(tmp_path: Path) -> None:
    assert modules_passed(tmp_path) == "not recorded"
    step = '{"module": "feed.commit", "function": "f", "value": "x"}'
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/update-path.json").write_text(f"[{step}, {step}]")
    assert modules_passed(tmp_path) == "1, in 2 steps"


def test_no_class_of_the_package_has_the_name_of_another() -> None:
    assert twice(Path(__file__).parents[1]) == {}
