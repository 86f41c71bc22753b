"""From the messages of `pgoutput` to transactions of changes: without I/O.

A transaction comes whole: `Begin`, its changes, `Commit`. Its end is where reading goes on, so what
its messages say of that has to agree, with each other and with the head of what they came in.
Whatever does not fit raises `BadMessage`, with the table and the position after which it came.

**A table that cannot be read** (a column of its key is gone, or its replica identity does not have
the key) is an error of that table only: `broken` says so, its changes are passed over, and from
there on positions have the print `BROKEN` (catalog.py): its mending is a doubt.
"""

import re
from collections.abc import Iterable, Sequence, Set
from typing import Final, Protocol

import msgspec

from roskva.errors import BadMessage, BadName
from roskva.sources.change import NULL, Change, Op
from roskva.sources.changes import Slice
from roskva.sources.database import Tables
from roskva.sources.names import table_name
from roskva.sources.position import BROKEN, Doubt, PostgresPosition, lsn_text
from roskva.sources.postgres.catalog import DEFAULT_SCHEMA, key_of
from roskva.sources.postgres.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    PgoutputDecoder,
    Relation,
    RowChange,
    Truncate,
    Value,
)
from roskva.sources.reader import Doubtful, LogIdle, Received

MAX_SLICE: Final = 5_000
"""Changes of one transaction that are handed on together."""
MAX_SLICE_BYTES: Final = 4 << 20
"""Of the messages they came in."""
MAX_VALUE_BYTES: Final = 1 << 20
"""A larger value is not kept: its column is among those that are missing."""
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
_NUMBER: Final = re.compile(rb"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_ZERO: Final = ord("0")
_NOT_IN_JSON: Final = frozenset((b"NaN", b"Infinity", b"-Infinity"))
_BOOLEAN: Final = 16
_BOOLEANS: Final = {b"t": True, b"f": False}
_NOT_TEXT: Final = _NUMBERS | {_BOOLEAN}
_encode: Final = msgspec.json.Encoder().encode


class RelationCatalog(Protocol):
    """What the messages do not say."""

    def primary_key(self, relation: int) -> tuple[str, ...]: ...

    def print(self) -> str:
        """As it is now."""


class Transactions:
    """Of one connection."""

    def __init__(
        self,
        tables: Tables,
        catalog: RelationCatalog,
        numbers: Set[int],
        position: PostgresPosition,
    ) -> None:
        """`numbers`: of the tables, as relations. `position`: where reading begins."""
        self.position = position
        """Behind the last transaction that came whole."""
        self.broken: list[str] = []
        """Why tables could not be read."""
        self.in_transaction = False
        self._tables, self._catalog, self._numbers = tables, catalog, numbers
        self._decoder = PgoutputDecoder()
        self._published: dict[int, Published | None] = {}
        """By the number of a relation; None: it is not read."""
        self._begin = Begin(0, 0, 0)
        self._changes: list[Change] = []
        self._bytes = 0

    def take(self, payload: bytes, start: int, found: list[Received | Doubtful | LogIdle]) -> None:
        """`start`: the position at the head of the message."""
        try:
            self._take(payload, start, found)
        except BadMessage as error:
            raise BadMessage(f"{error}, after {lsn_text(self.position.lsn)}") from error

    def note_idle(self, end: int, found: list[Received | Doubtful | LogIdle]) -> None:
        """The server has read its log up to there."""
        if not (self.in_transaction or found) and end > self.position.lsn:
            self.position = msgspec.structs.replace(self.position, lsn=end)
            found.append(LogIdle(self.position))

    def pass_over(self) -> None:
        """Changes are missing from here on."""
        self.position = msgspec.structs.replace(self.position, tables=BROKEN)

    def _take(self, payload: bytes, start: int, found: list[Received | Doubtful | LogIdle]) -> None:
        message = self._decoder.decode(payload)
        match message:
            case RowChange():
                self._expect(self.in_transaction, message.relation)
                self._changes += self._changes_of(message)
                self._bytes += len(payload)
                if len(self._changes) >= MAX_SLICE or self._bytes >= MAX_SLICE_BYTES:
                    self._hand_on(found, None)
            case Begin():
                self._expect(not self.in_transaction, "Begin")
                self._begin, self.in_transaction = message, True
            case Commit(end=end):
                fits = self._begin.final == message.at < end == start
                self._expect(self.in_transaction and fits, "Commit")
                self.in_transaction = False
                was = self.position
                self.position = PostgresPosition(was.system, was.timeline, end, was.tables)
                self._hand_on(found, self.position)
            case Truncate():
                self._expect(self.in_transaction, "Truncate")
                self._emptied(message, found)
            case Relation():
                self._published[message.id] = self._readable(message)

    def _expect(self, fits: bool, what: object) -> None:
        if not fits:
            raise BadMessage(f"a transaction of pgoutput does not fit together: {what}")

    def _hand_on(
        self, found: list[Received | Doubtful | LogIdle], end: PostgresPosition | None
    ) -> None:
        xid = self._begin.xid
        found.append(Received(xid, Slice(str(xid), self._changes, end), self._bytes))
        self._changes, self._bytes = [], 0

    def _readable(self, relation: Relation) -> "Published | None":
        given = _given_name(relation, self._tables)
        if given is not None:
            key = key_of(self._tables, given, self._catalog.primary_key(relation.id))
            made = published(relation, key)
        elif relation.id in self._numbers:
            made = f"a table is called {relation} now, and the settings do not name it"
        else:
            return None
        if isinstance(made, Published):
            return made
        self.broken.append(made)
        self.pass_over()
        return None

    def _changes_of(self, change: RowChange) -> list[Change]:
        table = self._published[change.relation.id]
        if table is None:
            return []
        try:
            return table.changes(change, self._begin.committed_at)
        except ValueError as error:
            raise BadMessage(f"a row of the table {change.relation}: {error}") from error

    def _emptied(self, message: Truncate, found: list[Received | Doubtful | LogIdle]) -> None:
        tables = [self._published[relation.id] for relation in message.relations]
        emptied = [table.name for table in tables if table is not None]
        if not emptied:
            return
        self._hand_on(found, None)
        if self.position.tables != BROKEN:  # its rows are in another file now
            now = self._catalog.print()
            self.position = msgspec.structs.replace(self.position, tables=now)
        doubt = Doubt("truncated", f"{', '.join(emptied)} was emptied by TRUNCATE")
        found.append(Doubtful(doubt, self.position, frozenset((self._begin.xid,))))


class Published(msgspec.Struct, frozen=True):
    """A table of ours, as it is now."""

    name: str
    key: tuple[int, ...]
    """Where the columns of its key are."""
    identity: frozenset[int]
    """Which columns an old row has."""
    columns: tuple[tuple[str, int], ...]
    """Their names and types."""
    in_full: bool
    """An old row has all columns."""

    def changes(self, change: RowChange, at: int) -> list[Change]:
        """Two, if the row has another name now. `ValueError`: a value is none of its type."""
        new, old = change.new, change.old
        if old is not None and change.in_full != self.in_full:
            raise ValueError("an old row that does not fit its replica identity")
        if new is None:
            assert old is not None
            return [self._change("delete", self._key_of(old), None, old, at)]
        if old is not None and self.in_full and UNCHANGED in new:
            new = [
                was if value == UNCHANGED else value for value, was in zip(new, old, strict=True)
            ]
        key = self._key_of(new, old)
        if old is None:
            return [self._change(change.op, key, new, None, at)]
        before = self._key_of(old)
        if before == key:
            return [self._change(change.op, key, new, old, at)]
        return [
            self._change("delete", before, None, old, at),
            self._change("insert", key, new, old, at),
        ]

    def _key_of(
        self, row: Sequence[Value], old: Sequence[Value] | None = None
    ) -> tuple[str | None, ...]:
        """What a large value of the key was, if the new row does not say, the old one does."""
        key: list[str | None] = []
        for i in self.key:
            value = row[i]
            if value == UNCHANGED and old is not None:
                value = old[i]
            if value == UNCHANGED:
                raise ValueError("it does not say what its key is")
            key.append(None if value is None else value.decode())
        return tuple(key)

    def _change(
        self,
        op: Op,
        key: tuple[str | None, ...],
        new: Sequence[Value] | None,
        old: Sequence[Value] | None,
        at: int,
    ) -> Change:
        row = before = NULL
        missing: tuple[str, ...] = ()
        if new is not None:
            row, missing = _json(zip(self.columns, new, strict=True))
        if old is not None:
            pairs = zip(self.columns, old, strict=True)
            before, _ = _json(pair for i, pair in enumerate(pairs) if i in self.identity)
        return Change(self.name, op, key, row, before, at, missing)


def published(relation: Relation, key: Sequence[str]) -> Published | str:
    """Or why it cannot be read. `key`: the columns of its key."""
    columns = [column.name for column in relation.columns]
    identity = frozenset(i for i, column in enumerate(relation.columns) if column.identity)
    if not key:
        return f"the table {relation} has no primary key, so its rows have no names"
    if missing := [name for name in key if name not in columns]:
        return f"the table {relation} has no column {missing[0]}, which its key needs"
    places = tuple(columns.index(name) for name in key)
    if not identity.issuperset(places):
        return f"the replica identity of the table {relation} lacks its key"
    schema = None if relation.schema == DEFAULT_SCHEMA else relation.schema
    pairs = tuple((column.name, column.type) for column in relation.columns)
    try:
        name = table_name(schema, relation.table)
    except BadName as error:
        return str(error)
    return Published(name, places, identity, pairs, relation.identity == "f")


def _given_name(relation: Relation, tables: Tables) -> str | None:
    """As the settings call it, if they do."""
    names = [f"{relation.schema}.{relation.table}"]
    if relation.schema == DEFAULT_SCHEMA:
        names.append(relation.table)
    return next((name for name in names if name in tables.names), None)


def _json(pairs: Iterable[tuple[tuple[str, int], Value]]) -> tuple[msgspec.Raw, tuple[str, ...]]:
    """Numbers as they are written, booleans, and all else as text; and the columns that are left
    out. Of all that is done for a change this takes longest, so most values are not passed on."""
    found: dict[str, object] = {}
    missing: list[str] = []
    for (name, type), value in pairs:
        if value is None:
            found[name] = None
        elif value == UNCHANGED or len(value) > MAX_VALUE_BYTES:
            missing.append(name)
        elif type not in _NOT_TEXT:
            found[name] = value.decode()
        else:
            found[name] = _value(value, type)
    return msgspec.Raw(_encode(found)), tuple(missing)


def _value(value: bytes, type: int) -> object:
    if type in _NUMBERS and value not in _NOT_IN_JSON:
        if not (value.isdigit() and value[0] != _ZERO) and not _NUMBER.fullmatch(value):
            raise ValueError(f"{value[:40]!r} is no number")
        return msgspec.Raw(value)
    if type == _BOOLEAN:
        if value not in _BOOLEANS:
            raise ValueError(f"{value[:40]!r} is neither true nor false")
        return _BOOLEANS[value]
    return value.decode()
