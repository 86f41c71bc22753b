"""A real MariaDB: what is read of it, and what it takes for a loss."""

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.serving.nodes import await_that
from tests.sources.servers import MariaDb

from roskva.errors import BadConfig
from roskva.sources.change import Change
from roskva.sources.database import Tables
from roskva.sources.mysql import log as mysql_log
from roskva.sources.mysql.log import MysqlLog
from roskva.sources.mysql.rows import MAX_SLICE
from roskva.sources.position import GtidPosition
from roskva.sources.reader import Doubtful, LogIdle, LogOpened, Received

Item = Received | Doubtful | LogIdle
TABLES = Tables(("products", "stock"), {"stock": ("place", "product")})


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDb]:
    """In a place that its user can reach, whoever runs the tests."""
    with tempfile.TemporaryDirectory(prefix="roskva-mariadb-") as place:
        server = MariaDb(Path(place))
        try:
            server.make()
            yield server
        finally:
            server.kill()


@pytest.fixture
def log(server: MariaDb) -> Iterator[MysqlLog]:
    server.run(
        "CREATE OR REPLACE TABLE products (id bigint PRIMARY KEY, name text, price decimal(9,2))",
        "CREATE OR REPLACE TABLE stock (product bigint, place varchar(20), count int)",
        "CREATE OR REPLACE TABLE others (id bigint PRIMARY KEY)",
    )
    log = MysqlLog("shop", server.url, None, TABLES)
    yield log
    log.close()


def read(log: MysqlLog, until: Callable[[list[Item]], bool]) -> list[Item]:
    found: list[Item] = []

    def enough() -> bool:
        found.extend(log.read(0.05))
        return until(found)

    await_that(enough, 60.0, lambda: str(found))
    return found


def changes(found: Sequence[Item]) -> list[Change]:
    return [change for each in found if isinstance(each, Received) for change in each.part.changes]


def doubts(found: Sequence[Item]) -> list[str]:
    return [each.doubt.cause for each in found if isinstance(each, Doubtful)]


def read_changes(log: MysqlLog, count: int) -> list[Change]:
    return changes(read(log, lambda found: len(changes(found)) >= count))


def keys(found: Sequence[Change]) -> list[tuple[str, str]]:
    return [(change.op, "/".join(map(str, change.key))) for change in found]


def row(change: Change) -> Any:
    return msgspec.json.decode(change.row)


def cause(opened: LogOpened) -> str | None:
    return None if opened.doubt is None else opened.doubt.cause


def end_of(found: Sequence[Item]) -> GtidPosition:
    last = next(each for each in reversed(found) if isinstance(each, Received))
    assert isinstance(last.part.end, GtidPosition)
    return last.part.end


def after_one(server: MariaDb, log: MysqlLog, id: int) -> GtidPosition:
    """The position behind a row that was inserted and read; nothing reads any more then."""
    log.connect(None, False)
    server.run(f"INSERT INTO products VALUES ({id}, 'first', 1)")
    position = end_of(read(log, lambda found: len(changes(found)) == 1))
    log.close()
    return position


def test_rows_are_read_as_they_were_changed(server: MariaDb, log: MysqlLog) -> None:
    assert cause(log.connect(None, False)) == "attached"
    server.run(
        "INSERT INTO products VALUES (1, 'Salt', 1.50), (2, NULL, NULL)",
        "UPDATE products SET id = 3 WHERE id = 2",
        "DELETE FROM products WHERE id = 3",
        "INSERT INTO others VALUES (1)",
        "INSERT INTO stock VALUES (1, 'Ber/lin', 7)",
        "UPDATE stock SET count = 8",
    )
    found = read(log, lambda found: len(changes(found)) >= 7)
    assert [(change.op, change.table, change.key) for change in changes(found)] == [
        ("insert", "products", ("1",)),
        ("insert", "products", ("2",)),
        ("delete", "products", ("2",)),
        ("insert", "products", ("3",)),
        ("delete", "products", ("3",)),
        ("insert", "stock", ("Ber/lin", "1")),
        ("update", "stock", ("Ber/lin", "1")),
    ]
    rows = [row(change) for change in changes(found)]
    assert rows[:2] == [
        {"id": 1, "name": "Salt", "price": 1.5},
        {"id": 2, "name": None, "price": None},
    ]
    assert bytes(changes(found)[0].row) == b'{"id":1,"name":"Salt","price":1.50}'
    assert msgspec.json.decode(changes(found)[-1].before)["count"] == 7
    xids = frozenset(each.xid for each in found if isinstance(each, Received))
    await_that(lambda: log.visible(xids) == xids, 60.0)


def test_what_was_read_does_not_come_again(server: MariaDb, log: MysqlLog) -> None:
    position = after_one(server, log, 11)
    server.run("INSERT INTO products VALUES (12, 'b', 1)", "INSERT INTO others VALUES (12)")
    opened = log.connect(position, False)
    assert (opened.doubt, opened.position) == (None, position)
    assert keys(read_changes(log, 1)) == [("insert", "12")]


def test_what_is_rolled_back_is_told_to_nobody(server: MariaDb, log: MysqlLog) -> None:
    log.connect(None, False)
    with server.connected() as connection, connection.cursor() as cursor:
        for statement in (
            "BEGIN",
            "INSERT INTO products VALUES (21, 'never', 1)",
            "ROLLBACK",
            "BEGIN",
            "INSERT INTO products VALUES (22, 'a', 1)",
            "SAVEPOINT here",
            "INSERT INTO products VALUES (23, 'never', 1)",
            "ROLLBACK TO here",
            "INSERT INTO products VALUES (24, 'b', 1)",
            "COMMIT",
        ):
            cursor.execute(statement)
    found = read(log, lambda found: len(changes(found)) >= 2)
    assert keys(changes(found)) == [("insert", "22"), ("insert", "24")]
    assert doubts(found) == []


def test_a_large_transaction_comes_in_slices_and_ends_once(server: MariaDb, log: MysqlLog) -> None:
    rows = 3 * MAX_SLICE
    log.connect(None, False)
    server.run(f"INSERT INTO products SELECT seq, 'many', 1 FROM seq_1_to_{rows}")
    found = read(log, lambda found: len(changes(found)) >= rows)
    parts = [each for each in found if isinstance(each, Received)]
    assert [change.key for change in changes(found)] == [(str(i),) for i in range(1, rows + 1)]
    assert len(parts) > 2
    assert len({each.xid for each in parts}) == 1
    assert [each.part.end is not None for each in parts] == [False] * (len(parts) - 1) + [True]
    first = frozenset((parts[0].xid,))
    await_that(lambda: log.visible(first) == first, 60.0)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("TRUNCATE TABLE products", "truncated"),
        ("DROP TABLE products", "truncated"),
        ("RENAME TABLE products TO elsewhere", "truncated"),
        ("ALTER TABLE products DROP PRIMARY KEY, ADD PRIMARY KEY (id, price)", "tables changed"),
        ("SET STATEMENT binlog_format = 'STATEMENT' FOR DELETE FROM products", "unlogged"),
    ],
)
def test_what_rows_cannot_say_is_a_doubt_in_its_place(
    server: MariaDb, log: MysqlLog, statement: str, expected: str
) -> None:
    log.connect(None, False)
    server.run("DROP TABLE IF EXISTS elsewhere", "INSERT INTO products VALUES (31, 'gone', 1)")
    assert keys(read_changes(log, 1)) == [("insert", "31")]
    server.run("ALTER TABLE others COMMENT 'nobody minds'", statement)
    found = read(log, lambda found: bool(doubts(found)))
    assert doubts(found) == [expected]
    [xids] = [each.xids for each in found if isinstance(each, Doubtful)]
    await_that(lambda: log.visible(xids) == xids, 60.0)


def test_a_table_that_was_altered_is_read_with_its_new_columns(
    server: MariaDb, log: MysqlLog
) -> None:
    log.connect(None, False)
    server.run("INSERT INTO products VALUES (41, 'a', 1)")
    read_changes(log, 1)
    server.run("ALTER TABLE products ADD COLUMN more int FIRST")
    server.run("INSERT INTO products VALUES (7, 42, 'b', 1)")
    found = read(log, lambda found: bool(changes(found)))
    assert row(changes(found)[0]) == {"more": 7, "id": 42, "name": "b", "price": 1}
    assert doubts(found) == []


def test_rows_from_before_the_table_was_altered_are_a_doubt(server: MariaDb, log: MysqlLog) -> None:
    position = after_one(server, log, 51)
    server.run(
        "INSERT INTO products VALUES (52, 'unread', 1)",
        "ALTER TABLE products ADD COLUMN more int",
        "INSERT INTO products VALUES (53, 'read', 1, 7)",
    )
    assert cause(log.connect(position, False)) is None
    found = read(log, lambda found: bool(changes(found)))
    assert doubts(found) == ["tables changed"]
    assert keys(changes(found)) == [("insert", "53")]


def test_a_log_that_names_its_columns_is_read_although_they_were_altered(
    server: MariaDb, log: MysqlLog
) -> None:
    server.run("SET GLOBAL binlog_row_metadata = 'FULL'")
    try:
        position = after_one(server, log, 61)
        server.run(
            "INSERT INTO products VALUES (62, 'unread', 1)",
            "ALTER TABLE products CHANGE name title text FIRST",
        )
        assert cause(log.connect(position, False)) is None
        found = read(log, lambda found: bool(changes(found)))
    finally:
        server.run("SET GLOBAL binlog_row_metadata = 'NO_LOG'")
    assert row(changes(found)[0]) == {"id": 62, "name": "unread", "price": 1}
    assert doubts(found) == []


COLUMNS = {
    "tinyint": ("-128", "127"),
    "tinyint unsigned": ("255", "0"),
    "smallint": ("-32768", "32767"),
    "mediumint": ("-8388608", "8388607"),
    "mediumint unsigned": ("16777215", "0"),
    "int": ("-2147483648", "2147483647"),
    "int unsigned": ("4294967295", "0"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "bigint unsigned": ("18446744073709551615", "0"),
    "decimal(30,10)": ("-12345678901234567890.0123456789", "0.0000000001"),
    "decimal(5,0)": ("-99999", "0"),
    "decimal(9,9)": ("-0.000000001", "0.5"),
    "decimal(65,30)": ("-1", "1.000000000000000000000000000001"),
    "float": ("1.5", "-0.1"),
    "double": ("1.7e308", "-0.1"),
    "date": ("'2024-02-29'", "'0000-00-00'"),
    "time": ("'-838:59:59'", "'00:00:01'"),
    "time(1)": ("'-00:00:00.1'", "'00:00:01.9'"),
    "time(3)": ("'-00:00:00.001'", "'12:34:56.789'"),
    "time(6)": ("'-838:59:58.999999'", "'00:00:00.000001'"),
    "datetime": ("'9999-12-31 23:59:59'", "'0000-00-00 00:00:00'"),
    "datetime(5)": ("'2024-02-29 12:34:56.78901'", "'1999-12-31 23:59:59.99999'"),
    "timestamp": ("'2038-01-19 03:14:07'", "0"),
    "timestamp(6)": ("'2024-02-29 12:34:56.123456'", "'1970-01-01 00:00:01.000001'"),
    "year": ("2024", "1901"),
    "bit(10)": ("1023", "0"),
    "bit(64)": ("18446744073709551615", "1"),
    "enum('a','it''s','ü,x') charset latin1": ("'it''s'", "'ü,x'"),
    "set('a','b','c d')": ("'a,c d'", "''"),
    "char(10)": ("'abc  '", "'ü'"),
    "char(10) charset latin1": ("'é€'", "''"),
    "varchar(300)": ("REPEAT('é', 300)", "''"),
    "varchar(20) charset utf16": ("'x😀'", "'é'"),
    "binary(8)": ("x'0100'", "x''"),
    "varbinary(20)": ("x'00ff00'", "x''"),
    "text": ("REPEAT('x', 20000)", "''"),
    "longtext charset latin2": ("'ł'", "''"),
    "mediumblob": ("x'00ff'", "x''"),
    "json": ("'[1, null]'", "'{}'"),
    "point": ("POINT(1, 2)", "POINT(-1, 5)"),
    "uuid": ("'123e4567-e89b-12d3-a456-426655440000'", "'ffffffff-ffff-7fff-bfff-ffffffffff00'"),
    "inet6": ("'2001:db8::ff00:42:8329'", "'::ffff:192.168.0.1'"),
    "inet4": ("'192.168.0.1'", "'255.255.255.0'"),
}
"""By type: two values."""
BINARY = ("binary", "varbinary", "mediumblob", "point")


def shown(type: str, number: int) -> str:
    """As a name or a payload has it."""
    if type.startswith(BINARY):
        return f"CONCAT('\\\\x', LOWER(HEX(c{number})))"
    if type.startswith("bit"):
        return f"c{number} + 0"
    return f"CAST(c{number} AS CHAR CHARACTER SET utf8mb4)"


@pytest.mark.parametrize(
    "settings",
    [
        ("binlog_row_metadata = 'FULL'", "binlog_checksum = 'NONE'"),
        ("log_bin_compress = ON", "log_bin_compress_min_len = 10"),
    ],
    ids=["named", "compressed"],
)
def test_every_type_is_read_as_the_database_shows_it(
    server: MariaDb, log: MysqlLog, settings: Sequence[str]
) -> None:
    before = {name: server.run(f"SELECT @@{name}")[0][0] for name in map(first_word, settings)}
    lenient = "SET GLOBAL sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'"
    columns = ", ".join(f"c{i} {type} NULL" for i, type in enumerate(COLUMNS))
    server.run(
        *(f"SET GLOBAL {setting}" for setting in settings),
        lenient,
        f"CREATE OR REPLACE TABLE stock (product int, place int, {columns}) CHARSET utf8mb4",
    )
    try:
        log.connect(None, False)
        for n in range(2):
            values = ", ".join(each[n] for each in COLUMNS.values())
            server.run(f"INSERT INTO stock VALUES ({n}, {n}, {values})")
        server.run("INSERT INTO stock (product, place) VALUES (2, 2)")
        told = read_changes(log, 3)
    finally:
        server.run(*(f"SET GLOBAL {name} = {value!r}" for name, value in before.items()))
    texts = ", ".join(shown(type, i) for i, type in enumerate(COLUMNS))
    for n, shown_values in enumerate(server.run(f"SELECT {texts} FROM stock ORDER BY product")):
        found = msgspec.json.decode(told[n].row, type=dict[str, msgspec.Raw])
        for i, (type, expected) in enumerate(zip(COLUMNS, shown_values, strict=True)):
            value = text_of(found[f"c{i}"])
            if type in ("float", "double") and value is not None:
                assert float(value) == float(expected), type
            else:
                assert value == (None if expected is None else str(expected)), type


def first_word(text: str) -> str:
    return text.split()[0]


def text_of(value: msgspec.Raw) -> str | None:
    """Numbers with all digits that they are written with."""
    content = bytes(value)
    if content == b"null":
        return None
    return msgspec.json.decode(content, type=str) if content[:1] == b'"' else content.decode()


def test_a_value_that_is_too_large_is_missing(server: MariaDb, log: MysqlLog) -> None:
    server.run("ALTER TABLE products MODIFY name longtext")
    log.connect(None, False)
    server.run("INSERT INTO products VALUES (81, REPEAT('x', 1 << 21), 1)")
    [change] = read_changes(log, 1)
    assert (row(change), change.missing) == ({"id": 81, "price": 1}, ("name",))


def test_an_idle_table_moves_on_with_its_database(server: MariaDb, log: MysqlLog) -> None:
    begun = log.connect(None, False).position
    server.run("INSERT INTO others VALUES (71)")
    found = read(log, lambda found: any(isinstance(each, LogIdle) for each in found))
    assert isinstance(found[-1], LogIdle)
    assert found[-1].position != begun


def test_a_check_says_what_is_missing_and_what_mends_it(server: MariaDb, log: MysqlLog) -> None:
    server.run(
        "CREATE OR REPLACE TABLE nameless (x int)",
        "CREATE OR REPLACE TABLE parts (id int PRIMARY KEY, product bigint, "
        "CONSTRAINT silent FOREIGN KEY (product) REFERENCES products (id) ON DELETE CASCADE)",
        "CREATE OR REPLACE USER guest@'%'",
        "GRANT SELECT ON shop.products TO guest@'%'",
        "SET GLOBAL binlog_format = 'MIXED'",
    )
    try:
        wanted = Tables(("products", "nameless", "absent", "parts"))
        problems = MysqlLog("other", server.url, None, wanted).check()
        assert [problem.sentence for problem in problems] == [
            "binlog_format is MIXED: the log does not say which rows were changed",
            "after a crash the log may lack what the tables have: that is a doubt each time",
            "nameless has no primary key, so its rows have no names",
            "there is no table absent, or it may not be read",
            "parts is changed by its foreign key silent, and the log does not say so",
        ]
        with pytest.raises(BadConfig, match="SET GLOBAL binlog_format = 'ROW'"):
            log.connect(None, False)
    finally:
        server.run("SET GLOBAL binlog_format = 'ROW'", "DROP TABLE parts")
    server.sync_commits(True)
    assert log.check() == []
    server.sync_commits(False)
    guest = MysqlLog("other", server.url.replace("roskva@", "guest@"), None, TABLES).check()
    assert [problem.sentence for problem in guest[1:]] == [
        "guest@% lacks REPLICATION SLAVE",
        "guest@% lacks BINLOG MONITOR",
        "there is no table stock, or it may not be read",
    ]
    assert guest[1].remedy == "GRANT REPLICATION SLAVE ON *.* TO `guest`@`%`;"


def test_who_is_late_takes_what_comes_together(
    server: MariaDb, log: MysqlLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mysql_log, "_LATE_S", -60.0)  # whatever comes was written long ago
    log.connect(None, False)
    server.run(
        "BEGIN NOT ATOMIC DECLARE i int DEFAULT 0; WHILE i < 300 DO "
        "INSERT INTO products VALUES (i, 'one', 1); SET i = i + 1; END WHILE; END"
    )
    found = read_changes(log, 300)
    assert keys(found) == [("insert", str(i)) for i in range(300)]
