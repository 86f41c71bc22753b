"""What MariaDB and MySQL say of the tables that are published, beside their binary log.

A log names neither columns nor keys unless it is told to. So a table is asked for when its rows
come, and taken as it is now; if that does not fit what the log says of it, it is not taken. Nor can
it be trusted if it was altered in between, and fits by chance: `Descriptions` knows up to where the
log was when it asked.

The **print** has what names rows: the tables, the columns of their keys and the types of those.
While a table cannot be read the print is `BROKEN` (position.py).
"""

import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from roskva.errors import BadName
from roskva.sources.database import AskServer, ServerProblem, Tables
from roskva.sources.mysql.binlog import TableMap
from roskva.sources.mysql.tables import Described, described
from roskva.sources.mysql.values import ColumnTraits
from roskva.sources.names import table_name
from roskva.sources.position import BROKEN

_PRINT_DIGITS: Final = 16
_FIXED: Final = "char"
_OWN_TEXTS: Final = ("uuid", "inet4", "inet6")
_TABLE: Final = "BASE TABLE"
_COLUMNS: Final = """
SELECT COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION
"""
_PRIMARY_KEY: Final = """
SELECT COLUMN_NAME FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX
"""
_KIND: Final = """
SELECT TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s
"""
_SILENT: Final = re.compile(
    r"CONSTRAINT `((?:[^`]|``)+)` FOREIGN KEY .* ON (?:DELETE|UPDATE) (?:CASCADE|SET NULL|SET DEF)"
)
"""Foreign keys by which engines change rows without a word."""
_CHARSETS: Final = "SELECT ID, CHARACTER_SET_NAME FROM information_schema.{} WHERE ID IS NOT NULL"
HasTransaction = Callable[[str], bool]


class MysqlTables(msgspec.Struct, frozen=True):
    print: str
    problems: Sequence[ServerProblem]


class Descriptions:
    """Of one connection."""

    def __init__(self, ask: AskServer, now: Callable[[], HasTransaction], collations: str) -> None:
        """`now`: what is in the server's log. `collations`: where all of them are listed."""
        self._ask, self._now, self._collations = ask, now, collations
        self._charsets: dict[int, str] = {}
        self._asked: list[HasTransaction] = []
        """What was there when tables were asked for."""

    def describe(self, table: TableMap) -> Described | None:
        said = described(table, self._charset)
        known = describe(self._ask, table.schema, table.table)
        names = None if said is None else [column.name for column in said.columns]
        if not known.fits(table) or names not in (None, [each.name for each in known.columns]):
            return None if said is None else _with_own_texts(said, known)
        if said is not None:
            return Described(known.columns, said.primary)
        self._asked.append(self._now())
        return known

    def altered(self, gtid: str) -> bool:
        too_early = any(there(gtid) for there in self._asked)
        self._asked.clear()
        return too_early

    def _charset(self, collation: int) -> str:
        if not self._charsets:
            rows = self._ask(_CHARSETS.format(self._collations))
            self._charsets = {int(id): name for id, name in rows}
        return self._charsets.get(collation, f"collation {collation}")


def _with_own_texts(said: Described, known: Described) -> Described:
    """Some types are bytes for a log that names its columns, and have a text of their own."""
    own = {column.name: column for column in known.columns if column.type in _OWN_TEXTS}
    columns = (own.get(each.name, each) if each.type == _FIXED else each for each in said.columns)
    return Described(tuple(columns), said.primary)


def describe(ask: AskServer, schema: str, table: str) -> Described:
    """As it is now."""
    columns = tuple(_column(*row) for row in ask(_COLUMNS, schema, table))
    return Described(columns, tuple(row[0] for row in ask(_PRIMARY_KEY, schema, table)))


def _column(name: str, type: str, declared: str, charset: str | None) -> ColumnTraits:
    words = _words(declared) if type in ("enum", "set") else ()
    return ColumnTraits(name, type, "unsigned" in declared and not words, charset, words)


def _words(declared: str) -> tuple[str, ...]:
    """`enum('a','it''s')`: quotes in a word are doubled."""
    quoted = declared[declared.index("'") + 1 : declared.rindex("'")]
    return tuple(word.replace("''", "'") for word in quoted.split("','"))


def look_at_tables(
    ask: AskServer, tables: Tables, names: dict[tuple[str, str], str]
) -> MysqlTables:
    """`names`: as the settings call them, by database and name."""
    problems: list[ServerProblem] = []
    parts: list[object] = []
    for (schema, table), given in names.items():
        known = describe(ask, schema, table)
        key = tables.keys.get(given) or known.primary
        problems += _table_problems(ask, schema, table, given, known, key)
        types = {column.name: column.type for column in known.columns}
        parts.append((schema, table, [(column, types.get(column)) for column in key]))
    digest = sha256(repr(parts).encode()).hexdigest()[:_PRINT_DIGITS]
    return MysqlTables(BROKEN if problems else digest, problems)


def _table_problems(
    ask: AskServer, schema: str, table: str, given: str, known: Described, key: Sequence[str]
) -> list[ServerProblem]:
    quoted = ".".join("`" + part.replace("`", "``") + "`" for part in (schema, table))
    kind = ask(_KIND, schema, table)
    if not kind:
        return [
            ServerProblem(
                f"there is no table {given}, or it may not be read",
                f"GRANT SELECT ON {quoted} TO CURRENT_USER;  -- as an administrator, by its name",
            )
        ]
    if kind[0][0] != _TABLE:  # of a table with versions the log has the old ones as well
        return [
            ServerProblem(f"{given} is no plain table: {kind[0][0].lower()}", "name another one")
        ]
    try:
        table_name(schema, table)
    except BadName as error:
        return [ServerProblem(str(error), "rename it, or take it out of `tables`")]
    if not key:
        return [
            ServerProblem(
                f"{given} has no primary key, so its rows have no names",
                f"add one, or name its columns under keys.{given}",
            )
        ]
    columns = {column.name for column in known.columns}
    if missing := [column for column in key if column not in columns]:
        return [
            ServerProblem(f"{given} has no column {missing[0]}", f"name others under keys.{given}")
        ]
    definition = ask(f"SHOW CREATE TABLE {quoted}")[0][1]
    return [
        ServerProblem(
            f"{given} is changed by its foreign key {constraint}, and the log does not say so",
            f"ALTER TABLE {quoted} DROP FOREIGN KEY `{constraint}`;  -- and add it with RESTRICT",
        )
        for constraint in _SILENT.findall(definition)
    ]
