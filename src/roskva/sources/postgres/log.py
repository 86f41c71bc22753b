"""PostgreSQL: logical replication with `pgoutput`, over psycopg2.

Two connections: one that replicates, and one that asks. A transaction comes when it is committed,
which may be a moment before others see it (for as long as a synchronous standby is away, it may be
hours). So `visible` takes a snapshot and looks whether it is in there. Transaction numbers have 32
bits in the stream, and 64 in snapshots.

The **slot** is made when the source begins and whenever it was lost. It keeps the log on the server
from where we have confirmed it, and nothing else: where we are is in our own log. So it is compared
with that at each connection (`position.judge`). An idle table would keep the log of busy ones for
ever; what the server says of its end while nothing of ours is under way is confirmed, too.

The **tables** are looked at when we connect, and every other second: what the log says nothing of
(catalog.py) ends the connection, and the next one begins with a doubt and a new slot.
"""

import select
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import psycopg2
from psycopg2 import extras

from roskva.errors import BadConfig, BadMessage, Unavailable
from roskva.sources.database import ServerProblem, Tables
from roskva.sources.position import (
    BROKEN,
    Position,
    PostgresPosition,
    PostgresServer,
    Slot,
    judge,
    lsn_text,
    read_lsn,
)
from roskva.sources.postgres.catalog import (
    PostgresTables,
    look_at_tables,
    primary_key,
    server_problems,
)
from roskva.sources.postgres.rows import Transactions
from roskva.sources.reader import Doubtful, LogIdle, LogOpened, Received

_MOST_TOGETHER: Final = 20_000
"""Messages of one `read`."""
_MOST_BYTES: Final = 16 << 20
_KEEPALIVE_S: Final = 5.0
_CONNECT_S: Final = 10
_LOOK_EVERY_S: Final = 2.0
_WITH_FAILOVER_SLOTS: Final = 170_000
_32_BITS: Final = 1 << 32
_SETTINGS: Final = {
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
    "search_path": "",
}
"""So that a value is the same text whoever reads it, whatever the role or the database prefer."""
_DEAD_AFTER: Final = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
"""A server that is gone without a word."""


class PostgresLog:
    """A `DatabaseLog`."""

    def __init__(
        self, name: str, url: str, password: str | None, tables: Tables, ca: str | None = None
    ) -> None:
        self.slot = self.publication = f"roskva_{name.replace('-', '_')}"
        self._arguments = connection_arguments(url, password, ca)
        self._tables = tables
        self._asking: Any = None
        self._replicating: Any = None
        self._stream: Any = None
        self._transactions: Transactions | None = None
        self._problems: Sequence[ServerProblem] = ()
        self._unreadable = ""
        """Why the slot cannot be read, although the server thinks it can."""
        self._look_at = self._alive_at = 0.0

    # Connecting.

    def connect(self, ours: Position | None, adopt: bool) -> LogOpened:
        assert ours is None or isinstance(ours, PostgresPosition)
        self.close()
        try:
            self._open()
            tables = self._look_at_tables()
            found = self._look(tables.print)
            doubt = judge(ours, found, adopt)
            start = ours.lsn if ours is not None else 0
            if doubt is not None:
                start = self._new_slot(found.slot)
            unseen = self._running() if doubt is not None else frozenset[int]()
            position = PostgresPosition(found.system, found.timeline, start, found.tables)
            self._transactions = Transactions(self._tables, self, tables.numbers, position)
            self._begin(start)
        except psycopg2.Error as error:
            self.close()
            raise _explained(error) from error
        return LogOpened(position, doubt, unseen)

    def _open(self) -> None:
        self._open_asking()
        self._refuse_what_cannot_be_read()
        self._replicating = self._connection(connection_factory=extras.LogicalReplicationConnection)

    def _connection(self, **more: Any) -> Any:
        return psycopg2.connect(**self._arguments, application_name=self.slot, **more)

    def _open_asking(self) -> None:
        self._asking = self._connection()
        self._asking.autocommit = True

    def _refuse_what_cannot_be_read(self) -> None:
        [(standby, encoding)] = self._ask(
            "SELECT pg_is_in_recovery(), current_setting('server_encoding')"
        )
        if standby:
            raise Unavailable("this PostgreSQL is a standby: it is read when it is promoted")
        if encoding == "SQL_ASCII":
            raise BadConfig("a database in SQL_ASCII does not say what its bytes mean")
        if not self._ask("SELECT 1 FROM pg_publication WHERE pubname = %s", self.publication):
            raise BadConfig(
                f"there is no publication {self.publication}: `roskva source check` says how it is "
                "made"
            )

    def _look(self, tables: str) -> PostgresServer:
        with self._replicating.cursor() as cursor:
            cursor.execute("IDENTIFY_SYSTEM")
            system, timeline, end = cursor.fetchone()[:3]
            forks = []
            if timeline > 1:
                cursor.execute(f"TIMELINE_HISTORY {timeline}")
                content = cursor.fetchone()[1]  # text from 14 on, and bytes before
                forks = read_history(
                    content if isinstance(content, str) else bytes(content).decode()
                )
        return PostgresServer(system, timeline, forks, read_lsn(end), self._slot(), tables)

    def _look_at_tables(self) -> PostgresTables:
        version = self._asking.server_version
        now = look_at_tables(self._ask, version, self.publication, self._tables)
        self._problems = now.problems
        self._look_at = time.monotonic() + _LOOK_EVERY_S
        return now

    def _slot(self) -> Slot | None:
        rows = self._ask(
            "SELECT confirmed_flush_lsn::text, wal_status FROM pg_replication_slots "
            "WHERE slot_name = %s",
            self.slot,
        )
        if not rows:
            return None
        confirmed, status = rows[0]
        lost = "its WAL is gone" if status == "lost" else self._unreadable
        return Slot(read_lsn(confirmed or "0/0"), lost)

    def _new_slot(self, old: Slot | None) -> int:
        """Where reading goes on after a doubt. The server waits for the transactions that are
        running, and not for those that begin meanwhile. From 17 on a standby may keep a copy of
        it, and then a switch is no doubt."""
        if old is not None:
            self._ask("SELECT pg_drop_replication_slot(%s)", self.slot)
        followed = ", failover => true" * (self._asking.server_version >= _WITH_FAILOVER_SLOTS)
        made = self._ask(
            f"SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput'{followed})",
            self.slot,
        )
        self._unreadable = ""
        return read_lsn(made[0][0])

    def _running(self) -> frozenset[int]:
        """Whoever holds the lock of its own number holds it until others can see what it did."""
        rows = self._ask(
            "SELECT transactionid::text FROM pg_locks "
            "WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock' AND granted"
        )
        return frozenset(int(xid) for (xid,) in rows)

    def _begin(self, lsn: int) -> None:
        self._stream = self._replicating.cursor()
        options = f"(proto_version '1', publication_names '\"{self.publication}\"')"
        self._stream.start_replication_expert(
            f'START_REPLICATION SLOT "{self.slot}" LOGICAL {lsn_text(lsn)} {options}',
            status_interval=_KEEPALIVE_S,
        )

    # Reading.

    def read(self, timeout_s: float) -> Sequence[Received | Doubtful | LogIdle]:
        found: list[Received | Doubtful | LogIdle] = []
        transactions = self._transactions
        assert transactions is not None
        try:
            if time.monotonic() >= self._look_at:
                self._watch_tables(transactions)
            message = self._stream.read_message()
            if message is None:
                select.select([self._stream], [], [], timeout_s)
                message = self._stream.read_message()
            count = size = 0
            while message is not None:
                transactions.take(message.payload, message.data_start, found)
                count += 1
                size += message.data_size
                if count >= _MOST_TOGETHER or size >= _MOST_BYTES:
                    return found
                message = self._stream.read_message()
            transactions.note_idle(self._stream.wal_end, found)
        except BadMessage as error:
            raise Unavailable(f"{error}: reading goes on from what is durable") from error
        except psycopg2.errors.UndefinedObject as error:
            self._unreadable = "it begins before the publication was made"
            raise _explained(error) from error
        except psycopg2.Error as error:
            raise _explained(error) from error
        return found

    def _watch_tables(self, transactions: Transactions) -> None:
        now = self._look_at_tables()
        before = transactions.position.tables
        if now.print == BROKEN:
            transactions.pass_over()
        elif now.print != before:
            raise Unavailable("the tables are not published as they were: reading begins anew")

    # What the messages do not say.

    def primary_key(self, relation: int) -> tuple[str, ...]:
        return primary_key(self._ask, relation)

    def print(self) -> str:
        return self._look_at_tables().print

    # Answering.

    def visible(self, xids: frozenset[int]) -> frozenset[int]:
        try:
            snapshot = self._ask("SELECT pg_current_snapshot()::text")[0][0]
            if (now := time.monotonic()) >= self._alive_at:  # it may be long until we read again
                self._alive_at = now + _KEEPALIVE_S
                self._stream.send_feedback(force=True)
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

    def complaints(self) -> Sequence[str]:
        broken = () if self._transactions is None else self._transactions.broken
        return [problem.sentence for problem in self._problems] or list(dict.fromkeys(broken))

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
        self._replicating = self._asking = self._stream = self._transactions = None

    def _ask(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        with self._asking.cursor() as cursor:
            cursor.execute(query, arguments)
            return list(cursor.fetchall())

    # Checking.

    def check(self) -> list[ServerProblem]:
        try:
            self._open_asking()
            version = self._asking.server_version
            now = look_at_tables(self._ask, version, self.publication, self._tables)
            return [*server_problems(self._ask, self.slot), *now.problems]
        except psycopg2.Error as error:
            raise _explained(error) from error
        finally:
            self.close()


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
        "client_encoding": "UTF8",
        "options": " ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
        **_DEAD_AFTER,
    }
    if password is not None:
        arguments["password"] = password
    if ca is not None:
        arguments |= {"sslmode": "verify-full", "sslrootcert": ca}
    return arguments


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


def read_history(content: str) -> list[tuple[int, int]]:
    """Lines of a timeline, where it was left, and why."""
    found = []
    for line in content.splitlines():
        words = line.split()
        if words and not words[0].startswith("#"):
            found.append((int(words[0]), read_lsn(words[1])))
    return found


def _explained(error: psycopg2.Error) -> Unavailable:
    text = " ".join(str(error).split()) or "the connection was closed"
    return Unavailable(f"PostgreSQL: {text}")
