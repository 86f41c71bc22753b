"""What the text of a statement in a binary log means for tables whose rows are followed.

With `binlog_format = ROW` a log has texts for what is no change of a row. But a session may choose
to log its changes as texts as well, and some statements empty a table without naming a row: what
follows from those cannot be told row by row.
"""

import re
from collections.abc import Iterable
from enum import Enum, auto
from typing import Final

from roskva.sources.mysql.binlog import Query


class Meaning(Enum):
    OTHER = auto()
    """It changes no row of ours."""
    BEGIN = auto()
    COMMIT = auto()
    ROLLBACK = auto()
    """Of the transaction; or to a savepoint, and then rows before it in the log may not count."""
    XA_BEGIN = auto()
    XA_COMMIT = auto()
    XA_ROLLBACK = auto()
    ALTERED = auto()
    """A table of ours has other columns perhaps, or is there again."""
    EMPTIED = auto()
    """A table of ours, or a part of it, is gone, or is another one."""
    UNLOGGED = auto()
    """Rows were changed, perhaps ours, and the log does not say which."""


_BEFORE: Final = re.compile(
    r"(?:[\s(;]|/\*M?!\d*|/\*(?!M?!).*?\*/|(?:--\s|\#)[^\n]*(?:\n|$)|SET\s+STATEMENT\s.*?\sFOR\s)*",
    re.DOTALL | re.IGNORECASE,
)
"""Blanks and comments; of those that a server executes, the beginning."""
_WORDS: Final = re.compile(r"[a-z]+", re.IGNORECASE)
_CONTROL: Final = {
    "BEGIN": Meaning.BEGIN,
    "START": Meaning.BEGIN,
    "COMMIT": Meaning.COMMIT,
    "ROLLBACK": Meaning.ROLLBACK,
    "SAVEPOINT": Meaning.OTHER,
    "RELEASE": Meaning.OTHER,
}
_XA: Final = {
    "START": Meaning.XA_BEGIN,
    "BEGIN": Meaning.XA_BEGIN,
    "COMMIT": Meaning.XA_COMMIT,
    "ROLLBACK": Meaning.XA_ROLLBACK,
}
_CHANGES: Final = frozenset(
    ("INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "WITH", "CALL", "SELECT", "DO", "EXECUTE")
)
_DROPS: Final = re.compile(r"(TRUNCATE|DROP\s+TABLES?|RENAME\s+TABLES?)\b", re.IGNORECASE)
_DROPS_ALL: Final = re.compile(r"DROP\s+(DATABASE|SCHEMA)\b", re.IGNORECASE)
_REPLACES: Final = re.compile(r"CREATE\s+OR\s+REPLACE\s+TABLE\b", re.IGNORECASE)
_ALTERS: Final = re.compile(r"(ALTER\b.*?\bTABLE|CREATE\s+TABLE)\b", re.DOTALL | re.IGNORECASE)
_REPLACES_PARTS: Final = re.compile(
    r"\b(PARTITION|PARTITIONING|RENAME\s+(?!COLUMN|INDEX|KEY)|TABLESPACE)", re.IGNORECASE
)


def words_of(text: str) -> list[str]:
    """The first of a statement: what it does, without values that nobody else should see."""
    return _WORDS.findall(_stripped(text)[:200])


def _stripped(text: str) -> str:
    return text[_BEFORE.match(text).end() :]  # type: ignore[union-attr]


def meaning_of(query: Query, tables: Iterable[tuple[str, str]]) -> Meaning:
    """`tables`: ours, with their databases."""
    text, words = _stripped(query.text), words_of(query.text)
    first = words[0].upper() if words else ""
    if first in _CONTROL:
        return _CONTROL[first]
    if first == "XA":
        return _XA.get(words[1].upper() if len(words) > 1 else "", Meaning.OTHER)
    databases = {database for database, _ in tables}
    if first in _CHANGES:
        near = any(_near(query, text, database) for database in databases)
        return Meaning.UNLOGGED if near else Meaning.OTHER
    if _DROPS_ALL.match(text):
        named = any(_names(text, database) for database in databases)
        return Meaning.EMPTIED if named else Meaning.OTHER
    ours = any(_near(query, text, database) and _names(text, name) for database, name in tables)
    return _of_definition(text) if ours else Meaning.OTHER


def _of_definition(text: str) -> Meaning:
    if _DROPS.match(text) or _REPLACES.match(text):
        return Meaning.EMPTIED
    if _ALTERS.match(text):
        return Meaning.EMPTIED if _REPLACES_PARTS.search(text) else Meaning.ALTERED
    return Meaning.OTHER


def _near(query: Query, text: str, database: str) -> bool:
    return query.database.lower() == database.lower() or _names(text, database)


def _names(text: str, name: str) -> bool:
    """Anywhere, and as a whole word."""
    return re.search(rf"(?<![\w$]){re.escape(name)}(?![\w$])", text, re.IGNORECASE) is not None
