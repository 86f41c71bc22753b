"""What holds for all tests."""

import os
import signal

import pytest


def pytest_configure() -> None:
    """Ctrl-C ends what a test starts, also when the tests run in a shell's background; and Spark
    starts quickly."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A JVM of a test lives for seconds: what it would compile thoroughly never pays.
    os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, so that at the end nobody waits for one worker."""
    items.sort(key=lambda item: "tests/pipeline/test_with_node.py" not in item.nodeid)
