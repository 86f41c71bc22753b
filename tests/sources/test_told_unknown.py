"""What a database has lost: clients of its app are told unknown, once, and nobody else is."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.serving.nodes import PATIENCE_S, Node, await_that
from tests.sources.postgres_losses import LOSSES, Loss, set_up
from tests.sources.servers import Postgres
from tests.sources.shop import SETTINGS, in_thread, reading, source

import roskva

pytestmark = pytest.mark.verify
QUIET_S = 3.0
"""So long nobody may be told a second time."""


@pytest.fixture
def node(tmp_path: Path, shop: Postgres) -> Iterator[Node]:
    set_up(shop)
    settings = tmp_path / "roskva.toml"
    content = SETTINGS.replace('"products"', '"products", "orders"')
    settings.write_text(content.format(url=shop.url))
    node = Node(tmp_path / "data", "--config", str(settings))
    node.start()
    try:
        yield node
    finally:
        node.end()


@contextmanager
def away(server: Postgres) -> Iterator[None]:
    """Nobody reads, and whoever reads next finds everything as it was left."""
    server.administer(
        "ALTER ROLE roskva NOLOGIN",
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'roskva'",
    )
    gone = "SELECT 1 FROM pg_stat_activity WHERE usename = 'roskva'"
    await_that(lambda: not server.administer(gone), PATIENCE_S)
    yield
    server.administer("ALTER ROLE roskva LOGIN")


def _doubts(node: Node) -> int:
    now = source(node)
    return 0 if now is None else now.doubts


def _provoke(server: Postgres, node: Node, loss: Loss) -> None:
    """Until it is in doubt."""
    before = _doubts(node)
    if loss.at_work:
        loss.provoke(server)
    else:
        with away(server):
            loss.provoke(server)
    await_that(lambda: _doubts(node) > before, PATIENCE_S, node.said)


class Unknowns:
    """How often each app's client was told unknown."""

    def __init__(self) -> None:
        self.count: dict[str, int] = {"shop": 0, "others": 0}
        self.versions: dict[str, int] = {}
        self._heard = asyncio.Event()

    async def listen(self, app: str, client: roskva.Client) -> None:
        async for event in client:
            if isinstance(event, roskva.NotifyUnknown):
                self.count[app] += 1
            elif isinstance(event, roskva.Notify):
                self.versions[app] = event.version
            self._heard.set()

    async def until(self, app: str, above: int) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while self.versions.get(app, 0) <= above:
                self._heard.clear()
                await self._heard.wait()


async def _told_once(server: Postgres, node: Node) -> None:
    reading(node)
    told = Unknowns()
    async with (
        roskva.Client(node.url, app="shop", auto_ack=True) as shop,
        roskva.Client(node.url, app="others", auto_ack=True) as others,
        asyncio.TaskGroup() as tasks,
    ):
        await shop.register("products/1")
        await others.register("products/1")
        listening = [
            tasks.create_task(told.listen(app, client))
            for app, client in (("shop", shop), ("others", others))
        ]
        server.run("UPDATE products SET price = 11 WHERE id = 1")
        node.publish("others/products/1", 1)
        await told.until("shop", 0)
        await told.until("others", 0)
        others_unknown = told.count["others"]
        for name, loss in LOSSES.items():
            unknown, version = told.count["shop"], told.versions["shop"]
            await in_thread(partial(_provoke, server, node, loss))
            await in_thread(lambda: reading(node))
            server.run(
                "INSERT INTO products (id, price) VALUES (1, 1) "
                "ON CONFLICT (id) DO UPDATE SET price = products.price + 1000"
            )
            await told.until("shop", version)
            await asyncio.sleep(QUIET_S)
            assert told.count["shop"] == unknown + 1, name
        assert told.count["others"] == others_unknown
        assert told.versions["others"] == 1
        for task in listening:
            task.cancel()


def test_clients_of_the_app_are_told_unknown_once_and_nobody_else(
    shop: Postgres, node: Node
) -> None:
    asyncio.run(_told_once(shop, node))
