from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from roskva.pipeline.machine import what_is_missing

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


@pytest.fixture
def matchers_have_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted matcher is a thread among others: that it answers late says nothing."""
    for limit in ("_ASK_S", "_ANSWER_S"):
        monkeypatch.setattr(f"roskva.pipeline.node.{limit}", 60.0)
