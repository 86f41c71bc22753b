from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.nodes import Node
from tests.sources.servers import Postgres
from tests.sources.shop import SETTINGS, served_shop


@pytest.fixture
def shop() -> Iterator[Postgres]:
    with served_shop() as server:
        yield server


@pytest.fixture
def node(tmp_path: Path, shop: Postgres) -> Iterator[Node]:
    settings = tmp_path / "roskva.toml"
    settings.write_text(SETTINGS.format(url=shop.url))
    node = Node(tmp_path / "data", "--config", str(settings))
    node.start()
    try:
        yield node
    finally:
        node.end()
