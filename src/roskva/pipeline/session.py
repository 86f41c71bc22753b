"""The one place where a Spark session is made, what is set in it, and what it has to say.

Its errors are pages long: `spark_errors` makes them the sentence that matters.
"""

import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from roskva.errors import RoskvaError, error_of
from roskva.pipeline.spark_log import SparkLog

LOCAL: Final = "local[*]"
_FAILURES: Final = 4
"""Of one task before its query fails, as on a cluster; locally Spark would give up at the first."""
_LONGEST_SOCKET_DIRECTORY: Final = 60
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

_SETTINGS: Final = {
    # Micro-batches follow each other at once, and cost as little as they can.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    # The default one asks a shell for every file, and an update waits for two of them.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # Over TCP each exchange with a Python worker waits 40 ms for an ack that is held back.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.log.level": "ERROR",
}
"""Of every session; `--conf` of the commands goes over them."""

_ON_THIS_MACHINE: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}

_OURS: Final = re.compile(r"^roskva\.[\w.]+\.(\w+): (.+)$", re.MULTILINE)
"""The last line of a traceback in a Python worker."""


def spark_session(
    name: str,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    *,
    inherited: Sequence[int] = (),
    log_file: Path | None = None,
    scratch: Path | None = None,
) -> SparkSession:
    """`inherited`: open files that the JVM keeps open too, for the locks on them to outlive us.
    `log_file`: the file for what the JVM and the workers print, in place of our standard error.
    `scratch`: for files that are gone with the session; whoever kills it has to remove them."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    temporary = scratch or Path(tempfile.gettempdir())
    java = f"-Dlog4j2.configurationFile=file:{_LOGGING} -Djava.io.tmpdir={temporary}"
    with_retries = re.sub(r"^local\[([^,\]]+)\]$", rf"local[\1,{_FAILURES}]", master)
    conf = SparkConf(loadDefaults=False).setMaster(with_retries).setAppName(name)
    for key, value in {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if master.startswith("local") else {}),
        "spark.local.dir": str(temporary),
        "spark.python.unix.domain.socket.dir": _short(temporary),
        "spark.sql.warehouse.dir": f"{temporary}/roskva-warehouse",
        "spark.driver.extraJavaOptions": java,
        **(settings or {}),
    }.items():
        conf.set(key, value)
    if SparkContext._active_spark_context is None:
        with _temporary_files_in(temporary):
            _launch(conf, inherited, log_file)
    return SparkSession.builder.config(conf=conf).getOrCreate()


@contextmanager
def _temporary_files_in(directory: Path) -> Iterator[None]:
    """Of PySpark, which leaves one behind if it is killed while it starts the JVM."""
    before, tempfile.tempdir = tempfile.tempdir, str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = before


def _short(directory: Path) -> str:
    """The path of a Unix socket has at most 107 bytes, and its name takes half of them."""
    fits = len(os.fsencode(directory)) <= _LONGEST_SOCKET_DIRECTORY
    return str(directory) if fits else tempfile.gettempdir()


def _launch(conf: SparkConf, inherited: Sequence[int], log_file: Path | None) -> None:
    how: dict[str, Any] = {"pass_fds": tuple(inherited)} if inherited else {}
    if log_file is None:
        gateway = launch_gateway(conf, how)  # type: ignore[no-untyped-call]
    else:
        log = SparkLog(log_file)
        log.say("Spark starts")
        output = log.pipe()
        try:
            how |= {"stdout": output, "stderr": output}
            gateway = launch_gateway(conf, how)  # type: ignore[no-untyped-call]
        finally:
            os.close(output)
    SparkContext(conf=conf, gateway=gateway)


# What it has to say.


class PipelineFailed(RoskvaError):
    code = "pipeline_failed"


@contextmanager
def spark_errors() -> Iterator[None]:
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise sentence(str(error)) from error


def sentence(text: str) -> RoskvaError:
    """Ours, if one of ours is at the bottom of it; otherwise Spark's first line."""
    found = _OURS.findall(text)
    if found:
        kind, words = found[-1]
        code = re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()
        return error_of(code, words)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return PipelineFailed(f"Spark gave up: {lines[0] if lines else 'it does not say why'}")


class Tasks:
    """How many tasks Spark has done, of those it knows of so far."""

    def __init__(self, spark: SparkSession) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._stages: dict[int, tuple[int, int]] = {}

    def look(self) -> tuple[int, int]:
        for number, (_, total) in list(self._stages.items()):
            self._stages[number] = (total, total)  # done, unless it is found to be active
        for number in self._tracker.getActiveStageIds():
            stage = self._tracker.getStageInfo(number)
            if stage is not None:
                self._stages[number] = (stage.numCompletedTasks, stage.numTasks)
        done, totals = zip(*self._stages.values(), strict=True) if self._stages else ((0,), (0,))
        return sum(done), sum(totals)
