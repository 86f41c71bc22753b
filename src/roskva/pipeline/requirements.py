"""What the pipeline needs beside Roskva itself: PySpark and Java. Everything else works without."""

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from roskva.errors import BadConfig

SHORT_LIVED_JVM: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For SPARK_SUBMIT_OPTS where Spark works for seconds, as in tests and in the demo: what its JVM
would compile thoroughly never pays."""

_OLDEST_JAVA: Final = 17
_ASK_TIMEOUT_S: Final = 20.0


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
    if found < _OLDEST_JAVA:
        return f"{java} is Java {found}, and Spark needs {_OLDEST_JAVA} or newer: {_INSTALL_JAVA}"
    return None


_INSTALL_JAVA: Final = (
    f"install a Java runtime of version {_OLDEST_JAVA} or newer (on Debian and Ubuntu: apt-get "
    "install openjdk-17-jre-headless) and put its java on the PATH, or name its home in JAVA_HOME"
)


def _java() -> str | None:
    """Where Spark looks for it."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home, "bin", "java")
        return str(java) if java.exists() else None
    return shutil.which("java")


def _version_of(java: str) -> int | None:
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', told)
    return int(found[1]) if found else None
