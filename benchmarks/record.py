"""The raw results of a run, as they are kept."""

from datetime import datetime
from pathlib import Path

import msgspec

from benchmarks.result import Result


class Record(msgspec.Struct):
    date: datetime
    machine: str
    versions: dict[str, str]
    full: bool
    repetitions: int
    results: dict[str, list[Result]] = {}
    """By benchmark."""
    seconds: dict[str, float] = {}
    """How long each took."""
    left_out: dict[str, str] = {}
    """Benchmarks that could not run, and why."""
    failed: dict[str, str] = {}
    """Benchmarks that broke, and how: a bug, here or in what they measure."""

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")

    @classmethod
    def load(cls, path: Path) -> "Record":
        return msgspec.json.decode(path.read_bytes(), type=cls)
