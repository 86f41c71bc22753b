"""Everything that makes a PostgreSQL lose changes, or our place among them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.serving.nodes import PATIENCE_S, await_that
from tests.sources.servers import Postgres

_SLOT: Final = "pg_replication_slots WHERE slot_name = 'roskva_shop'"


@dataclass(frozen=True)
class Loss:
    cause: str
    """Of the doubt, if it was away."""
    provoke: Callable[[Postgres], None]
    at_work: str = ""
    """The same while it reads; empty: it cannot happen then."""


def set_up(server: Postgres) -> None:
    server.administer(
        "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE active"
    )
    await_that(lambda: not server.administer(f"SELECT 1 FROM {_SLOT} AND active"), PATIENCE_S)
    server.administer(f"SELECT pg_drop_replication_slot(slot_name) FROM {_SLOT}")
    server.administer(
        "DROP PUBLICATION IF EXISTS roskva_shop",
        "DROP TABLE IF EXISTS products, goods, orders",
        "CREATE TABLE products (id bigint PRIMARY KEY, price int)",
        "CREATE TABLE orders (id bigint PRIMARY KEY)",
        "ALTER TABLE products OWNER TO roskva",
        "ALTER TABLE orders OWNER TO roskva",
        "INSERT INTO products VALUES (1, 10)",
        "CREATE PUBLICATION roskva_shop FOR TABLE products, orders",
        "ALTER PUBLICATION roskva_shop OWNER TO postgres",
    )


def _statements(*statements: str) -> Callable[[Postgres], None]:
    def provoke(server: Postgres) -> None:
        server.administer(*statements)

    return provoke


def _dropped(server: Postgres) -> None:
    server.administer("SELECT pg_drop_replication_slot('roskva_shop')", _MISSED)


def _made_anew(server: Postgres) -> None:
    _dropped(server)
    server.administer("SELECT pg_create_logical_replication_slot('roskva_shop', 'pgoutput')")


def _invalidated(server: Postgres) -> None:
    server.administer("ALTER SYSTEM SET max_slot_wal_keep_size = '1MB'", "SELECT pg_reload_conf()")
    try:
        for _ in range(3):
            server.administer(_MISSED, "SELECT pg_switch_wal()")

        def lost() -> bool:
            server.administer("CHECKPOINT")
            return server.administer(f"SELECT wal_status FROM {_SLOT}") == [("lost",)]

        await_that(lost, PATIENCE_S)
    finally:
        server.administer("ALTER SYSTEM RESET max_slot_wal_keep_size", "SELECT pg_reload_conf()")


_MISSED: Final = "UPDATE products SET price = price + 1"

LOSSES: Final = {
    "the slot is dropped": Loss("slot missing", _dropped),
    "the slot is made anew": Loss("slot ahead", _made_anew),
    "the slot is invalidated": Loss("slot lost", _invalidated),
    "somebody else reads the slot": Loss(
        "slot ahead",
        _statements(
            _MISSED,
            "SELECT pg_replication_slot_advance('roskva_shop', pg_current_wal_lsn())",
        ),
    ),
    "a table is emptied": Loss(
        "tables changed", _statements("TRUNCATE products"), at_work="truncated"
    ),
    "a table is taken out and put back": Loss(
        "tables changed",
        _statements(
            "ALTER PUBLICATION roskva_shop DROP TABLE products",
            _MISSED,
            "ALTER PUBLICATION roskva_shop ADD TABLE products",
        ),
        at_work="tables changed",
    ),
    "the publication is made anew": Loss(
        "tables changed",
        _statements(
            "DROP PUBLICATION roskva_shop",
            _MISSED,
            "CREATE PUBLICATION roskva_shop FOR TABLE products, orders",
        ),
        at_work="tables changed",
    ),
    "less is published for a while": Loss(
        "tables changed",
        _statements(
            "ALTER PUBLICATION roskva_shop SET (publish = 'insert')",
            _MISSED,
            "ALTER PUBLICATION roskva_shop SET (publish = 'insert, update, delete, truncate')",
        ),
        at_work="tables changed",
    ),
    "a table is made anew": Loss(
        "tables changed",
        _statements(
            "DROP TABLE products",
            "CREATE TABLE products (id bigint PRIMARY KEY, price int)",
            "ALTER TABLE products OWNER TO roskva",
            "INSERT INTO products VALUES (1, 99)",
            "ALTER PUBLICATION roskva_shop ADD TABLE products",
        ),
        at_work="tables changed",
    ),
    "a table is called otherwise for a while": Loss(
        "tables changed",
        _statements(
            "ALTER TABLE products RENAME TO goods",
            "UPDATE goods SET price = price + 1",
            "ALTER TABLE goods RENAME TO products",
        ),
        at_work="tables changed",
    ),
    "a column of the key is called otherwise for a while": Loss(
        "tables changed",
        _statements(
            "ALTER TABLE products RENAME COLUMN id TO number",
            _MISSED,
            "ALTER TABLE products RENAME COLUMN number TO id",
        ),
    ),
    "a column of the key is made anew": Loss(
        "tables changed",
        _statements(
            "ALTER TABLE products DROP COLUMN id",
            "ALTER TABLE products ADD COLUMN id "
            "bigint GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        ),
        at_work="tables changed",
    ),
    "the replica identity is without the key for a while": Loss(
        "tables changed",
        _statements(
            "CREATE UNIQUE INDEX by_price ON products (price)",
            "ALTER TABLE products ALTER COLUMN price SET NOT NULL",
            "ALTER TABLE products REPLICA IDENTITY USING INDEX by_price",
            _MISSED,
            "ALTER TABLE products REPLICA IDENTITY DEFAULT",
        ),
        at_work="tables changed",
    ),
    "the rows of a table are rewritten": Loss(
        "tables changed",
        _statements("ALTER TABLE products ALTER COLUMN price TYPE int USING price * 2"),
        at_work="tables changed",
    ),
}
