"""What holds for all tests."""

import signal

import pytest
from hypothesis import settings
from tests import quick_spark
from tests.costs import Costs


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--costs", action="store_true", help="say what each directory of tests costs")


def pytest_configure(config: pytest.Config) -> None:
    """Ctrl-C ends what a test starts, also when the tests run in a shell's background; and Spark
    starts quickly."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    quick_spark.use()
    # How long an example takes is up to the machine, and says nothing about the code.
    settings.register_profile("patient", deadline=None)
    settings.load_profile("patient")
    if config.getoption("costs"):
        config.pluginmanager.register(Costs(), "costs")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest come first, so that at the end nobody waits for one worker."""
    items.sort(key=lambda item: "tests/pipeline/test_with_node.py" not in item.nodeid)
