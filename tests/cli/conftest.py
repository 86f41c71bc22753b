from collections.abc import Iterator

import pytest
from benchmarks.ports import free_port
from tests.cli.fake_node import FakeNode, fake_node


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with fake_node() as running:
        yield running


@pytest.fixture
def nobody() -> str:
    """A URL at which nobody answers."""
    return f"http://127.0.0.1:{free_port()}"
