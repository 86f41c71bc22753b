"""The one place where a Spark session is made, and what is set in it."""

import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

LOCAL: Final = "local[*]"
_LOGGING: Final = Path(__file__).with_name("log4j2.properties")

_SETTINGS: Final = {
    # Micro-batches follow each other at once, and cost as little as they can.
    "spark.sql.streaming.pollingDelay": "1ms",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.streaming.minBatchesToRetain": "20",
    "spark.sql.streaming.stopTimeout": "30s",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
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


def spark_session(
    name: str,
    master: str = LOCAL,
    settings: Mapping[str, str] | None = None,
    *,
    inherited: Sequence[int] = (),
) -> SparkSession:
    """`inherited`: open files that the JVM keeps open too, for the locks on them to outlive us."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    conf = SparkConf(loadDefaults=False).setMaster(master).setAppName(name)
    scratch = tempfile.gettempdir()
    for key, value in {
        **_SETTINGS,
        **(_ON_THIS_MACHINE if master.startswith("local") else {}),
        "spark.sql.warehouse.dir": f"{scratch}/roskva-warehouse",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile=file:{_LOGGING}",
        **(settings or {}),
    }.items():
        conf.set(key, value)
    if SparkContext._active_spark_context is None:
        how = {"pass_fds": tuple(inherited)} if inherited else None
        gateway = launch_gateway(conf, how)  # type: ignore[no-untyped-call]
        SparkContext(conf=conf, gateway=gateway)
    return SparkSession.builder.config(conf=conf).getOrCreate()
