import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.serving.nodes import Node

StartNode = Callable[..., Node]

_numbers = itertools.count()


@contextmanager
def _started(data: Path, *flags: str) -> Iterator[Node]:
    node = Node(data, *flags)
    try:
        node.start()
        yield node
    finally:
        node.end()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """For tests that leave it running; objects have names of their own (`fresh`)."""
    with _started(tmp_path_factory.mktemp("shared") / "data") as node:
        yield node
        # A node that served many tests without an error has not restarted behind their backs.
        assert "starting it again" not in node.said()


@pytest.fixture(scope="session")
def latest_value(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that numbers versions itself: a broker of latest values."""
    with _started(tmp_path_factory.mktemp("assigned") / "data", "--versions", "assigned") as node:
        yield node


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes of the test's own; they end with it."""
    nodes: list[Node] = []

    def start(*flags: str, command: tuple[str, ...] | None = None, scheme: str = "http") -> Node:
        data = tmp_path / f"data-{len(nodes)}"
        nodes.append(Node(data, *flags) if command is None else Node(data, *flags, command=command))
        nodes[-1].scheme = scheme
        nodes[-1].start()
        return nodes[-1]

    yield start
    for node in nodes:
        node.end()


@pytest.fixture
def fresh() -> Callable[[], str]:
    """Objects that nobody has used on any node."""
    return lambda: f"test/object-{next(_numbers)}"
