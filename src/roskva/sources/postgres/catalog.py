"""What PostgreSQL's catalog says of the tables that are published: what is missing, and whether
they are still the same.

The log does not tell of everything that keeps changes from us. A table may be taken out of the
publication and put back, dropped and made anew, or its rows rewritten by ALTER TABLE. So there is a
**print** of how the tables are published, and whoever finds another one than before has missed
something. It has what such events change: the numbers of the publication and of its entries, of the
tables and of the columns of their keys, and of the files with their rows. TRUNCATE, VACUUM FULL and
partitions that come or go change the last one, too. Other columns may come and go.

While a table cannot be read the print is `BROKEN`: what changes in it is passed over until it is
mended, and another print is found.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Final

import msgspec

from roskva.errors import BadName
from roskva.sources.database import AskServer, ServerProblem, Tables
from roskva.sources.names import table_name
from roskva.sources.position import BROKEN

DEFAULT_SCHEMA: Final = "public"
_WITH_COLUMN_LISTS: Final = 150_000
_PRINT_DIGITS: Final = 16

_KEY_OF: Final = (
    "ARRAY(SELECT a.attname::text FROM pg_index i, "
    "unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) "
    "JOIN pg_attribute a ON a.attnum = k.attnum "
    "WHERE i.indrelid = c.oid AND a.attrelid = c.oid AND i.{} ORDER BY k.place)"
)
_PRIMARY_KEY: Final = _KEY_OF.format("indisprimary")
_SERVER: Final = """
SELECT pg_is_in_recovery(), current_setting('wal_level'), current_setting('server_encoding'),
  rolname, rolreplication OR rolsuper,
  current_setting('max_replication_slots')::int - (SELECT count(*) FROM pg_replication_slots),
  current_setting('max_wal_senders')::int - (SELECT count(*) FROM pg_stat_replication)
FROM pg_roles WHERE rolname = current_user
"""
# It waits for no lock, unlike `pg_partition_tree`: somebody may be altering a table for hours.
_TABLES: Final = f"""
SELECT n.nspname, c.relname, c.oid, c.relreplident::text,
  {_PRIMARY_KEY}, {_KEY_OF.format("indisreplident")},
  ARRAY(SELECT attname::text FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        ORDER BY attnum),
  ARRAY(SELECT attnum::int FROM pg_attribute
        WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
        ORDER BY attnum),
  ARRAY(SELECT f.oid || '/' || f.relfilenode FROM pg_class f
        WHERE f.oid IN (
          WITH RECURSIVE tree (oid) AS (SELECT c.oid
            UNION SELECT inhrelid FROM pg_inherits JOIN tree ON inhparent = tree.oid)
          SELECT oid FROM tree)
        ORDER BY f.oid),
  ARRAY(SELECT r.oid || '/' || r.xmin FROM pg_publication_rel r
        JOIN pg_publication p ON p.oid = r.prpubid
        WHERE p.pubname = %s AND r.prrelid = c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (n.nspname, c.relname) IN %s
"""
_PUBLICATION: Final = "SELECT oid || '/' || xmin FROM pg_publication WHERE pubname = %s"
_PUBLISHED: Final = """
SELECT schemaname, tablename, {} FROM pg_publication_tables
WHERE pubname = %s AND (schemaname, tablename) IN %s
"""
_ALL_COLUMNS: Final = """
ARRAY(SELECT attname::text FROM pg_attribute
      WHERE attrelid = (quote_ident(schemaname) || '.' || quote_ident(tablename))::regclass
      AND attnum > 0 AND NOT attisdropped AND attgenerated = '')
"""


class FoundTable(msgspec.Struct, frozen=True):
    oid: int
    identity: str
    """Its replica identity, as in `pgoutput.Relation`."""
    primary: list[str]
    index: list[str]
    """The columns of its replica identity, if that is an index."""
    columns: list[str]
    numbers: list[int]
    """Of the columns."""
    files: list[str]
    """Of its rows, and those of its partitions."""
    entries: list[str]
    """Of it in the publication."""


class PostgresTables(msgspec.Struct, frozen=True):
    print: str
    numbers: frozenset[int]
    """Of the tables, as relations."""
    problems: Sequence[ServerProblem]


def look_at_tables(
    ask: AskServer, version: int, publication: str, tables: Tables
) -> PostgresTables:
    """`version`: of the server."""
    wanted = tuple(split_name(name) for name in tables.names)
    entry = ask(_PUBLICATION, publication)
    sent_columns = "attnames::text[]" if version >= _WITH_COLUMN_LISTS else _ALL_COLUMNS
    rows = ask(_PUBLISHED.format(sent_columns), publication, wanted)
    sent: dict[tuple[str, str], list[str]] = {(row[0], row[1]): row[2] for row in rows}
    found = {(row[0], row[1]): FoundTable(*row[2:]) for row in ask(_TABLES, publication, wanted)}
    problems = _publication_problems(
        publication, bool(entry), [name for name in tables.names if split_name(name) not in sent]
    )
    parts: list[object] = [entry]
    for name in tables.names:
        place = split_name(name)
        table = found.get(place)
        key = key_of(tables, name, table.primary if table is not None else ())
        problems += _table_problems(name, table, key, sent.get(place))
        if table is not None:
            numbers = dict(zip(table.columns, table.numbers, strict=True))
            key_numbers = [numbers.get(column) for column in key]
            parts.append((name, table.oid, key_numbers, table.files, table.entries))
    digest = sha256(repr(parts).encode()).hexdigest()[:_PRINT_DIGITS]
    numbers_of_tables = frozenset(table.oid for table in found.values())
    return PostgresTables(BROKEN if problems else digest, numbers_of_tables, problems)


def primary_key(ask: AskServer, relation: int) -> tuple[str, ...]:
    rows = ask(f"SELECT {_PRIMARY_KEY} FROM pg_class c WHERE c.oid = %s", relation)
    return tuple(rows[0][0]) if rows else ()


def server_problems(ask: AskServer, slot: str) -> list[ServerProblem]:
    """Of the server itself."""
    [(standby, level, encoding, user, allowed, slots, senders)] = ask(_SERVER)
    found = []
    if standby:
        found.append(
            ServerProblem("this server is a standby", "name the primary, or promote this one")
        )
    if level != "logical":
        found.append(
            ServerProblem(
                f"wal_level is {level}: the log does not say what was changed",
                "ALTER SYSTEM SET wal_level = logical;  -- and restart PostgreSQL",
            )
        )
    if encoding == "SQL_ASCII":
        found.append(
            ServerProblem(
                "the database is in SQL_ASCII, which does not say what its bytes mean",
                "put what it holds into a database with another encoding",
            )
        )
    if not allowed:
        found.append(
            ServerProblem(f"{user} may not replicate", f'ALTER ROLE "{user}" REPLICATION;')
        )
    if not ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", slot):
        for free, name, what in (
            (slots, "max_replication_slots", "replication slots"),
            (senders, "max_wal_senders", "connections that replicate"),
        ):
            if free <= 0:
                found.append(
                    ServerProblem(f"all {what} are taken", f"raise {name}, and restart PostgreSQL")
                )
    return found


def key_of(tables: Tables, name: str, primary: Sequence[str]) -> tuple[str, ...]:
    return tables.keys.get(name) or tuple(primary)


def split_name(name: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    return schema or DEFAULT_SCHEMA, table


def quoted(name: str) -> str:
    return ".".join('"' + part.replace('"', '""') + '"' for part in split_name(name))


def _publication_problems(
    publication: str, exists: bool, missing: Sequence[str]
) -> list[ServerProblem]:
    listed = ", ".join(map(quoted, missing))
    if not exists:
        return [
            ServerProblem(
                f"there is no publication {publication}",
                f"CREATE PUBLICATION {publication} FOR TABLE {listed};",
            )
        ]
    return [
        ServerProblem(
            f"the publication {publication} lacks {', '.join(missing)}",
            f"ALTER PUBLICATION {publication} ADD TABLE {listed};"
            "  -- and publish_via_partition_root, if it has partitions",
        )
        for _ in missing[:1]
    ]


def _table_problems(
    name: str, table: FoundTable | None, key: tuple[str, ...], sent: list[str] | None
) -> list[ServerProblem]:
    if table is None:
        return [ServerProblem(f"there is no table {name}", "take it out of `tables`, or create it")]
    try:
        table_name(*split_name(name))
    except BadName as error:
        return [ServerProblem(str(error), "rename it, or take it out of `tables`")]
    in_full = f"ALTER TABLE {quoted(name)} REPLICA IDENTITY FULL;"
    if not key:
        return [
            ServerProblem(
                f"{name} has no primary key, so its rows have no names",
                f"add one, or name its columns under keys.{name} and {in_full}",
            )
        ]
    if missing := [column for column in key if column not in table.columns]:
        return [
            ServerProblem(
                f"{name} has no column {missing[0]}",
                f"name others under keys.{name}; a generated column is never sent",
            )
        ]
    if sent is not None and (missing := [column for column in key if column not in sent]):
        return [
            ServerProblem(
                f"{name} is published without {missing[0]}, which its key needs",
                f"publish all columns, or name others under keys.{name}",
            )
        ]
    known = {"d": table.primary, "i": table.index, "f": table.columns}.get(table.identity, [])
    if missing := [column for column in key if column not in known]:
        return [
            ServerProblem(
                f"{name} does not say which row was changed: its replica identity lacks "
                f"{', '.join(missing)}",
                in_full,
            )
        ]
    return []
