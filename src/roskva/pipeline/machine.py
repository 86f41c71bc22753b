"""The machine that the pipeline runs on: PySpark and Java, its processes, and what they use.

May be imported without Spark: everything else works without it.
"""

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from roskva.errors import BadConfig, BadInput
from roskva.wire.admin import PipelineNow

SHORT_LIVED_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For SPARK_SUBMIT_OPTS where Spark works for seconds, as in tests and in the demo: what its JVM
would compile thoroughly never pays."""

OLDEST_JAVA: Final = 17
_ASK_TIMEOUT_S: Final = 20.0

_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_TICKS: Final = os.sysconf("SC_CLK_TCK")


# PySpark and Java.


class PipelineMissing(BadConfig):
    """Something has to be installed first; the sentence says what, and how."""

    code = "pipeline_missing"


def require_pipeline() -> None:
    sentence = what_is_missing()
    if sentence is not None:
        raise PipelineMissing(sentence)


def what_is_missing() -> str | None:
    """And how to install it; None if the pipeline can run."""
    if find_spec("pyspark") is None:
        return "PySpark is not installed: pip install 'roskva[spark]'"
    java = _java()
    if java is None:
        return f"Java was not found: {_INSTALL_JAVA}"
    found = _version_of(java)
    if found is None:
        return f"{java} does not say its version: {_INSTALL_JAVA}"
    if found < OLDEST_JAVA:
        return f"{java} is Java {found}, and Spark needs {OLDEST_JAVA} or newer: {_INSTALL_JAVA}"
    return None


_INSTALL_JAVA: Final = (
    f"install a Java runtime of version {OLDEST_JAVA} or newer (on Debian and Ubuntu: apt-get "
    "install openjdk-17-jre-headless) and put its java on the PATH, or name its home in JAVA_HOME"
)


def _java() -> str | None:
    """Where Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return str(java) if java.exists() else None
    return shutil.which("java")


def java_version() -> int | None:
    java = _java()
    return None if java is None else _version_of(java)


def _version_of(java: str) -> int | None:
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    return parse_java_version(told)


def parse_java_version(told: str) -> int | None:
    """`1.8.0_292` is Java 8."""
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None


def spark_settings(conf: Sequence[str] | None) -> dict[str, str]:
    """Of `--conf KEY=VALUE`, any number of them."""
    settings = {}
    for setting in conf or ():
        key, equals, value = setting.partition("=")
        if not equals:
            raise BadInput(f"--conf is written KEY=VALUE; got {setting!r}")
        settings[key] = value
    return settings


# Processes: our own, a JVM, and its Python workers.


def kill_at_once_on(*signals: signal.Signals) -> None:
    """Spark would take seconds to be polite. Our queries lose nothing by being killed, and a node
    that stops should not wait for them."""

    def end(number: int, frame: object) -> None:
        for process in reversed(tree(os.getpid())[1:]):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        os._exit(0)

    for number in signals:
        signal.signal(number, end)


def tree(process: int) -> list[int]:
    """It, its children, theirs, and so on."""
    found = [process]
    for parent in found:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                children = Path(f"/proc/{parent}/task/{task}/children").read_text().split()
                found.extend(map(int, children))
    return found


class Usage:
    """Memory and processor time of this process and all below it."""

    def __init__(self) -> None:
        self._gone = 0.0
        self._last: dict[int, float] = {}

    def now(self) -> tuple[int, float]:
        memory, seconds = 0, {}
        for pid in tree(os.getpid()):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
            except (OSError, IndexError):
                continue
            memory += pages * _PAGE
            seconds[pid] = (int(fields[11]) + int(fields[12])) / _TICKS
        self._gone += sum(self._last[pid] for pid in self._last.keys() - seconds.keys())
        self._last = seconds
        return memory, round(self._gone + sum(seconds.values()), 2)


def stamped(report: PipelineNow, usage: Usage) -> PipelineNow:
    report.written_at = time.time()
    report.rss_bytes, report.cpu_seconds = usage.now()
    return report
