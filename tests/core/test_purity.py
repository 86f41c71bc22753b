"""`core`, `wire` and `host` know no clock, no socket, no randomness: everything comes in."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PURE = sorted(
    path
    for package in ("core", "wire", "host")
    for path in (ROOT / "src/roskva" / package).rglob("*.py")
)
IMPURE = {
    *("asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "queue", "random"),
    *("secrets", "selectors", "signal", "socket", "ssl", "subprocess", "sys", "tempfile"),
    *("threading", "time", "datetime", "uuid", "uvloop", "io", "shutil"),
}
BUILTINS = {"open", "print", "input", "id", "hash"}


def impurities(source: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names} & IMPURE
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").partition(".")[0]} & IMPURE
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found |= {node.func.id} & BUILTINS
    return found


@pytest.mark.parametrize("path", PURE, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_core_wire_and_host_are_pure(path: Path) -> None:
    assert not impurities(path.read_text())


def test_there_is_something_to_check() -> None:
    assert {"client.py", "registrar.py", "matcher.py", "codec.py", "delivery.py", "decode.py"} <= {
        path.name for path in PURE
    }


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import time", "time"),
        ("from random import Random", "random"),
        ("import os.path as p", "os"),
        ("def f():\n    from asyncio import sleep", "asyncio"),
        ("if True:\n    import socket", "socket"),
        ("x = hash('order depends on the process')", "hash"),
    ],
)
def test_the_check_bites(line: str, named: str) -> None:
    healthy = (ROOT / "src/roskva/core/digest.py").read_text()
    assert impurities(healthy + "\n" + line) == {named}
