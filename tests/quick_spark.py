"""A home for Spark in which it starts with half of the work: dozens of tests start one.

It is the installed Spark but for two things. The classes that tests need are in an archive as the
JVM has them in memory, and need not be read, checked and linked again. And Python workers import
PySpark from where it is installed, not from an archive that has no compiled modules.

Made by `python -m tests.quick_spark`, once. Where there is none, Spark starts as it always does,
and so it does if Java has become another one since.
"""

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from roskva.pipeline.machine import SHORT_LIVED_JVM, what_is_missing

HOME: Final = Path(sys.prefix).resolve() / "spark"
CLASSES: Final = HOME / "classes.jsa"
_USE_MOST: Final = ("ingest", "checkpoint", "jobs_audit", "jobs_latency")
"""Tests of the pipeline that load nearly everything that any of them does."""


def use() -> None:
    """For all Sparks that are started from here on."""
    options = SHORT_LIVED_JVM
    if CLASSES.exists():
        os.environ.setdefault("SPARK_HOME", str(HOME))
        options += f" -XX:SharedArchiveFile={CLASSES} -Xlog:cds=off -Xlog:cds+dynamic=off"
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)


def make() -> None:
    _link_home()
    unfinished = CLASSES.with_suffix(".new")
    unfinished.unlink(missing_ok=True)
    os.environ["SPARK_HOME"] = str(HOME)
    os.environ["SPARK_SUBMIT_OPTS"] = (
        f"{SHORT_LIVED_JVM} -XX:ArchiveClassesAtExit={unfinished} -Xlog:disable"
    )
    tests = [f"tests/pipeline/test_{name}.py" for name in _USE_MOST]
    if pytest.main(["-p", "no:cacheprovider", *tests]) != pytest.ExitCode.OK:
        sys.exit("No archive of Spark's classes was made: its tests fail.")
    _end_the_jvm()
    unfinished.rename(CLASSES)


def _link_home() -> None:
    found = find_spec("pyspark")
    assert found is not None
    installed = Path(str(found.origin)).resolve().parent
    shutil.rmtree(HOME, ignore_errors=True)
    modules = HOME / "python/lib/pyspark.zip"  # the name is Spark's; a directory will do
    modules.mkdir(parents=True)
    (modules / "pyspark").symlink_to(installed)
    for archive in (installed / "python/lib").glob("py4j-*.zip"):
        (HOME / "python/lib" / archive.name).symlink_to(archive)
    for part in ("bin", "jars", "sbin"):
        (HOME / part).symlink_to(installed / part)


def _end_the_jvm() -> None:
    """It writes the archive at its end."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()


if __name__ == "__main__":
    if what_is_missing() is None:
        make()
