"""A data directory that is not the newest: restored from a backup, or put back by hand."""

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.serving.nodes import PATIENCE_S, ROSKVA, Node, await_that
from tests.sources.servers import Postgres
from tests.sources.shop import Watcher, in_thread, reading, source, watcher

import roskva
from roskva.model import OFFSET_BITS


def back_up(node: Node, target: Path) -> None:
    subprocess.run([ROSKVA, "backup", str(node.data), str(target)], check=True, capture_output=True)


def restore(node: Node, backup: Path, data: Path, *flags: str) -> None:
    command = [ROSKVA, "restore", *flags, str(backup), str(data)]
    subprocess.run(command, check=True, capture_output=True)
    node.data = data


async def told_of_update(shop: Postgres, one: Watcher, price: int) -> roskva.Notify:
    shop.run(f"UPDATE products SET price = {price}")
    return await one.told()


def ordinal(event: roskva.Notify) -> int:
    return event.version >> OFFSET_BITS


async def _is_restored(shop: Postgres, node: Node, backup: Path) -> None:
    reading(node)
    async with watcher(node, "products/1") as one:
        shop.run("INSERT INTO products VALUES (1, 10)")
        await one.told()
        await in_thread(lambda: back_up(node, backup))
        shop.run("TRUNCATE products", "INSERT INTO products VALUES (1, 11)")
        before = await one.told()
        unknown = one.unknown

        await in_thread(node.stop)
        restore(node, backup, node.data.with_name("restored"))
        await in_thread(node.start)
        await in_thread(lambda: reading(node))
        after = await told_of_update(shop, one, 12)
        assert ordinal(after) > ordinal(before)
        assert one.unknown == unknown + 1, "for the new epoch, and for the doubt"
        now = reading(node)
        assert (now.doubts, now.ordinal) == (1, ordinal(after))
        again = await told_of_update(shop, one, 13)
        assert again.version > after.version
        assert one.unknown == unknown + 1


def test_clients_of_a_restored_node_look_once_and_versions_rise(
    shop: Postgres, node: Node, tmp_path: Path
) -> None:
    asyncio.run(_is_restored(shop, node, tmp_path / "backup"))


async def _has_moved(shop: Postgres, node: Node, backup: Path) -> None:
    reading(node)
    async with watcher(node, "products/1") as one:
        shop.run("INSERT INTO products VALUES (1, 10)")
        before = await one.told()
        unknown = one.unknown
        await in_thread(node.stop)
        back_up(node, backup)
        shop.run("UPDATE products SET price = 11")
        restore(node, backup, node.data.with_name("moved"), "--nothing-published-since")
        await in_thread(node.start)
        after = await one.told()
        assert ordinal(after) == ordinal(before)
        assert after.version > before.version
        assert (one.unknown, reading(node).doubts) == (unknown, 0)


@pytest.mark.verify
def test_a_node_that_moves_goes_on_in_its_log_of_changes(
    shop: Postgres, node: Node, tmp_path: Path
) -> None:
    asyncio.run(_has_moved(shop, node, tmp_path / "backup"))


async def _is_put_back(shop: Postgres, node: Node, copy: Path) -> None:
    reading(node)
    async with watcher(node, "products/1") as one:
        shop.run("INSERT INTO products VALUES (1, 10)")
        await one.told()
        await in_thread(node.stop)
        shutil.copytree(node.data, copy)
        await in_thread(node.start)
        before = await told_of_update(shop, one, 11)
        await in_thread(lambda: await_that(lambda: confirmed(shop, node), PATIENCE_S))
        unknown = one.unknown

        await in_thread(node.stop)
        node.data = copy
        await in_thread(node.start)
        await in_thread(lambda: await_that(lambda: doubts(node) == 1, PATIENCE_S, node.said))
        after = await told_of_update(shop, one, 12)
        assert ordinal(after) > ordinal(before)
        assert one.unknown == unknown + 1
        assert reading(node).doubts == 1


def confirmed(shop: Postgres, node: Node) -> bool:
    """All that was told, and the database was told so."""
    lsn = (reading(node).position or "").partition("/")[2]
    slots = f"SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{lsn}'"
    return bool(shop.run(slots)) and reading(node).changes >= 1


def doubts(node: Node) -> int:
    now = source(node)
    return 0 if now is None else now.doubts


@pytest.mark.verify
def test_data_that_is_older_than_what_the_database_was_told_is_a_doubt(
    shop: Postgres, node: Node, tmp_path: Path
) -> None:
    """Copied and put back by hand: nothing in the directory says so, but the slot is ahead."""
    asyncio.run(_is_put_back(shop, node, tmp_path / "copy"))
