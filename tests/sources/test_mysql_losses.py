"""A real MariaDB that has lost something, or is another one: what it takes for a doubt."""

import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
import pytest
from tests.serving.nodes import await_that
from tests.sources.servers import MariaDb
from tests.sources.test_mysql import (
    after_one,
    cause,
    changes,
    doubts,
    keys,
    read,
    read_changes,
    row,
)

from roskva.errors import BadConfig, Unavailable
from roskva.sources.database import Tables
from roskva.sources.mysql.log import MysqlLog
from roskva.sources.position import GtidPosition
from roskva.sources.reader import Received

READS = int(os.environ.get("ROSKVA_READS", "300"))
WRITERS = 4
PRODUCTS = Tables(("products",))
TABLE = "CREATE TABLE products (id bigint PRIMARY KEY, name text, price decimal(9,2))"


@contextmanager
def a_server(server_id: int, port: int | None = None, *flags: str) -> Iterator[MariaDb]:
    with tempfile.TemporaryDirectory(prefix="roskva-mariadb-") as place:
        server = MariaDb(Path(place), server_id, port)
        try:
            server.make(*flags)
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    with a_server(1) as server:
        yield server


@pytest.fixture
def log(server: MariaDb) -> Iterator[MysqlLog]:
    server.run("DROP TABLE IF EXISTS products", TABLE)
    log = MysqlLog("shop", server.url, None, PRODUCTS)
    yield log
    log.close()


def insert(server: MariaDb, id: int) -> None:
    server.run(f"INSERT INTO products VALUES ({id}, 'more', 1)")


def await_next_second(server: MariaDb, position: GtidPosition) -> None:
    """MariaDB counts commits in seconds: what is later has another one."""
    now = "SELECT UNIX_TIMESTAMP()"
    await_that(lambda: server.run(now)[0][0] * 10**6 > position.last_at, 60.0)


def purge(server: MariaDb) -> None:
    """All of its log but the file that is written."""
    server.run("FLUSH BINARY LOGS")
    file = server.run("SHOW MASTER STATUS")[0][0]

    def gone() -> bool:  # a file is kept until its transactions are safe elsewhere
        server.run(f"PURGE BINARY LOGS TO '{file}'")
        return len(server.run("SHOW BINARY LOGS")) == 1

    await_that(gone, 60.0)


def test_a_log_that_was_deleted_before_it_was_read_is_a_doubt(
    server: MariaDb, log: MysqlLog
) -> None:
    position = after_one(server, log, 1)
    insert(server, 2)
    purge(server)
    insert(server, 3)
    assert cause(log.connect(position, False)) == "purged"
    insert(server, 4)
    assert keys(read_changes(log, 1)) == [("insert", "4")]


def test_a_log_that_was_deleted_after_it_was_read_is_none(server: MariaDb, log: MysqlLog) -> None:
    position = after_one(server, log, 1)
    purge(server)
    insert(server, 2)
    assert cause(log.connect(position, False)) is None
    assert keys(read_changes(log, 1)) == [("insert", "2")]


@pytest.mark.parametrize("rows", [1, 40])
def test_a_log_that_was_reset_is_a_doubt_however_far_it_has_come_since(
    server: MariaDb, log: MysqlLog, rows: int
) -> None:
    server.run("RESET MASTER", *(f"INSERT INTO products VALUES ({i}, 'x', 1)" for i in range(9)))
    position = after_one(server, log, 1000)
    await_next_second(server, position)
    server.run("RESET MASTER", *(f"DELETE FROM products WHERE id = {i}" for i in range(9)))
    for id in range(2000, 2000 + rows):
        insert(server, id)
    assert cause(log.connect(position, False)) == "reset"
    insert(server, 3)
    assert keys(read_changes(log, 1)) == [("insert", "3")]


@pytest.mark.verify
def test_a_log_that_is_reset_while_it_is_read_is_noticed(server: MariaDb, log: MysqlLog) -> None:
    position = after_one(server, log, 1)
    log.connect(position, False)
    await_next_second(server, position)
    server.run("RESET MASTER")
    for id in range(2000, 2100):
        insert(server, id)

    def notices() -> bool:
        try:
            log.lag_bytes()
            return bool(changes(log.read(0.1)))
        except Unavailable:
            return True

    await_that(notices, 60.0)
    assert cause(log.connect(position, False)) == "reset"


def test_a_position_in_the_future_or_of_another_history_is_not_taken(
    server: MariaDb, log: MysqlLog
) -> None:
    position = after_one(server, log, 1)
    future = msgspec.structs.replace(position, gtids="0-1-999999", before="0-1-999998")
    assert cause(log.connect(future, False)) == "reset"
    foreign = msgspec.structs.replace(position, gtids="0-77-5", before="0-77-4", server="77/1")
    with pytest.raises(BadConfig, match="--adopt"):
        log.connect(foreign, False)
    assert cause(log.connect(foreign, True)) == "adopted"
    insert(server, 2)
    assert keys(read_changes(log, 1)) == [("insert", "2")]


def test_a_source_that_was_stopped_at_once_goes_on_if_nothing_happened(
    server: MariaDb, log: MysqlLog
) -> None:
    begun = log.connect(None, False).position
    log.close()
    assert cause(log.connect(begun, False)) is None
    log.close()
    insert(server, 1)
    assert cause(log.connect(begun, False)) == "attached"


@pytest.mark.parametrize("synced", [True, False])
def test_a_database_that_was_killed_goes_on_if_it_syncs_its_commits(
    server: MariaDb, log: MysqlLog, synced: bool
) -> None:
    log.connect(None, False)
    server.sync_commits(synced)
    insert(server, 1)
    read_changes(log, 1)
    server.kill()
    with pytest.raises(Unavailable):
        read(log, lambda found: False)
    position = log_position(log)
    server.start()
    server.sync_commits(synced)
    insert(server, 2)
    assert cause(log.connect(position, False)) is None
    found = read(log, lambda found: len(changes(found)) == 1)
    assert keys(changes(found)) == [("insert", "2")]
    assert doubts(found) == ([] if synced else ["unlogged"])
    server.sync_commits(False)


def test_a_log_that_a_crash_has_cut_off_is_a_doubt(server: MariaDb, log: MysqlLog) -> None:
    position = after_one(server, log, 1)
    insert(server, 2)
    file = server.run("SHOW MASTER STATUS")[0][0]
    server.kill()
    path = server.data / file
    os.truncate(path, path.stat().st_size - 10)
    server.start()
    insert(server, 3)

    def found() -> str | None:
        """Only when it has been tried some times."""
        opened = log.connect(position, False)
        if opened.doubt is not None:
            return opened.doubt.cause
        with suppress(Unavailable):
            return next(iter(doubts(read(log, lambda found: bool(doubts(found))))))
        return None

    assert await_that(found, 60.0) in ("purged", "unlogged", "reset")


def test_a_database_that_was_stopped_in_order_goes_on(server: MariaDb, log: MysqlLog) -> None:
    position = after_one(server, log, 1)
    insert(server, 2)
    server.kill(signal.SIGTERM)
    server.start()
    insert(server, 3)
    assert cause(log.connect(position, False)) is None
    found = read(log, lambda found: len(changes(found)) == 2)
    assert keys(changes(found)) == [("insert", "2"), ("insert", "3")]
    assert doubts(found) == []


def log_position(log: MysqlLog) -> GtidPosition:
    assert log._transactions is not None
    return log._transactions.position


def test_a_transaction_that_waits_for_a_replica_cannot_be_seen(
    server: MariaDb, log: MysqlLog
) -> None:
    """It is in the log, and its session waits before it commits."""
    log.connect(None, False)
    server.run(
        "SET GLOBAL rpl_semi_sync_master_wait_point = 'AFTER_SYNC'",
        "SET GLOBAL rpl_semi_sync_master_timeout = 600000",
        "SET GLOBAL rpl_semi_sync_master_enabled = ON",
    )
    writer = threading.Thread(target=insert, args=(server, 1))
    try:
        writer.start()
        found = read(log, lambda found: bool(changes(found)))
        xids = frozenset(each.xid for each in found if isinstance(each, Received))
        assert log.visible(xids) == frozenset()
        assert server.run("SELECT * FROM products") == []
    finally:
        server.run("SET GLOBAL rpl_semi_sync_master_enabled = OFF")
        writer.join()
    assert log.visible(xids) == xids


@pytest.mark.verify
def test_whoever_is_told_and_looks_finds_the_new_row(server: MariaDb, log: MysqlLog) -> None:
    """Looked at as often as `ROSKVA_READS` says, while several write, and each commit is synced."""
    server.run(*(f"INSERT INTO products VALUES ({id}, 'row', 0)" for id in range(WRITERS)))
    server.sync_commits(True)
    log.connect(None, False)
    stop = threading.Event()
    writers = [threading.Thread(target=write, args=(server, id, stop)) for id in range(WRITERS)]
    for writer in writers:
        writer.start()
    reads, early = 0, 0
    try:
        with server.connected() as connection, connection.cursor() as cursor:
            while reads < READS:
                for each in log.read(0.05):
                    if not isinstance(each, Received):
                        continue
                    xids = frozenset((each.xid,))
                    while not log.visible(xids):
                        early += 1
                    for change in each.part.changes:
                        cursor.execute("SELECT price FROM products WHERE id = %s", change.key)
                        assert cursor.fetchone()[0] >= row(change)["price"]
                        reads += 1
    finally:
        stop.set()
        for writer in writers:
            writer.join()
        server.sync_commits(False)
    sys.stderr.write(f"{reads} reads, {early} times it was too early, 0 stale\n")


def write(server: MariaDb, id: int, stop: threading.Event) -> None:
    with server.connected() as connection, connection.cursor() as cursor:
        price = 0
        while not stop.is_set():
            price += 1
            cursor.execute("UPDATE products SET price = %s WHERE id = %s", (price, id))


@pytest.mark.verify
def test_another_database_at_the_same_address_is_refused() -> None:
    with a_server(1) as first:
        first.run(TABLE)
        log = MysqlLog("shop", first.url, None, PRODUCTS)
        position = after_one(first, log, 1)
        first.kill(signal.SIGTERM)
        await_next = position.last_at // 10**6
        with a_server(1, first.port) as second:
            second.run(TABLE)
            now = "SELECT UNIX_TIMESTAMP()"
            await_that(lambda: second.run(now)[0][0] > await_next, 60.0)
            for id in range(30):
                insert(second, id)
            with pytest.raises(BadConfig, match="another database"):
                log.connect(position, False)
            assert cause(log.connect(position, True)) == "adopted"
            log.close()


@pytest.mark.verify
@pytest.mark.parametrize("knows", [True, False])
def test_a_promoted_replica_is_followed_if_it_has_what_we_have_read(knows: bool) -> None:
    with a_server(1) as first, a_server(2, None, "--log-slave-updates") as second:
        log = MysqlLog("shop", first.url, None, PRODUCTS)
        second.replicate(first)
        first.run(TABLE)
        before = after_one(first, log, 1)
        await_that(lambda: second.run("SELECT @@gtid_slave_pos")[0][0] == before.gtids, 60.0)
        if not knows:
            second.run("STOP SLAVE")
        log.connect(before, False)
        insert(first, 2)
        read_changes(log, 1)
        position = log_position(log)
        log.close()
        if knows:
            await_that(lambda: second.run("SELECT @@gtid_slave_pos")[0][0] == position.gtids, 60.0)
        first.kill()
        second.run("STOP SLAVE", "RESET SLAVE ALL")
        insert(second, 3)
        other = MysqlLog("shop", second.url, None, PRODUCTS)
        assert cause(other.connect(position, False)) == (None if knows else "fork")
        insert(second, 4)
        told = keys(read_changes(other, 2 if knows else 1))
        other.close()
        assert told == [("insert", "3"), ("insert", "4")][0 if knows else 1 :]
