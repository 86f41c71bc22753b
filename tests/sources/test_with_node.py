"""A node whose database publishes by itself: real PostgreSQL, real processes, real clients."""

import asyncio
import os
import signal
import subprocess

import msgspec
from tests.serving.nodes import PATIENCE_S, ROSKVA, Node, await_that
from tests.sources.servers import Postgres
from tests.sources.shop import in_thread, reading, source, watcher


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
    shop: Postgres, node: Node
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
    assert any("slot" in line for line in said[1:])
