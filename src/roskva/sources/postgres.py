"""PostgreSQL: logical replication with `pgoutput`, over psycopg2.

Two connections: one that replicates, and one that asks. A transaction comes when it is committed,
which may be a moment before others see it (for as long as a synchronous standby is away, it may be
hours). So `visible` takes a snapshot and looks whether it is in there. Transaction numbers have 32
bits in the stream, and 64 in snapshots.

The **slot** is made when the source begins and whenever it was lost. It keeps the log on the server
from where we have confirmed it, and nothing else: where we are is in our own log. So it is compared
with that at each connection (`position.judge`). An idle table would keep the log of busy ones for
ever; what the server says of its end while nothing of ours is under way is confirmed, too.
"""

import select
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import msgspec
import psycopg2
from psycopg2 import extras, sql

from roskva.errors import BadConfig, BadMessage, Unavailable
from roskva.sources.change import NULL, Change, Op
from roskva.sources.changes import Slice
from roskva.sources.database import ServerProblem, Tables
from roskva.sources.names import table_name
from roskva.sources.pgoutput import (
    UNCHANGED,
    Begin,
    Commit,
    PgoutputDecoder,
    Relation,
    RowChange,
    Truncate,
    Value,
)
from roskva.sources.position import (
    Doubt,
    Position,
    PostgresPosition,
    PostgresServer,
    Slot,
    judge,
    lsn_text,
    read_lsn,
)
from roskva.sources.reader import Doubtful, LogIdle, LogOpened, Received

DEFAULT_SCHEMA: Final = "public"
MAX_SLICE: Final = 5_000
"""Changes of one transaction that are handed on together."""
_MOST_TOGETHER: Final = 20_000
_KEEPALIVE_S: Final = 5.0
_CONNECT_S: Final = 10
_NUMBERS: Final = frozenset((20, 21, 23, 26, 700, 701, 1700))
_BOOLEAN: Final = 16
_NOT_IN_JSON: Final = frozenset((b"NaN", b"Infinity", b"-Infinity"))
_32_BITS: Final = 1 << 32


class PostgresLog:
    """A `DatabaseLog`."""

    def __init__(
        self, name: str, url: str, password: str | None, tables: Tables, ca: str | None = None
    ) -> None:
        self.slot = self.publication = f"roskva_{name.replace('-', '_')}"
        self._arguments = connection_arguments(url, password, ca)
        self._tables = tables
        self._published: dict[int, Published | None] = {}
        """By the number of a relation; None: it is not ours."""
        self._asking: Any = None
        self._replicating: Any = None
        self._stream: Any = None
        self._clear()

    def _clear(self) -> None:
        self._decoder = PgoutputDecoder()
        self._published.clear()
        self._xid = 0
        self._changes: list[Change] = []
        self._in_transaction = False
        self._committed_at = 0
        self._system, self._timeline = "", 0
        self._received = 0

    # Connecting.

    def connect(self, ours: Position | None, adopt: bool) -> LogOpened:
        assert ours is None or isinstance(ours, PostgresPosition)
        self.close()
        self._clear()
        try:
            self._open()
            found = self._look()
            doubt = judge(ours, found, adopt)
            start = ours.lsn if ours is not None else 0
            if doubt is not None:
                start = self._new_start(found.slot)
            self._system, self._timeline = found.system, found.timeline
            self._begin(start)
        except psycopg2.Error as error:
            self.close()
            raise _explained(error) from error
        return LogOpened(PostgresPosition(found.system, found.timeline, start), doubt)

    def _open(self) -> None:
        self._asking = psycopg2.connect(**self._arguments, application_name=self.slot)
        self._asking.autocommit = True
        self._replicating = psycopg2.connect(
            **self._arguments,
            application_name=self.slot,
            connection_factory=extras.LogicalReplicationConnection,
        )

    def _look(self) -> PostgresServer:
        with self._replicating.cursor() as cursor:
            cursor.execute("IDENTIFY_SYSTEM")
            system, timeline = cursor.fetchone()[:2]
            forks = []
            if timeline > 1:
                cursor.execute(f"TIMELINE_HISTORY {timeline}")
                forks = read_history(bytes(cursor.fetchone()[1]))
        return PostgresServer(system, timeline, forks, self._slot())

    def _slot(self) -> Slot | None:
        rows = self._ask(
            "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots "
            "WHERE slot_name = %s",
            self.slot,
        )
        if not rows:
            return None
        confirmed, status = rows[0]
        return Slot(read_lsn(confirmed or "0/0"), "its WAL is gone" if status == "lost" else "")

    def _new_start(self, slot: Slot | None) -> int:
        """Where reading goes on after a doubt: at the slot's place, or at that of a new one."""
        if slot is not None and not slot.lost:
            return slot.confirmed
        if slot is not None:
            self._ask("SELECT pg_drop_replication_slot(%s)", self.slot)
        made = self._ask(
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')", self.slot
        )
        return read_lsn(made[0][0])

    def _begin(self, lsn: int) -> None:
        self._stream = self._replicating.cursor()
        options = f"(proto_version '1', publication_names '\"{self.publication}\"')"
        self._stream.start_replication_expert(
            f'START_REPLICATION SLOT "{self.slot}" LOGICAL {lsn_text(lsn)} {options}',
            status_interval=_KEEPALIVE_S,
        )
        self._received = lsn

    # Reading.

    def read(self, timeout_s: float) -> Sequence[Received | Doubtful | LogIdle]:
        found: list[Received | Doubtful | LogIdle] = []
        count = 0
        try:
            message = self._stream.read_message()
            if message is None:
                select.select([self._stream], [], [], timeout_s)
                message = self._stream.read_message()
            while message is not None:
                self._take(message.payload, found)
                count += 1
                if count >= _MOST_TOGETHER:
                    return found
                message = self._stream.read_message()
            self._note_idle(found)
        except psycopg2.Error as error:
            raise _explained(error) from error
        return found

    def _take(self, payload: bytes, found: list[Received | Doubtful | LogIdle]) -> None:
        try:
            message = self._decoder.decode(payload)
        except BadMessage as error:
            where = lsn_text(self._received)
            raise Unavailable(f"{error}, after {where}: reading goes on from there") from error
        match message:
            case RowChange():
                self._changes += self._changes_of(message)
                if len(self._changes) >= MAX_SLICE:
                    self._hand_on(found, None)
            case Begin():
                self._xid, self._committed_at = message.xid, message.committed_at
                self._in_transaction = True
            case Commit():
                self._received = message.end
                self._in_transaction = False
                self._hand_on(found, self._position(message.end))
            case Truncate():
                self._emptied(message, found)
            case Relation():
                primary = tuple(row[0] for row in self._ask(_PRIMARY_KEY, message.id))
                self._published[message.id] = published(message, self._tables, primary)

    def _hand_on(
        self, found: list[Received | Doubtful | LogIdle], end: PostgresPosition | None
    ) -> None:
        part = Slice(str(self._xid), self._changes, end)
        self._changes = []
        found.append(Received(self._xid, part))

    def _changes_of(self, change: RowChange) -> list[Change]:
        table = self._published[change.relation.id]
        return [] if table is None else table.changes(change, self._committed_at)

    def _emptied(self, message: Truncate, found: list[Received | Doubtful | LogIdle]) -> None:
        tables = [self._published[relation.id] for relation in message.relations]
        emptied = [table.name for table in tables if table is not None]
        if emptied:
            self._hand_on(found, None)
            doubt = Doubt("truncated", f"{', '.join(emptied)} was emptied by TRUNCATE")
            found.append(Doubtful(doubt, self._position(self._received), self._xid))

    def _note_idle(self, found: list[Received | Doubtful | LogIdle]) -> None:
        end = self._stream.wal_end
        if not self._in_transaction and not found and end > self._received:
            self._received = end
            found.append(LogIdle(self._position(end)))

    def _position(self, lsn: int) -> PostgresPosition:
        return PostgresPosition(self._system, self._timeline, lsn)

    # Answering.

    def visible(self, xids: frozenset[int]) -> frozenset[int]:
        try:
            snapshot = self._ask("SELECT pg_current_snapshot()::text")[0][0]
        except psycopg2.Error as error:
            raise _explained(error) from error
        return seen_in(snapshot, xids)

    def confirm(self, position: Position) -> None:
        assert isinstance(position, PostgresPosition)
        if self._stream is None:
            return
        try:
            self._stream.send_feedback(position.lsn, position.lsn, force=True)
        except psycopg2.Error as error:
            raise _explained(error) from error

    def lag_bytes(self) -> int | None:
        try:
            rows = self._ask(
                "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), confirmed_flush_lsn)::bigint "
                "FROM pg_replication_slots WHERE slot_name = %s",
                self.slot,
            )
        except psycopg2.Error as error:
            raise _explained(error) from error
        return int(rows[0][0]) if rows and rows[0][0] is not None else None

    def close(self) -> None:
        for connection in (self._replicating, self._asking):
            if connection is not None:
                with suppress(psycopg2.Error):
                    connection.close()
        self._replicating = self._asking = self._stream = None

    def _ask(self, query: str | sql.Composable, *arguments: object) -> list[tuple[Any, ...]]:
        with self._asking.cursor() as cursor:
            cursor.execute(query, arguments)
            return list(cursor.fetchall())

    # Checking.

    def check(self) -> list[ServerProblem]:
        try:
            self._asking = psycopg2.connect(**self._arguments, application_name=self.slot)
            self._asking.autocommit = True
            return self._problems()
        except psycopg2.Error as error:
            raise _explained(error) from error
        finally:
            self.close()

    def _problems(self) -> list[ServerProblem]:
        found = []
        if (level := self._ask("SHOW wal_level")[0][0]) != "logical":
            found.append(
                ServerProblem(
                    f"wal_level is {level}: the log does not say what was changed",
                    "ALTER SYSTEM SET wal_level = logical;  -- and restart PostgreSQL",
                )
            )
        user, allowed = self._ask(
            "SELECT rolname, rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user"
        )[0]
        if not allowed:
            found.append(
                ServerProblem(f"{user} may not replicate", f'ALTER ROLE "{user}" REPLICATION;')
            )
        if self._slot() is None:
            found += self._free_slots()
        found += self._publication_problems()
        for table in self._tables.names:
            found += self._table_problems(table)
        return found

    def _free_slots(self) -> list[ServerProblem]:
        most = int(self._ask("SHOW max_replication_slots")[0][0])
        used = self._ask("SELECT count(*) FROM pg_replication_slots")[0][0]
        if used < most:
            return []
        return [
            ServerProblem(
                f"all {most} replication slots are taken",
                f"ALTER SYSTEM SET max_replication_slots = {most + 4};  -- and restart PostgreSQL",
            )
        ]

    def _publication_problems(self) -> list[ServerProblem]:
        rows = self._ask(
            "SELECT schemaname, tablename FROM pg_publication_tables WHERE pubname = %s",
            self.publication,
        )
        exists = self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", self.publication)
        there = {tuple(row) for row in rows}
        missing = [name for name in self._tables.names if split_name(name) not in there]
        listed = ", ".join(_quoted(name) for name in missing)
        if not exists:
            return [
                ServerProblem(
                    f"there is no publication {self.publication}",
                    f"CREATE PUBLICATION {self.publication} FOR TABLE {listed};",
                )
            ]
        return [
            ServerProblem(
                f"the publication {self.publication} lacks {', '.join(missing)}",
                f"ALTER PUBLICATION {self.publication} ADD TABLE {listed};",
            )
            for _ in missing[:1]
        ]

    def _table_problems(self, name: str) -> list[ServerProblem]:
        schema, table = split_name(name)
        rows = self._ask(
            "SELECT c.oid, c.relreplident FROM pg_class c JOIN pg_namespace n "
            "ON n.oid = c.relnamespace WHERE n.nspname = %s AND c.relname = %s",
            schema,
            table,
        )
        if not rows:
            return [
                ServerProblem(f"there is no table {name}", "take it out of `tables`, or create it")
            ]
        oid, identity = rows[0]
        columns = {row[0] for row in self._ask(_COLUMNS, oid)}
        primary = [row[0] for row in self._ask(_PRIMARY_KEY, oid)]
        key = self._tables.keys.get(name, tuple(primary))
        if missing := [column for column in key if column not in columns]:
            return [
                ServerProblem(
                    f"{name} has no column {missing[0]}", f"name others under keys.{name}"
                )
            ]
        if not key:
            return [
                ServerProblem(
                    f"{name} has no primary key, so its rows have no names",
                    f"add one, or name its columns under keys.{name} and "
                    f"ALTER TABLE {_quoted(name)} REPLICA IDENTITY FULL;",
                )
            ]
        if identity == "f" or (identity == "d" and set(key) <= set(primary)):
            return []
        index = {row[0] for row in self._ask(_IDENTITY_INDEX, oid)}
        if identity == "i" and set(key) <= index:
            return []
        return [
            ServerProblem(
                f"{name} does not say which row was changed: its replica identity lacks "
                f"{', '.join(key)}",
                f"ALTER TABLE {_quoted(name)} REPLICA IDENTITY FULL;",
            )
        ]


_COLUMNS: Final = (
    "SELECT attname FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
)
_KEY_OF: Final = (
    "SELECT a.attname FROM pg_index i, unnest(i.indkey) WITH ORDINALITY AS k(attnum, place) "
    "JOIN pg_attribute a ON a.attnum = k.attnum "
    "WHERE i.indrelid = %s AND a.attrelid = i.indrelid AND i.{} ORDER BY k.place"
)
_PRIMARY_KEY: Final = _KEY_OF.format("indisprimary")
_IDENTITY_INDEX: Final = _KEY_OF.format("indisreplident")


# Rows.


class Published(msgspec.Struct, frozen=True):
    """A table of ours, as it is now."""

    name: str
    key: tuple[int, ...]
    """Where the columns of its key are."""
    identity: frozenset[int]
    """Which columns an old row has."""
    columns: tuple[tuple[str, int], ...]
    """Their names and types."""

    def changes(self, change: RowChange, at: int) -> list[Change]:
        """Two, if the row has another name now."""
        new, old = change.new, change.old
        if new is None:
            assert old is not None
            return [self._change("delete", self._key_of(old), None, old, at)]
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
        key = [row[i] for i in self.key]
        if old is not None:
            key = [old[i] if v == UNCHANGED else v for i, v in zip(self.key, key, strict=True)]
        return tuple(None if value is None else value.decode() for value in key)

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
            row = _json(zip(self.columns, new, strict=True))
            if UNCHANGED in new:
                names = zip(self.columns, new, strict=True)
                missing = tuple(name for (name, _), value in names if value == UNCHANGED)
        if old is not None:
            pairs = zip(self.columns, old, strict=True)
            before = _json(pair for i, pair in enumerate(pairs) if i in self.identity)
        return Change(self.name, op, key, row, before, at, missing)


def published(relation: Relation, tables: Tables, primary: tuple[str, ...]) -> Published | None:
    """None: it is not among the tables of the source. `primary`: its primary key."""
    names = [f"{relation.schema}.{relation.table}"]
    if relation.schema == DEFAULT_SCHEMA:
        names.append(relation.table)
    given = next((name for name in names if name in tables.names), None)
    if given is None:
        return None
    columns = [column.name for column in relation.columns]
    identity = frozenset(i for i, column in enumerate(relation.columns) if column.identity)
    wanted = tables.keys.get(given, primary)
    if not wanted:
        raise BadConfig(f"the table {given} has no key: `roskva source check` says what to do")
    if missing := [name for name in wanted if name not in columns]:
        raise BadConfig(f"the table {given} has no column {missing[0]}, which its key needs")
    key = tuple(columns.index(name) for name in wanted)
    schema = None if relation.schema == DEFAULT_SCHEMA else relation.schema
    pairs = tuple((column.name, column.type) for column in relation.columns)
    return Published(table_name(schema, relation.table), key, identity, pairs)


def _json(pairs: Any) -> msgspec.Raw:
    """Numbers as they are written, booleans, and all else as text."""
    return msgspec.Raw(
        msgspec.json.encode(
            {
                name: _value(value, type)
                for (name, type), value in pairs
                if value is not UNCHANGED and value != UNCHANGED
            }
        )
    )


def _value(value: bytes | None, type: int) -> object:
    if value is None:
        return None
    if type in _NUMBERS and value not in _NOT_IN_JSON:
        return msgspec.Raw(value)
    if type == _BOOLEAN:
        return value == b"t"
    return value.decode()


# Small things of PostgreSQL.


def connection_arguments(url: str, password: str | None, ca: str | None) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.password is not None:
        raise BadConfig("a password does not belong into url: name a file or a variable, password")
    arguments: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 5432,
        "user": unquote(parts.username or "postgres"),
        "dbname": unquote(parts.path.removeprefix("/")) or "postgres",
        "connect_timeout": _CONNECT_S,
    }
    if password is not None:
        arguments["password"] = password
    if ca is not None:
        arguments |= {"sslmode": "verify-full", "sslrootcert": ca}
    return arguments


def split_name(name: str) -> tuple[str, str]:
    schema, _, table = name.rpartition(".")
    return schema or DEFAULT_SCHEMA, table


def _quoted(name: str) -> str:
    return ".".join(f'"{part}"' for part in split_name(name))


def seen_in(snapshot: str, xids: frozenset[int]) -> frozenset[int]:
    """`xmin:xmax:running,running`, of 64 bits. What has 32 is within 2³¹ of it."""
    low, high, running = snapshot.split(":")
    xmax = int(high)
    open = {int(xid) for xid in running.split(",") if xid}
    found = set()
    for xid in xids:
        wide = xmax - (xmax - xid) % _32_BITS
        if wide == xmax or (xmax - wide) >= _32_BITS // 2:
            continue  # it begins, or comes, after the snapshot
        if wide < int(low) or wide not in open:
            found.add(xid)
    return frozenset(found)


def read_history(content: bytes) -> list[tuple[int, int]]:
    """Lines of a timeline, where it was left, and why."""
    found = []
    for line in content.decode().splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            found.append((int(words[0]), read_lsn(words[1])))
    return found


def _explained(error: psycopg2.Error) -> Unavailable:
    text = " ".join(str(error).split()) or "the connection was closed"
    return Unavailable(f"PostgreSQL: {text}")
