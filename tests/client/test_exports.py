"""`import roskva`: these names, and nothing loaded that is not asked for."""

import ast
import subprocess
import sys
from pathlib import Path

import roskva

NAMES = [
    "Attach",
    "BadConfig",
    "BadInput",
    "BadMessage",
    "BadName",
    "Channel",
    "Client",
    "ClientEvent",
    "Damaged",
    "Fenced",
    "LimitExceeded",
    "Listener",
    "Notify",
    "NotifyUnknown",
    "Overloaded",
    "Publisher",
    "Refused",
    "RegistrationFailure",
    "RegistrationStatus",
    "ReissueRegistrations",
    "RoskvaError",
    "StorageUnavailable",
    "Tls",
    "TokenRejected",
    "TooLarge",
    "Trouble",
    "Unauthorised",
    "Unavailable",
    "UnknownClient",
    "WrongProtocol",
    "__version__",
    "blocking",
    "publish",
]

FOR_SERVERS = ["litestar", "uvicorn", "uvloop", "rocksdict", "pyarrow", "pyspark", "typer"]
FOR_USE = ["asyncio", "websockets", "httpx", "msgspec"]


def loaded_after(statement: str, names: list[str]) -> list[str]:
    program = f"{statement}\nimport sys\nprint(*(n for n in {names!r} if n in sys.modules))"
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    return found.stdout.split()


def test_names_are_these_and_exist() -> None:
    assert roskva.__all__ == NAMES  # type: ignore[attr-defined]  # of the module, not of its stub
    assert all(getattr(roskva, name) is not None for name in NAMES)


def test_stub_types_the_same_names() -> None:
    stub = ast.parse(Path(roskva.__file__).with_suffix(".pyi").read_text())
    imported = [
        alias.asname
        for node in stub.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    ]
    assert sorted([*map(str, imported), "__version__"]) == NAMES


def test_other_names_are_not_there() -> None:
    assert not hasattr(roskva, "Server")


def test_importing_costs_nothing_that_is_not_used() -> None:
    assert loaded_after("import roskva", FOR_SERVERS + FOR_USE) == []
    assert loaded_after("import roskva; roskva.Client, roskva.blocking", FOR_SERVERS) == []
    assert loaded_after("from roskva import Publisher, publish", FOR_SERVERS) == []
    assert loaded_after("from roskva import BadName, Notify", ["asyncio", "httpx"]) == []
