from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks.ports import free_port
from tests.serving.nodes import Node
from tests.sources.servers import Postgres
from tests.sources.shop import SETTINGS, served_shop

_CHANNELS = """
import asyncio

import tcp_channel
import udp_channel


async def serve(attach):
    await asyncio.gather(tcp_channel.serve(attach), udp_channel.serve(attach))
"""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """One for all examples: they must not mind what ran before them."""
    place = tmp_path_factory.mktemp("examples")
    (place / "channels.py").write_text(_CHANNELS)
    (place / "node.toml").write_text('[node]\nchannel = "channels:serve"\n')
    node = Node(place / "data", "--config", str(place / "node.toml"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", "examples", prepend=":")
        patch.setenv("PYTHONPATH", str(place), prepend=":")
        for channel in ("TCP", "UDP"):
            patch.setenv(f"{channel}_CHANNEL_PORT", str(free_port()))
        try:
            node.start()
            yield node
        finally:
            node.end()


@pytest.fixture
def shop() -> Iterator[Postgres]:
    with served_shop() as server:
        server.run("ALTER TABLE products ADD name text")
        yield server


@pytest.fixture
def node_with_shop(tmp_path: Path, shop: Postgres) -> Iterator[Node]:
    (tmp_path / "shop.toml").write_text(SETTINGS.format(url=shop.url))
    node = Node(tmp_path / "data", "--config", str(tmp_path / "shop.toml"))
    try:
        node.start()
        yield node
    finally:
        node.end()
