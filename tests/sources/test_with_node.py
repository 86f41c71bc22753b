"""A node whose database publishes by itself: real databases, real processes, real clients."""

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator

import msgspec
import pytest
from tests.serving.nodes import PATIENCE_S, ROSKVA, Node, await_that
from tests.sources.servers import MariaDb, Postgres
from tests.sources.shop import in_thread, reading, served_mariadb_shop, served_shop, source, watcher

Server = Postgres | MariaDb


@pytest.fixture(params=[served_shop, served_mariadb_shop], ids=["postgresql", "mariadb"])
def shop(request: pytest.FixtureRequest) -> Iterator[Server]:
    with request.param() as server:
        yield server


async def _rows_are_told(server: Server, node: Node) -> None:
    reading(node)
    async with watcher(node, "products/1") as one:
        server.run("INSERT INTO products VALUES (1, 10)")
        first = await one.told()
        assert msgspec.json.decode(first.payload or b"") == {"id": 1, "price": 10}
        prices = [f"UPDATE products SET price = {price}" for price in (11, 12)]
        server.run("BEGIN", *prices, "COMMIT")
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

        os.kill(now.pid, signal.SIGSTOP)
        await in_thread(lambda: _lose(server))
        os.kill(now.pid, signal.SIGCONT)
        await in_thread(lambda: await_that(lambda: _doubts(node), PATIENCE_S, node.said))
        server.run("UPDATE products SET price = 15")
        fifth = await one.told()
        assert fifth.version > fourth.version
        assert one.unknown == told_unknown + 1


def _doubts(node: Node) -> int:
    now = source(node)
    return 0 if now is None else now.doubts


def _lose(server: Server) -> None:
    """A change, while nobody reads."""
    if isinstance(server, Postgres):
        _lose_slot(server)
    else:
        _lose_log(server)


def _lose_slot(server: Postgres) -> None:
    active = "FROM pg_replication_slots WHERE active"
    server.run(f"SELECT pg_terminate_backend(active_pid) {active}")
    await_that(lambda: not server.run(f"SELECT 1 {active}"), PATIENCE_S)
    server.run("SELECT pg_drop_replication_slot('roskva_shop')")
    server.run("UPDATE products SET price = 14")


def _lose_log(server: MariaDb) -> None:
    for (id,) in server.run(
        "SELECT id FROM information_schema.PROCESSLIST WHERE command = 'Binlog Dump'"
    ):
        server.run(f"KILL {id}")
    server.run("UPDATE products SET price = 14", "FLUSH BINARY LOGS")
    file = server.run("SHOW MASTER STATUS")[0][0]

    def gone() -> bool:
        server.run(f"PURGE BINARY LOGS TO '{file}'")
        return len(server.run("SHOW BINARY LOGS")) == 1

    await_that(gone, PATIENCE_S)


def test_rows_are_told_whoever_is_killed_and_what_is_lost_is_unknown(
    shop: Server, node: Node
) -> None:
    asyncio.run(_rows_are_told(shop, node))
    said = subprocess.run(
        [ROSKVA, "source", "cat", "shop", "--data", str(node.data)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    assert said[0].endswith("the source begins")
    assert "insert  shop/products/1" in said[1]
    lost = "slot" if isinstance(shop, Postgres) else "deleted"
    assert any(lost in line for line in said[1:])
