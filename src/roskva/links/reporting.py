"""What a process beside a node says of itself: a small file of JSON, replaced every so often.

The node puts it into its own status. The file is beside the sockets of the node's processes and
goes with them, so one that is there is of this run.
"""

import os
from pathlib import Path
from typing import TypeVar

import msgspec

T = TypeVar("T")


def write_report(file: Path, report: msgspec.Struct) -> None:
    temporary = file.with_suffix(".tmp")
    temporary.write_bytes(msgspec.json.encode(report))
    os.replace(temporary, file)


def read_report(file: Path, kind: type[T]) -> T | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=kind)
    except (OSError, msgspec.DecodeError):
        return None
