import socket
from collections.abc import Iterator

import pytest
from tests.cli.fake_node import FakeNode, fake_node


@pytest.fixture
def node() -> Iterator[FakeNode]:
    with fake_node() as running:
        yield running


@pytest.fixture
def nobody() -> str:
    """A URL at which nobody answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{unused.getsockname()[1]}"
