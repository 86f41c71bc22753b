"""Nodes for the benchmarks of the pipeline, as users run them."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx

from benchmarks.result import NotMeasured
from roskva.links.processes import running

SHARDS: Final = 4
_START_S: Final = 300.0


@contextmanager
def serving(data: Path, *flags: str, program: str = "", probe: bool = False) -> Iterator[str]:
    """Its address. `program`: Python in place of the command."""
    command = ["-c", program] if program else ["-m", "roskva"]
    words = ["serve", "--data", str(data), "--port", "0", "--mqtt-port", "off"]
    words += [] if probe else ["--no-probe"]
    (data / "node.json").unlink(missing_ok=True)
    process = subprocess.Popen(
        [sys.executable, *command, *words, *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        await_that(lambda: running(data) is not None, "the node does not start")
        node = running(data)
        assert node is not None
        yield node.url
    finally:
        process.terminate()
        process.wait()


def pipeline(url: str) -> dict[str, Any]:
    found: dict[str, Any] = httpx.get(f"{url}/v1/status", timeout=30.0).json()["pipeline"]
    return found


def await_bridge(url: str) -> None:
    """Until it is at work, and Spark is done with what it does after its start."""

    def at_work() -> bool:
        try:
            parts = pipeline(url).get("parts", [])
        except httpx.TransportError:
            return False  # of several processes some are not there yet
        return bool(parts) and parts[0]["state"] == "running"

    await_that(at_work, "the bridge does not start")
    time.sleep(5.0)


def await_that(condition: Callable[[], bool], otherwise: str) -> None:
    give_up_at = time.monotonic() + _START_S
    while not condition():
        if time.monotonic() > give_up_at:
            raise NotMeasured(otherwise)
        time.sleep(0.1)
