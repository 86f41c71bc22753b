"""The databases that are read: started for the benchmark, and what is changed in them.

They sync their logs, as databases do, with the settings of their packages otherwise. A backlog is
made by the server itself, which commits as fast as it can; rows that are to be timed carry when
their statement ran (`sent_us`), so a delay includes the database's own commit.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.sources.servers import MariaDb, Postgres, postgres_binaries

from benchmarks.machine import found
from benchmarks.result import NotMeasured

ROWS: Final = 100_000
TABLE: Final = "products"
SETTINGS: Final = """
fsync = on
shared_buffers = 128MB
max_wal_size = 4GB
max_wal_senders = 40
max_replication_slots = 40
wal_sender_timeout = 0
"""
MARIADB_FLAGS: Final = (
    "--innodb-flush-log-at-trx-commit=1",
    "--sync-binlog=1",
    "--innodb-buffer-pool-size=128M",
)
_TOGETHER: Final = 20
"""Transactions that a connection commits without being asked in between."""
_NOW_US: Final = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


class PostgresShop:
    """A table `products` of so many rows, and a publication of it."""

    kind: Final = "PostgreSQL"

    def __init__(self, server: Postgres) -> None:
        self.server = server
        self.changed = 0
        """Rows so far; one that was changed twice counts twice."""
        server.run(
            f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, name text, price int, sent_us bigint)",
            f"INSERT INTO {TABLE} SELECT i, 'the product with number ' || i, 0, 0 "
            f"FROM generate_series(0, {ROWS - 1}) AS i",
            f"CREATE PUBLICATION roskva_shop FOR TABLE {TABLE}",
        )

    @property
    def url(self) -> str:
        return self.server.url

    def single_rows(self, count: int) -> None:
        """A transaction each. Only the last one waits for the disk."""
        self.server.run(
            "SET synchronous_commit = off",
            f"DO $$ BEGIN FOR i IN 2..{count} LOOP UPDATE {TABLE} SET price = price + 1 "
            f"WHERE id = (i::bigint * 7919) % {ROWS}; COMMIT; END LOOP; END $$",
            "SET synchronous_commit = on",
            f"UPDATE {TABLE} SET price = price + 1 WHERE id = 1",
        )
        self.changed += count

    def one_transaction(self) -> None:
        """Of all rows."""
        self.server.run(f"UPDATE {TABLE} SET price = price + 1")
        self.changed += ROWS

    def transactions(self, count: int, rows: int) -> None:
        """Of so many rows each."""
        self.server.run(
            f"DO $$ BEGIN FOR i IN 0..{count // rows - 1} LOOP "
            f"UPDATE {TABLE} SET price = price + 1 "
            f"WHERE id BETWEEN i * {rows} % {ROWS} AND i * {rows} % {ROWS} + {rows - 1}; "
            "COMMIT; END LOOP; END $$"
        )
        self.changed += count

    def open_loop(self, rate: float, seconds: float, rows: int, writers: int = 1) -> int:
        """Changes the first rows one by one at this rate, whoever is behind; how many changes were
        committed. The database may take fewer than that, and more over several connections."""
        until = time.monotonic() + seconds
        with ThreadPoolExecutor(writers) as threads:
            shares = [
                threads.submit(self._write, f"{writers} + {i}", rate / writers, until, rows)
                for i in range(writers)
            ]
            done = sum(share.result() for share in shares)
        self.changed += done
        return done

    def _write(self, of: str, rate: float, until: float, rows: int) -> int:
        began, done = time.monotonic(), 0
        with self.server.connected() as connection:
            cursor = connection.cursor()
            while (now := time.monotonic()) < until:
                due = min(int(rate * (now - began)), done + _TOGETHER)
                if due > done:
                    cursor.execute(
                        f"DO $$ BEGIN FOR i IN {done}..{due - 1} LOOP UPDATE {TABLE} SET "
                        f"price = i, sent_us = {_NOW_US} "
                        f"WHERE id = (i * {of}) % {rows}; COMMIT; END LOOP; END $$"
                    )
                    done = due
                time.sleep(max(0.0, began + (done + 1) / rate - time.monotonic()))
        return done

    def last_stamps(self, rows: int) -> list[int]:
        """When each of the first rows was changed last."""
        return [
            int(sent)
            for (sent,) in self.server.run(f"SELECT sent_us FROM {TABLE} WHERE id < {rows}")
        ]

    def wal_position(self) -> int:
        [[found]] = self.server.run("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        return int(found)


@contextmanager
def postgres(place: Path) -> Iterator[PostgresShop]:
    if not list(Path("/usr/lib/postgresql").glob("*/bin")):
        raise NotMeasured("PostgreSQL is not installed (on Debian: apt-get install postgresql)")
    directory = Path(tempfile.mkdtemp(dir=place, prefix="postgres-"))
    server = Postgres(directory, postgres_binaries())
    try:
        server.make(SETTINGS)
        yield PostgresShop(server)
    finally:
        server.kill()


class MariaShop:
    """The same table in MariaDB."""

    kind: Final = "MariaDB"

    def __init__(self, server: MariaDb) -> None:
        self.server = server
        self.changed = 0
        server.run(
            f"CREATE TABLE {TABLE} (id bigint PRIMARY KEY, name text, price int, sent_us bigint)",
            f"INSERT INTO {TABLE} SELECT seq, CONCAT('the product with number ', seq), 0, 0 "
            f"FROM seq_0_to_{ROWS - 1}",
        )

    @property
    def url(self) -> str:
        return self.server.url

    def single_rows(self, count: int) -> None:
        """A transaction each, of which none waits for the disk."""
        self.server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 2, GLOBAL sync_binlog = 0")
        self._repeat(count, f"UPDATE {TABLE} SET price = price + 1 WHERE id = i * 7919 % {ROWS}")
        self.server.run("SET GLOBAL innodb_flush_log_at_trx_commit = 1, GLOBAL sync_binlog = 1")
        self.changed += count

    def one_transaction(self) -> None:
        """Of all rows."""
        self.server.run(f"UPDATE {TABLE} SET price = price + 1")
        self.changed += ROWS

    def transactions(self, count: int, rows: int) -> None:
        """Of so many rows each."""
        first = f"i * {rows} % {ROWS}"
        self._repeat(
            count // rows,
            f"UPDATE {TABLE} SET price = price + 1 "
            f"WHERE id BETWEEN {first} AND {first} + {rows - 1}",
        )
        self.changed += count

    def _repeat(self, times: int, statement: str) -> None:
        self.server.run(
            f"BEGIN NOT ATOMIC DECLARE i bigint DEFAULT 0; WHILE i < {times} DO "
            f"{statement}; SET i = i + 1; END WHILE; END"
        )


Shop = PostgresShop | MariaShop


@contextmanager
def mariadb(place: Path) -> Iterator[MariaShop]:
    if found("mariadbd") is None:
        raise NotMeasured("MariaDB is not installed (on Debian: apt-get install mariadb-server)")
    directory = Path(tempfile.mkdtemp(dir=place, prefix="mariadb-"))
    server = MariaDb(directory)
    try:
        server.make(*MARIADB_FLAGS)
        yield MariaShop(server)
    finally:
        server.kill()


@contextmanager
def scratch() -> Iterator[Path]:
    """A directory that the databases' own users can enter."""
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        os.chmod(name, 0o755)
        yield Path(name)
