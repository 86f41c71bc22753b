"""Tables, databases and servers as people have them: every one is read, or refused in words."""

import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import msgspec
import pytest
from tests.serving.certificates import made
from tests.serving.nodes import PATIENCE_S, await_that
from tests.sources.followed import Followed
from tests.sources.servers import Postgres, postgres_binaries

from roskva.errors import BadConfig, Unavailable
from roskva.sources.change import body_of
from roskva.sources.database import Tables
from roskva.sources.names import row_name
from roskva.sources.postgres.log import PostgresLog
from roskva.sources.reader import Received

pytestmark = pytest.mark.verify
ROWS: Final = int(os.environ.get("ROSKVA_ROWS", "100000"))
MAX_GROWTH_BYTES: Final = 200 << 20
LARGE: Final = "x" * 2600
"""Not in the row itself, if it is stored as it is."""


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with TemporaryDirectory(prefix="roskva-postgres-") as place:
        server = Postgres(Path(place), postgres_binaries())
        try:
            server.make("max_prepared_transactions = 5")
            yield server
        finally:
            server.kill()


@pytest.fixture
def source(server: Postgres, tmp_path: Path) -> Iterator[Followed]:
    """Its tables are named by the test, which starts it."""
    source = Followed(server, tmp_path / "source")
    yield source
    source.stop()
    slot = "pg_replication_slots WHERE slot_name = 'roskva_shop'"
    await_that(lambda: not server.run(f"SELECT 1 FROM {slot} AND active"), PATIENCE_S)
    server.run(f"SELECT pg_drop_replication_slot(slot_name) FROM {slot}")
    server.administer("DROP PUBLICATION IF EXISTS roskva_shop", "DROP OWNED BY roskva")
    server.administer(
        "GRANT CREATE ON DATABASE shop TO roskva", "GRANT CREATE ON SCHEMA public TO roskva"
    )


def _begin(source: Followed, *tables: str, **keys: tuple[str, ...]) -> None:
    source.tables = Tables(tables, keys)
    source.start()
    source.reading()
    assert source.doubt() == "attached"


def _row(source: Followed, name: str) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(body_of(source.told(name)).row)
    return found


def test_names_with_capitals_quotes_and_schemas(server: Postgres, source: Followed) -> None:
    server.run(
        'CREATE SCHEMA "Sales"',
        'CREATE TABLE "Sales"."Order""Lines" ("Id" int PRIMARY KEY, "Über" text)',
        'CREATE PUBLICATION roskva_shop FOR TABLE "Sales"."Order""Lines"',
    )
    _begin(source, 'Sales.Order"Lines')
    server.run('INSERT INTO "Sales"."Order""Lines" VALUES (1, \'é\')')
    assert _row(source, 'Sales.Order"Lines/1') == {"Id": 1, "Über": "é"}


def test_a_table_with_partitions(server: Postgres, source: Followed) -> None:
    server.run(
        "CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (100)",
        "CREATE PUBLICATION roskva_shop FOR TABLE parts",
    )
    _begin(source, "parts")
    await_that(lambda: "lacks parts" in source.why, PATIENCE_S)
    server.run("ALTER PUBLICATION roskva_shop SET (publish_via_partition_root = true)")
    assert source.doubt() == "tables changed"
    server.run("INSERT INTO parts VALUES (1, 1)")
    source.told("parts/1")
    server.run("DROP TABLE parts_1")
    assert source.doubt() == "tables changed"


def test_large_values_that_were_left_alone(server: Postgres, source: Followed) -> None:
    server.run(
        "CREATE TABLE docs (id text PRIMARY KEY, body text, n int)",
        "ALTER TABLE docs ALTER COLUMN id SET STORAGE EXTERNAL",
        "ALTER TABLE docs ALTER COLUMN body SET STORAGE EXTERNAL",
        "CREATE TABLE whole (id int PRIMARY KEY, body text, n int)",
        "ALTER TABLE whole ALTER COLUMN body SET STORAGE EXTERNAL",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "CREATE PUBLICATION roskva_shop FOR TABLE docs, whole",
    )
    _begin(source, "docs", "whole")
    server.run(
        f"INSERT INTO docs VALUES ('{LARGE}', '{LARGE}', 1)",
        f"INSERT INTO whole VALUES (1, '{LARGE}', 1)",
        "UPDATE docs SET n = 2",
        "UPDATE whole SET n = 2",
    )
    name = row_name("docs", (LARGE,))
    await_that(lambda: len(source.names()) == 4, PATIENCE_S)
    assert source.names() == [name, "whole/1", name, "whole/1"]
    told = body_of(source.told(name))
    assert "body" in told.missing
    assert _row(source, "whole/1") == {"id": 1, "body": LARGE, "n": 2}


def test_a_value_that_is_too_large_is_left_out_by_name(server: Postgres, source: Followed) -> None:
    server.run(
        "CREATE TABLE docs (id int PRIMARY KEY, body text)",
        "CREATE PUBLICATION roskva_shop FOR TABLE docs",
    )
    _begin(source, "docs")
    server.run("INSERT INTO docs VALUES (1, repeat('x', 3000000))")
    told = body_of(source.told("docs/1"))
    assert (bytes(told.row), told.missing) == (b'{"id":1}', ("body",))


def test_generated_columns_are_not_sent_and_cannot_be_keys(
    server: Postgres, source: Followed
) -> None:
    server.run(
        "CREATE TABLE sums (id int PRIMARY KEY, g int GENERATED ALWAYS AS (id * 2) STORED)",
        "ALTER TABLE sums REPLICA IDENTITY FULL",
        "CREATE PUBLICATION roskva_shop FOR TABLE sums",
    )
    [problem] = PostgresLog("shop", server.url, None, Tables(("sums",), {"sums": ("g",)})).check()
    assert problem.sentence == "sums has no column g"
    _begin(source, "sums")
    server.run("INSERT INTO sums VALUES (1)")
    assert _row(source, "sums/1") == {"id": 1}


def test_a_prepared_transaction_is_told_when_it_is_committed(
    server: Postgres, source: Followed
) -> None:
    server.run(
        "CREATE TABLE items (id int PRIMARY KEY)", "CREATE PUBLICATION roskva_shop FOR TABLE items"
    )
    _begin(source, "items")
    with server.connected() as connection:
        cursor = connection.cursor()
        for statement in ("BEGIN", "INSERT INTO items VALUES (1)", "PREPARE TRANSACTION 'one'"):
            cursor.execute(statement)
    server.run("INSERT INTO items VALUES (2)")
    source.told("items/2")
    assert source.names() == ["items/2"]
    server.run("COMMIT PREPARED 'one'")
    source.told("items/1")


def test_names_do_not_depend_on_what_a_role_prefers(server: Postgres, source: Followed) -> None:
    server.run(
        "CREATE TABLE times (at timestamptz, raw bytea, PRIMARY KEY (at, raw))",
        "CREATE PUBLICATION roskva_shop FOR TABLE times",
    )
    server.administer(
        "ALTER ROLE roskva SET timezone = 'Asia/Tokyo'",
        "ALTER ROLE roskva SET bytea_output = 'escape'",
        "ALTER ROLE roskva SET datestyle = 'German'",
    )
    try:
        _begin(source, "times")
        server.run("INSERT INTO times VALUES ('2025-06-01 12:00:00 UTC', '\\x00ff')")
        source.told("times/2025-06-01 12:00:00%2b00/\\x00ff")
    finally:
        server.administer("ALTER ROLE roskva RESET ALL")


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII"])
def test_databases_in_other_encodings(server: Postgres, encoding: str) -> None:
    name = encoding.lower()
    server.administer(
        f"CREATE DATABASE {name} OWNER roskva ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"
    )
    log = PostgresLog("other", server.url.replace("/shop", f"/{name}"), None, Tables(("docs",)))
    with server.connected(database=name) as connection:
        connection.set_client_encoding("UTF8")
        cursor = connection.cursor()
        cursor.execute("CREATE TABLE docs (id text PRIMARY KEY)")
        cursor.execute("CREATE PUBLICATION roskva_other FOR TABLE docs")
        try:
            if encoding == "SQL_ASCII":
                with pytest.raises(BadConfig, match="SQL_ASCII"):
                    log.connect(None, False)
                return
            log.connect(None, False)
            cursor.execute("INSERT INTO docs VALUES ('é')")
            keys: list[object] = []
            while not keys:
                for each in log.read(0.1):
                    if isinstance(each, Received):
                        keys += [change.key for change in each.part.changes]
            assert keys == [("é",)]
        finally:
            log.close()


def test_a_large_transaction_does_not_fill_the_memory(server: Postgres, source: Followed) -> None:
    server.run(
        "CREATE TABLE items (id int PRIMARY KEY, note text)",
        "CREATE PUBLICATION roskva_shop FOR TABLE items",
    )
    _begin(source, "items")
    before, most, done = _resident(), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.wait(0.05):
            most = max(most, _resident())

    watching = threading.Thread(target=watch)
    watching.start()
    server.run(f"INSERT INTO items SELECT i, repeat('x', 100) FROM generate_series(1, {ROWS}) i")
    try:
        await_that(lambda: source.changed >= ROWS, 10 * PATIENCE_S)
    finally:
        done.set()
        watching.join()
    assert most - before < MAX_GROWTH_BYTES


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_tls_and_passwords(tmp_path: Path) -> None:
    ours, strange = made(tmp_path / "ours"), made(tmp_path / "strange")
    with TemporaryDirectory(prefix="roskva-postgres-") as place:
        server = Postgres(Path(place), postgres_binaries())
        try:
            server.make()
            server.run(
                "CREATE TABLE items (id int PRIMARY KEY)",
                "CREATE PUBLICATION roskva_shop FOR TABLE items",
            )
            server.administer("ALTER ROLE roskva PASSWORD 'secret'")
            server.encrypt(ours, "host all roskva all scram-sha-256")
            tables = Tables(("items",))
            log = PostgresLog("shop", server.url, "secret", tables, str(ours / "ca.crt"))
            assert log.connect(None, False).doubt is not None
            log.close()
            with pytest.raises(Unavailable, match="password authentication failed"):
                PostgresLog("shop", server.url, "wrong", tables).connect(None, False)
            with pytest.raises(Unavailable, match="certificate"):
                PostgresLog("shop", server.url, "secret", tables, str(strange / "ca.crt")).connect(
                    None, False
                )
        finally:
            server.kill()
