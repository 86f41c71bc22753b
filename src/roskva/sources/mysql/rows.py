"""From the events of a binary log to transactions of changes: without I/O.

A transaction is in the log from its GTID to its end, without a gap. Whatever does not fit raises
`BadMessage`, with its place and the position after which it came.

Rows are named by what the catalog says of their table. If it says nothing that fits (the log is
older than the table is now, or the key is gone), that is an error of that table only: `broken`
says so, its rows are passed over, and from there on positions have the print `BROKEN`. The
statement that has altered the table comes later in the log, or when somebody mends it, and then
there is a doubt.

**Statements in place of rows.** TRUNCATE, DROP and their like empty a table, and a session may log
changes as texts. Those are doubts in their places, and so is a transaction that was rolled back in
the log, which happens where engines without transactions take part.

**Distributed transactions (XA)** come when they are prepared. Their rows are kept until they are
committed, which may be much later; if that was before we came, it is a doubt.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import msgspec

from roskva.errors import BadMessage, BadName
from roskva.sources.change import NULL, Change, Op
from roskva.sources.changes import Slice
from roskva.sources.database import Tables
from roskva.sources.mysql.binlog import (
    BinlogDecoder,
    ChangedRows,
    Ended,
    Event,
    Gtid,
    Incident,
    Prepared,
    Query,
    Rotated,
    Row,
    RowLayout,
    TableMap,
    TransactionEnd,
)
from roskva.sources.mysql.gtids import Gtids
from roskva.sources.mysql.statements import Meaning, meaning_of, words_of
from roskva.sources.mysql.tables import Described
from roskva.sources.mysql.values import ABSENT, value_reader
from roskva.sources.names import table_name
from roskva.sources.position import BROKEN, Cause, Doubt, GtidPosition
from roskva.sources.reader import Doubtful, LogIdle, Received

MAX_SLICE: Final = 5_000
"""Changes of one transaction that are handed on together."""
MAX_SLICE_BYTES: Final = 4 << 20
"""Of the events they came in."""
MAX_PREPARED: Final = 50_000
"""Changes that are kept of prepared transactions. Those beyond are a doubt when it is committed."""


class BinlogCatalog(Protocol):
    """What the events do not say."""

    def describe(self, table: TableMap) -> Described | None:
        """As the log has it; None: it is not known how it was."""

    def altered(self, gtid: str) -> bool:
        """A table was altered by that. Whether `describe` has known of it too early."""

    def print(self) -> str:
        """Of the tables, as they are now."""

    def survives(self) -> bool:
        """Whether the log and the tables are the same after a crash of the server's machine."""


class Place(msgspec.Struct, frozen=True):
    """Of a transaction in the log, by which it is asked for."""

    gtid: str
    file: str
    start: int


class BinlogTransactions:
    """Of one connection."""

    def __init__(
        self,
        tables: Tables,
        database: str,
        catalog: BinlogCatalog,
        gtids: Gtids,
        position: GtidPosition,
    ) -> None:
        """`database`: that of tables that are named without one. `position`: where reading
        begins, and `gtids` the same."""
        self.position = position
        """Behind the last transaction that came whole."""
        self.broken: list[str] = []
        """Why tables could not be read."""
        self.places: dict[int, Place] = {}
        """Of transactions that have something of ours, by the number they have here."""
        self._decoder = BinlogDecoder(self._layout)
        self._tables, self._database = tables, database
        self._names = {split_name(name, database): name for name in tables.names}
        self._catalog, self._gtids = catalog, gtids
        self._told = position
        """The last one that was handed on."""
        self._again = False
        """The transaction that comes is one that we have."""
        self._file, self._ended = "", False
        self._number = 0
        self._gtid: Gtid | None = None
        self._open = False
        """Until a COMMIT comes."""
        self._handed_on = False
        self._changes: list[Change] = []
        self._bytes = 0
        self._prepared: dict[str, list[Change] | None] = {}
        """By the name of the transaction; None: too many were changed."""

    def begin_again(self, event: Gtid) -> None:
        """With a transaction that we have: it is passed over."""
        self._begin(event)
        self._again = True

    def note_idle(self, found: list[Received | Doubtful | LogIdle]) -> None:
        """How far the log was read, where nothing of ours says so."""
        if self.position is not self._told and not self._handed_on:
            self._told = self.position
            found.append(LogIdle(self.position))

    def take(self, event: bytes, found: list[Received | Doubtful | LogIdle]) -> None:
        try:
            decoded = self._decoder.decode(event)
            if decoded is not None:
                self._bytes += len(event)
                self._take(decoded, found)
        except BadMessage as error:
            raise BadMessage(f"{error}, at {self.file}:{self.at}, after {self.position}") from error

    def take_first(self, event: bytes) -> Event | None:
        """Before it is known whether the transaction that comes is one that we have."""
        try:
            decoded = self._decoder.decode(event)
            if isinstance(decoded, Rotated):
                self._go_to(decoded.file, [])
            return decoded
        except BadMessage as error:
            raise BadMessage(f"{error}, at {self.file}:{self.at}") from error

    @property
    def file(self) -> str:
        """Of the log, that is being read."""
        return self._decoder.file

    @property
    def at(self) -> int:
        return self._decoder.position

    def _take(self, event: Event, found: list[Received | Doubtful | LogIdle]) -> None:
        match event:
            case ChangedRows():
                self._rows(event, found)
            case Gtid():
                self._begin(event)
            case TransactionEnd():
                self._commit(found)
            case Query():
                self._query(event, found)
            case Prepared(xid=xid):
                self._keep_prepared(xid)
                self._commit(found)
            case Rotated(file=file):
                self._go_to(file, found)
            case Ended():
                self._ended = True
            case Incident():
                self._doubt("unlogged", "the server says that it has lost a part of its log", found)

    def _go_to(self, file: str, found: list[Received | Doubtful | LogIdle]) -> None:
        """A file that does not say that it ends was left by a server that was killed."""
        crashed = self._file not in ("", file) and not self._ended
        self._file, self._ended = file, False
        if crashed and (self._gtid is not None or not self._catalog.survives()):
            sentence = (
                "the server was killed, and what its log has may not be what its tables have: "
                "see sync_binlog and innodb_flush_log_at_trx_commit"
            )
            self._doubt("unlogged", sentence, found)
            self._gtid, self._changes, self._handed_on, self._again = None, [], False, False

    # Transactions.

    def _begin(self, event: Gtid) -> None:
        if self._gtid is not None:
            raise BadMessage(f"the transaction {self._gtid.gtid} does not end")
        self._gtid = event
        self._open = not event.standalone
        self._number += 1
        self._changes, self._bytes, self._handed_on = [], 0, False

    def _commit(self, found: list[Received | Doubtful | LogIdle]) -> None:
        gtid = self._expect_transaction()
        if self._again:
            self._again, self._changes = False, []
        else:
            before = self.position.gtids
            self._gtids.add(gtid.gtid)
            self.position = msgspec.structs.replace(
                self.position, gtids=str(self._gtids), before=before, last_at=gtid.at
            )
        if self._changes or self._handed_on:
            self._hand_on(found, self.position)
            self._told = self.position
        self._gtid, self._handed_on = None, False

    def _keep_prepared(self, xid: str) -> None:
        if not self._again:  # else its rows were passed over
            kept = sum(len(changes or ()) for changes in self._prepared.values())
            many = kept + len(self._changes) > MAX_PREPARED
            self._prepared[xid.lower()] = None if many else self._changes
        self._changes = []

    def _expect_transaction(self) -> Gtid:
        if self._gtid is None:
            raise BadMessage("a transaction has no GTID")
        return self._gtid

    def _hand_on(
        self, found: list[Received | Doubtful | LogIdle], end: GtidPosition | None
    ) -> None:
        gtid = self._expect_transaction()
        if not self._handed_on:
            self._handed_on = True
            self.places[self._number] = Place(gtid.gtid, self._decoder.file, gtid.start)
        part = Slice(gtid.gtid, self._changes, end)
        found.append(Received(self._number, part, self._bytes))
        self._changes, self._bytes = [], 0

    def _doubt(
        self, cause: Cause, sentence: str, found: list[Received | Doubtful | LogIdle]
    ) -> None:
        """Here, and when what is before it can be seen."""
        doubt = Doubt(cause, sentence)
        if self._again:
            return
        if self._gtid is None:
            found.append(Doubtful(doubt, self.position))
            return
        self._hand_on(found, None)
        found.append(Doubtful(doubt, self.position, frozenset((self._number,))))

    # Statements.

    def _query(self, query: Query, found: list[Received | Doubtful | LogIdle]) -> None:
        match meaning_of(query, self._names):
            case Meaning.BEGIN:
                self._open = True
            case Meaning.XA_BEGIN:
                self._open = True
                self._gtid = msgspec.structs.replace(self._expect_transaction(), prepared=True)
            case Meaning.COMMIT:
                self._open = False
            case Meaning.ROLLBACK:
                self._roll_back(query, found)
            case Meaning.XA_COMMIT:
                self._commit_prepared(query, found)
            case Meaning.XA_ROLLBACK:
                self._prepared.pop(_xid(query.text), None)
            case Meaning.ALTERED:
                self._alter(found)
            case Meaning.EMPTIED:
                self._refresh()
                what = " ".join(words_of(query.text)[:2]).upper()
                self._doubt("truncated", f"a table was emptied or replaced by {what}", found)
            case Meaning.UNLOGGED:
                what = words_of(query.text)[0].upper()
                self._doubt("unlogged", f"a log has {what} in place of the rows it changed", found)
        if not self._open:
            self._commit(found)

    def _roll_back(self, query: Query, found: list[Received | Doubtful | LogIdle]) -> None:
        if self._changes or self._handed_on:
            self._changes = []
            self._doubt("unlogged", "a transaction was rolled back within the log", found)
        self._open = _TO_SAVEPOINT in query.text.upper()

    def _commit_prepared(self, query: Query, found: list[Received | Doubtful | LogIdle]) -> None:
        name = _xid(query.text)
        changes = self._prepared.pop(name, None)
        if changes is None:
            self._doubt("unlogged", "a transaction was prepared before we came", found)
        else:
            self._changes = changes

    def _alter(self, found: list[Received | Doubtful | LogIdle]) -> None:
        too_early = self._catalog.altered(self._expect_transaction().gtid)
        before = self.position.tables
        self._refresh()
        if self.position.tables != BROKEN and (too_early or self.position.tables != before):
            sentence = "a table was altered: rows of it may have been taken for others"
            self._doubt("tables changed", sentence, found)

    def _refresh(self) -> None:
        self._decoder.forget_tables()
        self.broken = []
        self.position = msgspec.structs.replace(self.position, tables=self._catalog.print())

    # Rows.

    def _layout(self, table: TableMap) -> RowLayout | None:
        given = self._names.get((table.schema, table.table))
        if given is None:
            return None
        made = self._published(table, given)
        if isinstance(made, RowLayout):
            return made
        self.broken.append(made)
        self.position = msgspec.structs.replace(self.position, tables=BROKEN)
        return None

    def _published(self, table: TableMap, given: str) -> RowLayout | str:
        """Or why it cannot be read."""
        known = self._catalog.describe(table)
        if known is None:
            return (
                f"the table {table} was altered after what is being read, and the log does not say "
                "how it was: SET GLOBAL binlog_row_metadata = FULL"
            )
        schema = None if table.schema == self._database else table.schema
        try:
            made = published(table_name(schema, table.table), known, self._tables.keys.get(given))
            pairs = zip(table.types, table.metas, known.columns, strict=True)
            columns = tuple(value_reader(type, meta, column) for type, meta, column in pairs)
        except (BadName, BadMessage) as error:
            return f"the table {table} cannot be read: {error}"
        return made if isinstance(made, str) else RowLayout(str(table), columns, made)

    def _rows(self, rows: ChangedRows, found: list[Received | Doubtful | LogIdle]) -> None:
        gtid = self._expect_transaction()
        if self._again:
            return
        table: LoggedTable = rows.layout.owner
        try:
            for new, old in rows.rows:
                self._changes += table.changes(rows.op, new, old, gtid.at)
        except ValueError as error:
            raise BadMessage(f"a row of the table {rows.layout.name}: {error}") from error
        many = len(self._changes) >= MAX_SLICE or self._bytes >= MAX_SLICE_BYTES
        if many and not gtid.prepared:
            self._hand_on(found, None)


_TO_SAVEPOINT: Final = " TO "


def _xid(text: str) -> str:
    """Behind XA and the next word."""
    return "".join(text.split(None, 2)[2:]).replace(" ", "").lower().removesuffix("onephase")


class LoggedTable(msgspec.Struct, frozen=True):
    """A table of ours, as the log has it."""

    name: str
    columns: tuple[str, ...]
    key: tuple[int, ...]
    """Where the columns of its key are."""

    def changes(self, op: Op, new: Row | None, old: Row | None, at: int) -> list[Change]:
        """Two, if the row has another name now. `ValueError`: it does not say which row it is."""
        if new is None:
            return [self._change("delete", self._key_of(old or [], old), None, old, at)]
        key = self._key_of(new, old)
        if old is None or (before := self._key_of(old, old)) == key:
            return [self._change(op, key, new, old, at)]
        return [
            self._change("delete", before, None, old, at),
            self._change("insert", key, new, old, at),
        ]

    def _key_of(self, row: Row, old: Row | None) -> tuple[str | None, ...]:
        """What an update left alone may be in the old row only."""
        key = [row[i] for i in self.key]
        if ABSENT in key and old is not None:
            key = [old[i] if row[i] is ABSENT else row[i] for i in self.key]
        if ABSENT in key:
            raise ValueError("it does not say what its key is: SET GLOBAL binlog_row_image = FULL")
        return tuple(map(_as_text, key))

    def _change(
        self, op: Op, key: tuple[str | None, ...], new: Row | None, old: Row | None, at: int
    ) -> Change:
        row = before = NULL
        missing: tuple[str, ...] = ()
        if new is not None:
            row = self._json(new)
            if ABSENT in new:
                pairs = zip(self.columns, new, strict=True)
                missing = tuple(name for name, value in pairs if value is ABSENT)
        if old is not None:
            before = self._json(old)
        return Change(self.name, op, key, row, before, at, missing)

    def _json(self, row: Row) -> msgspec.Raw:
        values = dict(zip(self.columns, row, strict=True))
        if ABSENT in row:
            values = {name: value for name, value in values.items() if value is not ABSENT}
        return msgspec.Raw(msgspec.json.encode(values))


def _as_text(value: object) -> str | None:
    if value is None or type(value) is str:
        return value
    return bytes(value).decode() if isinstance(value, msgspec.Raw) else str(value)


def published(name: str, known: Described, wanted: Sequence[str] | None) -> LoggedTable | str:
    """Or why it cannot be read. `wanted`: the columns of its key, if the settings name them."""
    columns = tuple(column.name for column in known.columns)
    key = tuple(wanted or known.primary)
    if not key:
        return f"the table {name} has no primary key, so its rows have no names"
    if missing := [column for column in key if column not in columns]:
        return f"the table {name} has no column {missing[0]}, which its key needs"
    return LoggedTable(name, columns, tuple(columns.index(column) for column in key))


def split_name(name: str, database: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    return schema or database, table
