"""The numbers of the house: how large it is, what is named twice, what an update passes through.

.venv/bin/python tools/numbers.py [--against REVISION]
"""

import argparse
import ast
import json
import subprocess
import tarfile
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
EVERYTHING: Final = ("src", "verification", "tools")
HOSTED: Final = ("Matcher", "Registrar", "Rows", "ShardHost", "RegistrarHost")
"""Machines, and what drives them: whoever makes one is a shell."""
PATH: Final = "docs/update-path.json"
"""From commit to socket: a list of {"module": …, "function": …, "value": …}."""


def numbers(root: Path) -> dict[str, str]:
    package = lines_of(root, "src")
    everything = {k: v for part in EVERYTHING for k, v in lines_of(root, part).items()}
    largest = max(package, key=lambda name: package[name])
    shells = shells_in(root)
    return {
        "files in src": f"{len(files_in(package)):,}",
        "lines in src": f"{sum(package.values()):,}",
        "files in src, verification, tools": f"{len(files_in(everything)):,}",
        "lines in src, verification, tools": f"{sum(everything.values()):,}",
        "largest file in src": f"{package[largest]:,}  {short(largest)}",
        "median file in src": f"{files_in(package)[len(files_in(package)) // 2]}",
        "class names used twice": f"{len(twice(root))}",
        "modules that make a machine": f"{len({m for made in shells.values() for m in made})}",
        **{f"  {name}": f"{len(shells[name])}" for name in HOSTED},
        "modules from commit to socket": modules_passed(root),
    }


def python_files(root: Path, part: str) -> list[Path]:
    return sorted((root / part).rglob("*.py"))


def lines_of(root: Path, part: str) -> dict[str, int]:
    return {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(root, part)
    }


def files_in(lines: dict[str, int]) -> list[int]:
    """Their lengths; a file that only marks a package, with a line at most, is none."""
    return sorted(count for count in lines.values() if count > 1)


def twice(root: Path) -> dict[str, list[str]]:
    """Class names of the package that stand in several places, and the places."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, tree in _parsed(root):
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(short(path))
    return {name: found for name, found in sorted(places.items()) if len(found) > 1}


def shells_in(root: Path) -> dict[str, list[str]]:
    """Modules that make a machine, by the machine; but for those that define and host it."""
    shells: dict[str, list[str]] = {name: [] for name in HOSTED}
    for path, tree in _parsed(root):
        if short(path).startswith(("core/", "host/")):
            continue
        from_below = _taken_from_below(tree)
        called = {from_below.get(name, "") for name in _called(tree)}
        for name in called & shells.keys():
            shells[name].append(short(path))
    return shells


def _taken_from_below(tree: ast.Module) -> dict[str, str]:
    """What is imported from the core and the hosts, by the name it goes by here."""
    return {
        alias.asname or alias.name: alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith(("roskva.core", "roskva.host"))
        for alias in node.names
    }


def _called(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def modules_passed(root: Path) -> str:
    path = root / PATH
    if not path.exists():
        return "not recorded"
    steps = json.loads(path.read_text(encoding="utf-8"))
    return f"{len(dict.fromkeys(step['module'] for step in steps))}, in {len(steps)} steps"


def _parsed(root: Path) -> Iterator[tuple[str, ast.Module]]:
    for path in python_files(root, "src"):
        yield path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def short(name: str) -> str:
    return name.removeprefix("src/roskva/")


def numbers_of_revision(revision: str) -> dict[str, str]:
    with tempfile.TemporaryDirectory() as directory:
        packed = Path(directory) / "packed.tar"
        command = ["git", "archive", "--output", str(packed), revision]
        subprocess.run(command, cwd=ROOT, check=True)
        with tarfile.open(packed) as archive:
            archive.extractall(directory, filter="data")
        return numbers(Path(directory))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--against", metavar="REVISION", help="a revision of git to stand beside")
    revision = parser.parse_args().against
    columns = [("now", numbers(ROOT))]
    if revision:
        columns.insert(0, (revision, numbers_of_revision(revision)))
    print(f"{'':36}" + "".join(f"{title:>36}" for title, _ in columns))
    for what in columns[0][1]:
        print(f"{what:36}" + "".join(f"{found[what]:>36}" for _, found in columns))
    for name, places in twice(ROOT).items():
        print(f"  {name}: {' '.join(places)}")
    print("\nWho makes a machine, outside of core and host:")
    for name, modules in shells_in(ROOT).items():
        print(f"  {name}: {' '.join(modules) or 'nobody'}")


if __name__ == "__main__":
    main()
