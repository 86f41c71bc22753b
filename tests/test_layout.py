"""Where tests are: the rule of CONTRIBUTING.md ("Where a test belongs"), held to what imports what.

Nothing here names a module, so that modules can move; a module that no test reaches is found.
"""

import ast
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from roskva.cli.main import COMMANDS

ROOT: Final = Path(__file__).parents[1]
SOURCE: Final = ROOT / "src/roskva"
TESTS: Final = ROOT / "tests"
TEST_FILES: Final = sorted(path.relative_to(ROOT).as_posix() for path in TESTS.rglob("test_*.py"))
PACKAGES: Final = sorted({path.relative_to(SOURCE).parts[0] for path in SOURCE.glob("*/**/*.py")})
STARTED: Final = ("serve", "pipeline", "job", "probe")
"""Commands that tests start as processes: they reach what only a running node uses."""


def _name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES: Final = {_name(path): path for path in SOURCE.rglob("*.py")}


def package_of(module: str) -> str:
    """Or the module itself, where it is in none."""
    return module.split(".")[1] if "." in module else ""


def names_in(path: Path) -> Iterator[str]:
    """Of all that is imported anywhere in a file, and of modules that are started by name."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str() as module):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Constant(value=str() as value):
                yield value


@cache
def imported_by(module: str) -> frozenset[str]:
    commands = COMMANDS.values() if module == "roskva.cli.main" else ()
    found = {*names_in(MODULES[module]), *(f"roskva.cli.{command}" for command in commands)}
    return frozenset(found & MODULES.keys())


def reached(start: Iterable[str], within: str | None = None) -> set[str]:
    """By imports, from module to module; `within` one package."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        module = waiting.pop()
        if module not in seen and within in (None, package_of(module)):
            seen.add(module)
            waiting += imported_by(module)
    return seen


def files_for(package: str) -> list[Path]:
    return [*(TESTS / package).rglob("*.py"), *TESTS.glob(f"test_{package}*.py")]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_tests_where_one_looks_for_them(package: str) -> None:
    assert files_for(package), f"neither tests/{package}/ nor tests/test_{package}.py"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_module_is_reached_from_the_tests_of_its_package(package: str) -> None:
    named = {name for path in files_for(package) for name in names_in(path)}
    found = reached(named & MODULES.keys(), within=package) | started()
    lost = [
        name
        for name, path in MODULES.items()
        if package_of(name) == package and path.stem not in ("__init__", "__main__")
        if name not in found
    ]
    assert not lost, f"no test in tests/{package}/ imports them, or what imports them"


@cache
def started() -> frozenset[str]:
    return frozenset(reached(f"roskva.cli.{command}" for command in STARTED))


@pytest.mark.parametrize("name", TEST_FILES)
def test_the_head_of_a_test_file_says_what_it_tests(name: str) -> None:
    assert ast.get_docstring(ast.parse((ROOT / name).read_text(encoding="utf-8")))


def test_directories_that_mirror_no_package_are_explained() -> None:
    explained = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    others = {Path(name).parts[1] for name in TEST_FILES if len(Path(name).parts) > 2}
    missing = [
        name for name in sorted(others - set(PACKAGES)) if f"`tests/{name}`" not in explained
    ]
    assert missing == []
