from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from roskva.pipeline.requirements import what_is_missing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator["SparkSession"]:
    """One for all tests: a session takes seconds to start. Without Spark they are skipped."""
    missing = what_is_missing()
    if missing is not None:
        pytest.skip(missing)
    from roskva.pipeline.session import spark_session

    session = spark_session("tests", "local[2]", {"spark.sql.shuffle.partitions": "1"})
    yield session
    session.stop()
