from collections.abc import Iterator

import pytest
from tests.serving.nodes import Node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One for all examples: they must not mind what ran before them."""
    node = Node(tmp_path_factory.mktemp("examples") / "data")
    try:
        node.start()
        yield node
    finally:
        node.end()
