import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.serving.nodes import Node
from tests.sources.servers import Postgres, postgres_binaries
from tests.sources.shop import SETTINGS


@pytest.fixture
def shop() -> Iterator[Postgres]:
    """In a place that its user can reach, whoever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="roskva-postgres-") as place:
        server = Postgres(Path(place), postgres_binaries())
        try:
            server.make()
            server.run(
                "CREATE TABLE products (id bigint PRIMARY KEY, price int)",
                "CREATE PUBLICATION roskva_shop FOR TABLE products",
            )
            yield server
        finally:
            server.kill()


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
