"""A node, a database and flows on Spark, whoever is killed: real processes, real clients."""

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from tests.serving.nodes import Node, await_that
from tests.sources.servers import Postgres
from tests.sources.shop import in_thread, reading, watcher

from roskva.pipeline.machine import what_is_missing

ROUNDS = int(os.environ.get("ROSKVA_KILL_ROUNDS", "0"))
WARM_S = 180.0
SETTINGS = """
[pipeline]
niceness = 0

[source.shop]
url = "{url}"
tables = ["products"]
direct = false

[ingest.rows]
format = "roskva-changes"
path = "shop"
table = "products"
columns = "id BIGINT, price INT"
payload = "to_json(row)"

[ingest.dearer]
format = "roskva-changes"
path = "shop"
table = "products"
columns = "id BIGINT, price INT"
filter = "row.price > before.price"
name = "concat('dearer/', row.id)"
payload = "row.price"
"""

pytestmark = [
    pytest.mark.verify,
    pytest.mark.skipif(what_is_missing() is not None, reason="Spark or Java is missing"),
]


@pytest.fixture
def node(tmp_path: Path, shop: Postgres) -> Iterator[Node]:
    settings = tmp_path / "roskva.toml"
    settings.write_text(SETTINGS.format(url=shop.url))
    node = Node(tmp_path / "data", "--config", str(settings), pipeline=True)
    node.start()
    try:
        yield node
    finally:
        node.end()


def pipeline(node: Node) -> dict[str, Any]:
    try:
        found: dict[str, Any] = node.status()["pipeline"]
    except httpx.HTTPError:
        return {}
    return found


def flows(node: Node) -> dict[str, dict[str, Any]]:
    parts = pipeline(node).get("parts", [])
    return {part["name"]: part for part in parts if part.get("source") == "shop"}


def together(node: Node, but: int = 0) -> int:
    """The process of the pipeline in which all flows are read for at once; not that one."""

    def found() -> int:
        parts, pid = flows(node), int(pipeline(node).get("pid", 0))
        return pid if pid != but and {p["together"] for p in parts.values()} == {2} else 0

    return await_that(found, WARM_S, lambda: f"{pipeline(node)}\n{node.said()}")


async def _flows_are_told(shop: Postgres, node: Node) -> None:
    shop.run("ALTER TABLE products REPLICA IDENTITY FULL")
    reading(node)
    await in_thread(lambda: together(node))
    async with watcher(node, "products/1") as row, watcher(node, "dearer/1") as dearer:
        shop.run("INSERT INTO products VALUES (1, 10)")
        first = await row.told()
        assert msgspec.json.decode(first.payload or b"") == {"id": 1, "price": 10}
        shop.run("UPDATE products SET price = 9")
        assert (await row.told()).version > first.version
        shop.run("UPDATE products SET price = 12")
        told = await dearer.told()
        assert told.payload == b"12"
        assert told.version == (await row.told()).version

        price, pid = 12, 0
        for _ in range(ROUNDS or 2):
            pid = together(node, but=pid)
            os.kill(pid, signal.SIGKILL)
            price += 1
            shop.run(f"UPDATE products SET price = {price}")
            told = await dearer.told()
            while told.payload != b"%d" % price:
                told = await dearer.told()
            latest = await row.told()
            while latest.version < told.version:
                latest = await row.told()
            assert latest.version == told.version

        shop.run("DELETE FROM products")
        deleted = await row.told()
        assert (deleted.payload, deleted.version > latest.version) == (None, True)

        # What was lost is unknown to the clients of flows, too.
        unknown = dearer.unknown
        shop.run("TRUNCATE products", "INSERT INTO products VALUES (1, 1)")
        shop.run("UPDATE products SET price = 50")
        after = await dearer.told()
        assert (after.payload, after.version > told.version) == (b"50", True)
        assert dearer.unknown == unknown + 1


def test_flows_on_spark_tell_what_rows_become_whoever_is_killed(shop: Postgres, node: Node) -> None:
    asyncio.run(_flows_are_told(shop, node))
    found = flows(node)
    assert {part["lost"] for part in found.values()} == {0}
    assert {part["dead_letters"] for part in found.values()} == {0}
