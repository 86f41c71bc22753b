"""Visible before told: a real synchronous standby goes away, and comes back."""

import asyncio
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pytest
from tests.serving.nodes import PATIENCE_S, Node, await_that
from tests.sources.followed import Followed
from tests.sources.servers import Postgres, postgres_binaries
from tests.sources.shop import in_thread, reading, watcher

import roskva

pytestmark = pytest.mark.verify
READS: Final = int(os.environ.get("ROSKVA_READS", "300"))
TIMES_AWAY: Final = max(5, READS // 100)
ROWS: Final = 10
_SYNCHRONOUS: Final = "synchronous_standby_names = 'standby'"
_FOLLOWS: Final = """
primary_conninfo = 'host=127.0.0.1 port={port} user=postgres application_name=standby'
synchronous_standby_names = ''
"""


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A database that commits only with its standby."""
    with (
        TemporaryDirectory(prefix="roskva-postgres-") as place,
        TemporaryDirectory(prefix="roskva-postgres-") as beside,
    ):
        primary = Postgres(Path(place), postgres_binaries())
        standby: Postgres | None = None
        try:
            primary.make()
            primary.run(
                "CREATE TABLE products (id bigint PRIMARY KEY, price int)",
                "CREATE PUBLICATION roskva_shop FOR TABLE products",
                f"INSERT INTO products SELECT i, 0 FROM generate_series(1, {ROWS}) i",
            )
            primary.stop()
            standby = primary.copy(Path(beside), _FOLLOWS.format(port=primary.port), standby=True)
            primary.configure(_SYNCHRONOUS)
            primary.start()
            standby.start()
            yield primary, standby
        finally:
            if standby is not None:
                standby.kill()
            primary.kill()


@pytest.fixture
def shop(pair: tuple[Postgres, Postgres]) -> Postgres:
    return pair[0]


@contextmanager
def _in_background(server: Postgres, statement: str) -> Iterator[None]:
    """It waits for the standby."""
    running = threading.Thread(target=server.run, args=(statement,))
    running.start()
    yield
    running.join(PATIENCE_S)
    assert not running.is_alive()


def test_what_waits_for_a_standby_is_told_to_nobody_until_it_can_be_seen(
    pair: tuple[Postgres, Postgres], tmp_path: Path
) -> None:
    primary, standby = pair
    source = Followed(primary, tmp_path / "source", "products")
    source.start()
    try:
        source.reading()
        primary.run("UPDATE products SET price = 1 WHERE id = 1")
        source.told("products/1")

        standby.kill()
        with _in_background(primary, "UPDATE products SET price = 2 WHERE id = 2"):
            await_that(lambda: source.alarm, PATIENCE_S)
            assert source.names() == ["products/1"]
            assert primary.run("SELECT price FROM products WHERE id = 2") == [(0,)]
            primary.administer(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
            )
        source.told("products/2")
        await_that(lambda: not source.alarm, PATIENCE_S)

        with _in_background(primary, "UPDATE products SET price = 3 WHERE id = 3"):
            await_that(lambda: source.alarm, PATIENCE_S)
            assert source.names() == ["products/1", "products/2"]
            standby.start()
        source.told("products/3")
        assert source.doubts() == ["attached"]
    finally:
        source.stop()


def test_a_doubt_waits_for_what_was_committed_before_its_place_and_nobody_sees(
    pair: tuple[Postgres, Postgres], tmp_path: Path
) -> None:
    """A slot waits twice for those who are running. Whoever begins after that and commits before
    the third look is before its place, and may wait for the standby."""
    primary, standby = pair
    source = Followed(primary, tmp_path / "source", "products")
    with primary.connected() as first, primary.connected() as second:
        xid = _begin(first)
        source.start()
        try:
            _slot_waits_for(primary, xid)
            xid = _begin(second)
            first.rollback()
            _slot_waits_for(primary, xid)
            standby.kill()
            with _in_background(primary, "UPDATE products SET price = 2 WHERE id = 2"):
                waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
                await_that(lambda: primary.administer(waiting), PATIENCE_S)
                second.rollback()
                await_that(lambda: source.alarm or source.doubts(), PATIENCE_S)
                assert source.doubts() == []
                assert primary.run("SELECT price FROM products WHERE id = 2") == [(0,)]
                standby.start()
            assert source.doubt() == "attached"
            assert source.names() == []
        finally:
            source.stop()


def _begin(connection: Any) -> str:
    connection.autocommit = False
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_current_xact_id()::text")
        return str(cursor.fetchone()[0])


def _slot_waits_for(server: Postgres, xid: str) -> None:
    waits = f"SELECT 1 FROM pg_locks WHERE NOT granted AND transactionid::text = '{xid}'"
    await_that(lambda: server.administer(waits), PATIENCE_S)


class Writer(threading.Thread):
    """Row after row, each with a higher price than the one before."""

    def __init__(self, server: Postgres) -> None:
        super().__init__()
        self.server = server
        self.stopping = threading.Event()
        self.price = 0

    def run(self) -> None:
        with self.server.connected() as connection:
            cursor = connection.cursor()
            while not self.stopping.is_set():
                self.price += 1
                cursor.execute(
                    "UPDATE products SET price = %s WHERE id = %s",
                    (self.price, 1 + self.price % ROWS),
                )


class Away(threading.Thread):
    """The standby is away for a while, again and again, in one way or the other."""

    def __init__(self, standby: Postgres) -> None:
        super().__init__()
        self.standby = standby
        self.stopping = threading.Event()
        self.dice = random.Random(24)
        self.times = 0

    def run(self) -> None:
        while not self.stopping.wait(self.dice.uniform(0.1, 1.0)):
            self.times += 1
            if self.dice.random() < 0.2:
                self.standby.kill()
                self.standby.start()
            else:
                self.standby.send(signal.SIGSTOP)
                self.stopping.wait(self.dice.uniform(0.05, 0.5))
                self.standby.send(signal.SIGCONT)


async def _no_read_is_stale(primary: Postgres, standby: Postgres, node: Node) -> int:
    reads = stale = 0
    writer, away = Writer(primary), Away(standby)
    names = [f"products/{row}" for row in range(1, ROWS + 1)]
    async with watcher(node, *names) as one:
        with primary.connected() as connection:
            cursor = connection.cursor()
            for thread in (writer, away):
                thread.start()
            try:
                async with asyncio.timeout(PATIENCE_S + READS * 0.5):
                    async for event in one.client:
                        if not isinstance(event, roskva.Notify):
                            continue
                        row = msgspec.json.decode(event.payload or b"")
                        cursor.execute("SELECT price FROM products WHERE id = %s", (row["id"],))
                        stale += cursor.fetchone()[0] < row["price"]
                        reads += 1
                        if reads >= READS and away.times >= TIMES_AWAY:
                            break
            finally:
                for thread in (away, writer):
                    thread.stopping.set()
                    await in_thread(thread.join)
    return stale


def test_whoever_is_told_and_reads_finds_what_was_told(
    pair: tuple[Postgres, Postgres], node: Node
) -> None:
    reading(node)
    assert asyncio.run(_no_read_is_stale(*pair, node)) == 0
