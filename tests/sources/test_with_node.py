"""A node whose database publishes by itself: real PostgreSQL, real processes, real clients."""

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from tests.serving.nodes import PATIENCE_S, ROSKVA, Node, await_that
from tests.sources.servers import Postgres, postgres_binaries

import roskva
from roskva.links.processes import read_report
from roskva.wire.admin import SourceNow

SETTINGS = """
[source.shop]
url = "{url}"
tables = ["products"]
payload = "row"
"""


@pytest.fixture
def server() -> Iterator[Postgres]:
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
def node(tmp_path: Path, server: Postgres) -> Iterator[Node]:
    settings = tmp_path / "roskva.toml"
    settings.write_text(SETTINGS.format(url=server.url))
    node = Node(tmp_path / "data", "--config", str(settings))
    node.start()
    try:
        yield node
    finally:
        node.end()


def source(node: Node) -> SourceNow | None:
    return read_report(node.data / "run/source-shop.json", SourceNow)


def reading(node: Node, but: int = 0) -> SourceNow:
    """In another process than that."""

    def found() -> SourceNow | None:
        now = source(node)
        return now if now and now.state == "reading" and now.pid != but else None

    return await_that(found, PATIENCE_S, lambda: f"{source(node)}\n{node.said()}")


class Watcher:
    def __init__(self, client: roskva.Client) -> None:
        self.client = client
        self.unknown = 0

    async def told(self) -> roskva.Notify:
        """The next version; how often it was unknown before is counted."""
        async with asyncio.timeout(PATIENCE_S):
            async for event in self.client:
                if isinstance(event, roskva.Notify):
                    return event
                self.unknown += isinstance(event, roskva.NotifyUnknown)
        raise AssertionError("the client has ended")


@asynccontextmanager
async def watcher(node: Node, *names: str) -> AsyncIterator[Watcher]:
    async with roskva.Client(node.url, app="shop", auto_ack=True) as client:
        for name in names:
            await client.register(name)
        yield Watcher(client)


def in_thread(call: Callable[[], object]) -> "asyncio.Future[object]":
    return asyncio.get_running_loop().run_in_executor(None, call)


async def _rows_are_told(server: Postgres, node: Node) -> None:
    reading(node)
    async with watcher(node, "products/1") as one:
        server.run("INSERT INTO products VALUES (1, 10)")
        first = await one.told()
        assert msgspec.json.decode(first.payload or b"") == {"id": 1, "price": 10}
        server.run("BEGIN; UPDATE products SET price = 11; UPDATE products SET price = 12; COMMIT")
        second = await one.told()
        assert msgspec.json.decode(second.payload or b"") == {"id": 1, "price": 12}
        assert second.version > first.version
        server.run("DELETE FROM products WHERE id = 1")
        third = await one.told()
        assert (third.payload, third.version > second.version) == (None, True)

        killed = reading(node).pid
        os.kill(killed, signal.SIGKILL)
        server.run("INSERT INTO products VALUES (1, 13)")
        fourth = await one.told()
        assert msgspec.json.decode(fourth.payload or b"") == {"id": 1, "price": 13}
        assert fourth.version > third.version
        now = reading(node, but=killed)
        assert now.doubts == 0
        told_unknown = one.unknown

        # The slot is gone while nobody reads, and with it what was changed meanwhile.
        os.kill(now.pid, signal.SIGSTOP)
        server.run(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active",
        )
        await in_thread(lambda: _drop_slot(server))
        server.run("UPDATE products SET price = 14")
        os.kill(now.pid, signal.SIGCONT)
        await in_thread(lambda: await_that(lambda: _doubts(node), PATIENCE_S, node.said))
        server.run("UPDATE products SET price = 15")
        fifth = await one.told()
        assert fifth.version > fourth.version
        assert one.unknown == told_unknown + 1


def _doubts(node: Node) -> int:
    now = source(node)
    return 0 if now is None else now.doubts


def _drop_slot(server: Postgres) -> None:
    active = "SELECT 1 FROM pg_replication_slots WHERE active"
    await_that(lambda: not server.run(active), PATIENCE_S)
    server.run("SELECT pg_drop_replication_slot('roskva_shop')")


def test_rows_are_told_whoever_is_killed_and_what_is_lost_is_unknown(
    server: Postgres, node: Node
) -> None:
    asyncio.run(_rows_are_told(server, node))
    said = subprocess.run(
        [ROSKVA, "source", "cat", "shop", "--data", str(node.data)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[0].endswith("the source begins")
    assert "insert  shop/products/1" in said[1]
    assert any("slot" in line for line in said[1:])
