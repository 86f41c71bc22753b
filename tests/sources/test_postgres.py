"""A real PostgreSQL: what is read of it, and what it takes for a loss."""

import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from tests.serving.nodes import await_that
from tests.sources.servers import Postgres, postgres_binaries
from typer.testing import CliRunner

from roskva.cli.main import application
from roskva.errors import BadConfig
from roskva.sources.change import Change
from roskva.sources.database import Tables
from roskva.sources.names import row_name
from roskva.sources.position import Position, PostgresPosition, lsn_text
from roskva.sources.postgres.log import PostgresLog, read_history, seen_in
from roskva.sources.reader import Doubtful, LogIdle, Received

TABLES = Tables(("products", "stock"), {"stock": ("place", "product")})


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    """In a place that its user can reach, whoever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="roskva-postgres-") as place:
        yield from _served(Postgres(Path(place), postgres_binaries()))


def _served(server: Postgres) -> Iterator[Postgres]:
    try:
        server.make()
        server.run(
            "CREATE TABLE products (id bigint PRIMARY KEY, name text, price numeric, ok boolean)",
            "CREATE TABLE stock (product bigint, place text, count int, UNIQUE (place, product))",
            "ALTER TABLE stock REPLICA IDENTITY FULL",
            "CREATE TABLE others (id bigint PRIMARY KEY)",
            "CREATE PUBLICATION roskva_shop FOR TABLE products, stock, others",
        )
        yield server
    finally:
        server.kill()


@pytest.fixture
def log(server: Postgres) -> Iterator[PostgresLog]:
    log = PostgresLog("shop", server.url, None, TABLES)
    yield log
    leave(server, log)
    server.run(
        "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
        "WHERE slot_name = 'roskva_shop'"
    )


def leave(server: Postgres, log: PostgresLog) -> None:
    """The server takes a moment to notice."""
    log.close()
    busy = "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'roskva_shop' AND active"
    await_that(lambda: not server.run(busy), 60.0)


def read(log: PostgresLog, count: int) -> list[Received | Doubtful | LogIdle]:
    found: list[Received | Doubtful | LogIdle] = []
    while sum(isinstance(each, Received | Doubtful) for each in found) < count:
        found += log.read(0.1)
    return [each for each in found if not isinstance(each, LogIdle)]


def at(position: Position) -> str:
    assert isinstance(position, PostgresPosition)
    return lsn_text(position.lsn)


def changes(found: Sequence[Received | Doubtful | LogIdle]) -> list[Change]:
    return [change for each in found if isinstance(each, Received) for change in each.part.changes]


def test_rows_are_read_as_they_were_changed(server: Postgres, log: PostgresLog) -> None:
    assert log.connect(None, False).doubt is not None
    server.run(
        "INSERT INTO products VALUES (1, 'Salt', 1.50, true), (2, NULL, 'NaN', NULL)",
        "UPDATE products SET id = 3 WHERE id = 2",
        "DELETE FROM products WHERE id = 3",
        "INSERT INTO others VALUES (1)",
        "INSERT INTO stock VALUES (1, 'Ber/lin', 7)",
    )
    found = read(log, 5)
    told = [(change.op, change.table, change.key) for change in changes(found)]
    assert told == [
        ("insert", "products", ("1",)),
        ("insert", "products", ("2",)),
        ("delete", "products", ("2",)),
        ("insert", "products", ("3",)),
        ("delete", "products", ("3",)),
        ("insert", "stock", ("Ber/lin", "1")),
    ]
    rows = [msgspec.json.decode(change.row) for change in changes(found)]
    assert rows[:2] == [
        {"id": 1, "name": "Salt", "price": 1.5, "ok": True},
        {"id": 2, "name": None, "price": "NaN", "ok": None},
    ]
    xids = frozenset(each.xid for each in found if isinstance(each, Received))
    assert log.visible(xids) == xids


def test_what_was_not_confirmed_comes_again_and_nothing_is_in_doubt(
    server: Postgres, log: PostgresLog
) -> None:
    begun = log.connect(None, False).position
    server.run("INSERT INTO products VALUES (11, 'a', 1, true)")
    server.run("INSERT INTO products VALUES (12, 'b', 1, true)")
    first, _ = read(log, 2)
    assert isinstance(first, Received)
    position = first.part.end
    assert position is not None
    log.confirm(position)
    confirmed = f"SELECT 1 FROM pg_replication_slots WHERE confirmed_flush_lsn >= '{at(position)}'"
    await_that(lambda: server.run(confirmed), 60.0)
    leave(server, log)
    again = log.connect(position, False)
    assert (again.doubt, again.position) == (None, position)
    assert [change.key for change in changes(read(log, 1))] == [("12",)]
    leave(server, log)
    doubt = log.connect(begun, False).doubt
    assert doubt is not None, "the slot is beyond that by now"


def test_a_slot_that_is_gone_or_beyond_us_is_a_doubt(server: Postgres, log: PostgresLog) -> None:
    position: Position = log.connect(None, False).position
    leave(server, log)
    server.run("SELECT pg_drop_replication_slot('roskva_shop')")
    server.run("INSERT INTO products VALUES (21, 'missed', 1, true)")
    doubt = log.connect(position, False).doubt
    assert doubt is not None
    assert doubt.cause == "slot missing"
    leave(server, log)
    doubt = log.connect(position, False).doubt
    assert doubt is not None
    assert doubt.cause == "slot ahead"


def test_another_cluster_is_refused_until_it_is_adopted(server: Postgres, log: PostgresLog) -> None:
    position = msgspec.structs.replace(log.connect(None, False).position, system="4711")
    leave(server, log)
    with pytest.raises(BadConfig, match="--adopt"):
        log.connect(position, False)
    leave(server, log)
    doubt = log.connect(position, True).doubt
    assert doubt is not None
    assert doubt.cause == "adopted"


def test_a_table_that_is_emptied_is_a_doubt_in_its_place(
    server: Postgres, log: PostgresLog
) -> None:
    log.connect(None, False)
    server.run("INSERT INTO products VALUES (31, 'gone', 1, true)", "TRUNCATE products")
    found = read(log, 4)
    kinds = [type(each).__name__ for each in found]
    assert kinds.index("Doubtful") > 0
    assert [change.key for change in changes(found)] == [("31",)]


def test_an_idle_table_moves_on_with_its_database(server: Postgres, log: PostgresLog) -> None:
    begun = log.connect(None, False).position
    server.run("CREATE TABLE IF NOT EXISTS quiet (id int)", "INSERT INTO quiet VALUES (1)")
    idle: list[LogIdle] = []
    while not idle:
        idle += [each for each in log.read(0.1) if isinstance(each, LogIdle)]
    assert idle[-1].position != begun


def test_a_check_says_what_is_missing_and_what_mends_it(server: Postgres) -> None:
    server.run("CREATE TABLE nameless (x int)")
    wanted = Tables(("products", "nameless", "absent"))
    problems = PostgresLog("other", server.url, None, wanted).check()
    assert [problem.sentence for problem in problems] == [
        "there is no publication roskva_other",
        "nameless has no primary key, so its rows have no names",
        "there is no table absent",
    ]
    assert PostgresLog("shop", server.url, None, TABLES).check() == []


def test_a_transaction_is_seen_when_a_snapshot_has_it() -> None:
    assert seen_in("100:104:101,103", frozenset((99, 100, 101, 102, 103, 104))) == {99, 100, 102}
    epoch = 7 << 32
    snapshot = f"{epoch - 2}:{epoch + 3}:{epoch - 1}"
    assert seen_in(snapshot, frozenset((2**32 - 2, 2**32 - 1, 0, 3))) == {2**32 - 2, 0}


def test_a_history_says_where_each_timeline_was_left() -> None:
    assert read_history("1\t0/3000000\tno recovery target\n\n2\t0/5000028\tbefore\n") == [
        (1, 0x3000000),
        (2, 0x5000028),
    ]


def test_rows_are_called_as_the_command_says_whatever_is_in_their_keys(server: Postgres) -> None:
    server.run(
        "CREATE TABLE odd (code bytea, place text, count int)",
        "ALTER TABLE odd REPLICA IDENTITY FULL",
        "ALTER PUBLICATION roskva_shop ADD TABLE odd",
    )
    keys = [
        ("a/b", b"\x00\xff"),
        (None, b""),
        ("%-", b"%"),
        ("\u00fc+#\n", b"/"),
        (300 * "x", b"1"),
    ]
    log = PostgresLog("shop", server.url, None, Tables(("odd",), {"odd": ("place", "code")}))
    try:
        log.connect(None, False)
        with server.connected() as connection:
            for place, code in keys:
                row = "INSERT INTO odd (place, code, count) VALUES (%s, %s, 1)"
                connection.cursor().execute(row, (place, code))
        found = [row_name(each.table, each.key) for each in changes(read(log, len(keys)))]
    finally:
        leave(server, log)
        server.run("SELECT pg_drop_replication_slot('roskva_shop')", "DROP TABLE odd")
    assert found[:4] == [
        "odd/a%2fb/\\x00ff",
        "odd/%-/\\x",
        "odd/%25-/\\x25",
        "odd/\u00fc%2b%23%0a/\\x2f",
    ]
    assert re.fullmatch("odd/%~[0-9a-f]{40}", found[4])
    for name, (place, code) in zip(found, keys, strict=True):
        words = [] if place is None else [place]
        null = ["--null", "1"] if place is None else []
        command = ["source", "name", "odd", *words, f"\\x{code.hex()}", *null]
        said = CliRunner().invoke(application(["source"]), command)
        assert said.output == f"{name}\n"
