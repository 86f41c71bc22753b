"""MariaDB, and MySQL by the same code: their binary log in rows, over PyMySQL's connection.

Two connections: one that replicates, and one that asks. The first takes the server's word for the
protocol only; events are decoded here (binlog.py). We are a replica with a number of our own,
made of the source's name: who comes with the same number puts an end to the one before, so that a
reader that was killed leaves nobody behind.

**Where we are** is in our own log, as GTIDs, so there is nothing to confirm: the server keeps its
log as long as it is set to. What it has deleted when we come back is a doubt (gtids.py).

**Visible.** An event comes when it is in the log, and its engine may commit it a moment later, or
much later while the server waits for a replica that is to acknowledge it. See servers.py. After a
doubt reading begins with the first transaction that cannot be seen yet, so a doubt waits for none.
"""

import time
import zlib
from collections.abc import Sequence
from contextlib import suppress
from struct import pack
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import NAMESPACE_URL, uuid5

import msgspec
import pymysql

from roskva.errors import BadConfig, BadMessage, Unavailable
from roskva.sources.database import ServerProblem, Tables
from roskva.sources.mysql.binlog import Gtid, Heartbeat, TableMap
from roskva.sources.mysql.catalog import Descriptions, MysqlTables, look_at_tables
from roskva.sources.mysql.gtids import GtidServer, judge_gtids
from roskva.sources.mysql.rows import BinlogTransactions, split_name
from roskva.sources.mysql.servers import MariaDbServer, MysqlServer, Server
from roskva.sources.mysql.stream import HEARTBEAT_S, BinlogStream, RefusedByServer
from roskva.sources.mysql.tables import Described
from roskva.sources.position import Doubt, GtidPosition, Position
from roskva.sources.reader import Doubtful, LogIdle, LogOpened, Received

_MOST_TOGETHER: Final = 20_000
"""Events of one `read`."""
_MOST_BYTES: Final = 8 << 20
_LATE_S: Final = 2.0
_GATHER_S: Final = 0.005
"""Who is so late waits a moment for more: the server sends events one by one, and what has come
together is asked for, appended and synced together."""
_CONNECT_S: Final = 10
_ANSWER_S: Final = 60
_FORGOTTEN_S: Final = 2.5 * HEARTBEAT_S
_REGISTER: Final = 0x15
_MOST_REFUSALS: Final = 3
_NOT_THERE: Final = 1236
"""The server cannot go on where it is asked to."""
_REPLICAS: Final = 1 << 30
"""Numbers of replicas begin there, out of the way of those that people choose."""


class MysqlLog:
    """A `DatabaseLog`."""

    def __init__(
        self, name: str, url: str, password: str | None, tables: Tables, ca: str | None = None
    ) -> None:
        self.server_id = _REPLICAS + zlib.crc32(name.encode()) % _REPLICAS
        self._name = f"roskva-{name}"
        self._arguments = connection_arguments(url, password, ca)
        self._database = self._arguments["database"]
        self._tables = tables
        self._names = {split_name(each, self._database): each for each in tables.names}
        self._asking: Any = None
        self._replicating: Any = None
        self._server: Server = MariaDbServer(self._ask, tuple(self._names))
        self._descriptions: Descriptions | None = None
        self._stream: BinlogStream | None = None
        self._transactions: BinlogTransactions | None = None
        self._problems: Sequence[ServerProblem] = ()
        self._refused_after, self._refusals = "", 0
        """The transactions after which the server could not go on, although it had begun to; and
        how often."""
        self._drained = False
        """Nothing had come that was not read."""
        self._behind: tuple[str, int, float] | None = None
        """Where we were when we had read everything that had come, and the server had more; and
        since when."""

    # Connecting.

    def connect(self, ours: Position | None, adopt: bool) -> LogOpened:
        assert ours is None or isinstance(ours, GtidPosition)
        self.close()
        try:
            self._open_asking()
            if problems := self._setting_problems():
                raise BadConfig(f"{problems[0].sentence}: {problems[0].remedy}")
            found = self._server.look(ours, self._look_at_tables().print)
            doubt = judge_gtids(ours, found, adopt)
            if ours is not None and doubt is None:
                doubt = self._go_on(ours, found, adopt)
            if doubt is not None:
                position = GtidPosition(self._server.end(), found.server, tables=found.tables)
                self._await_first(self._begin(position, position.gtids))
                self._refusals = 0
        except BadMessage as error:
            raise Unavailable(str(error)) from error
        except (pymysql.Error, OSError) as error:
            self.close()
            raise _explained(error) from error
        assert self._transactions is not None
        return LogOpened(self._transactions.position, doubt)

    def _go_on(self, ours: GtidPosition, found: GtidServer, adopt: bool) -> Doubt | None:
        """With the last transaction that we have, if it is still the same there."""
        if self._refused_after == ours.gtids and self._refusals >= _MOST_REFUSALS:
            return Doubt("purged", f"the server cannot read its own log after {ours}")
        position = msgspec.structs.replace(ours, server=found.server)
        if not ours.last_at:
            if self._server.end() != ours.gtids:
                return Doubt("attached", "the source was stopped before it had read anything")
            self._await_first(self._begin(position, ours.gtids))
            return None
        try:
            first = self._first_transaction(self._begin(position, ours.before))
        except RefusedByServer as error:
            return self._go_on_behind(position, error)
        again = self._server.gtids(ours.before)
        if first is not None:
            again.add(first.gtid)
            if (str(again), first.at) == (ours.gtids, ours.last_at):
                assert self._transactions is not None
                self._transactions.begin_again(first)
                return None
        return judge_gtids(ours, msgspec.structs.replace(found, knows="none"), adopt)

    def _go_on_behind(self, position: GtidPosition, error: RefusedByServer) -> Doubt | None:
        """Our last transaction may be the last one that the server has deleted."""
        if error.number != _NOT_THERE:
            raise error
        try:
            self._await_first(self._begin(position, position.gtids))
        except RefusedByServer as refusal:
            if refusal.number != _NOT_THERE:
                raise
            return Doubt("purged", f"the server has deleted what followed {position}: {refusal}")
        return None

    def _begin(self, position: GtidPosition, after: str) -> BinlogStream:
        """`after`: the transactions that do not come."""
        self._stop_replicating()
        self._replicating = pymysql.connect(**self._arguments)
        settings, command, content = self._server.dump(after, self.server_id)
        with self._replicating.cursor() as cursor:
            for statement in (*self._settings(), *settings):
                cursor.execute(statement)
        self._replicating._execute_command(_REGISTER, self._registration())
        self._replicating._read_packet()
        self._replicating._execute_command(command, content)
        self._stream = BinlogStream(self._replicating._sock)
        self._descriptions = Descriptions(
            self._ask, self._server.transactions, self._server.collations
        )
        self._transactions = BinlogTransactions(
            self._tables, self._database, self, self._server.gtids(position.gtids), position
        )
        return self._stream

    def _settings(self) -> Sequence[str]:
        """The names that servers had for them before, and those that they have now."""
        every_ns = int(HEARTBEAT_S * 10**9)
        uuid = uuid5(NAMESPACE_URL, self._name)
        return [
            f"SET @{role}_binlog_checksum = 'CRC32', @{role}_heartbeat_period = {every_ns}, "
            f"@{replica}_uuid = '{uuid}'"
            for role, replica in (("master", "slave"), ("source", "replica"))
        ]

    def _registration(self) -> bytes:
        """Number, name, no user, no password, no port, no rank, nobody's replica."""
        name = self._name.encode()[:60]
        return pack("<IB", self.server_id, len(name)) + name + pack("<BBHII", 0, 0, 0, 0, 0)

    def _await_first(self, stream: BinlogStream) -> None:
        """It names the file; or there is a refusal."""
        event = stream.event(_ANSWER_S)
        assert self._transactions is not None
        if event is None:
            raise Unavailable("the database does not begin to send its log")
        self._transactions.take(event, [])

    def _first_transaction(self, stream: BinlogStream) -> Gtid | None:
        assert self._transactions is not None
        while (event := stream.event(_ANSWER_S)) is not None:
            decoded = self._transactions.take_first(event)
            if isinstance(decoded, Gtid):
                return decoded
            if isinstance(decoded, Heartbeat):
                return None
        raise Unavailable("the database does not begin to send its log")

    # Reading.

    def read(self, timeout_s: float) -> Sequence[Received | Doubtful | LogIdle]:
        found: list[Received | Doubtful | LogIdle] = []
        stream, transactions = self._stream, self._transactions
        assert stream is not None
        assert transactions is not None
        try:
            event = stream.event(timeout_s)
            count = size = 0
            until = time.monotonic() + timeout_s
            while event is not None:
                transactions.take(event, found)
                count += 1
                size += len(event)
                if count >= _MOST_TOGETHER or size >= _MOST_BYTES:
                    break
                waits = _is_late(event) and time.monotonic() < until
                event = stream.event(_GATHER_S if waits else 0)
            self._drained = event is None
            transactions.note_idle(found)
        except RefusedByServer as error:
            if error.number == _NOT_THERE:
                self._note_refusal(transactions.position.gtids)
            raise
        except BadMessage as error:
            raise Unavailable(f"{error}: reading goes on from what is durable") from error
        except (pymysql.Error, OSError) as error:
            raise _explained(error) from error
        return found

    def _note_refusal(self, gtids: str) -> None:
        again = self._refused_after == gtids
        self._refused_after, self._refusals = gtids, self._refusals + 1 if again else 1

    # What the events do not say.

    def describe(self, table: TableMap) -> Described | None:
        assert self._descriptions is not None
        return self._descriptions.describe(table)

    def altered(self, gtid: str) -> bool:
        assert self._descriptions is not None
        return self._descriptions.altered(gtid)

    def print(self) -> str:
        return self._look_at_tables().print

    def survives(self) -> bool:
        [row] = self._ask("SELECT @@GLOBAL.sync_binlog, @@GLOBAL.innodb_flush_log_at_trx_commit")
        return tuple(map(int, row)) == (1, 1)

    # Answering.

    def visible(self, xids: frozenset[int]) -> frozenset[int]:
        assert self._transactions is not None
        places = self._transactions.places
        for done in [number for number in places if number < min(xids, default=0)]:
            del places[done]
        asked = {number: places[number] for number in xids if number in places}
        try:
            return self._server.seen(asked)
        except (pymysql.Error, OSError) as error:
            raise _explained(error) from error

    def confirm(self, position: Position) -> None:
        """Nobody wants to know: the server keeps its log as long as it is set to."""

    def complaints(self) -> Sequence[str]:
        broken = () if self._transactions is None else self._transactions.broken
        return [problem.sentence for problem in self._problems] or list(dict.fromkeys(broken))

    def lag_bytes(self) -> int | None:
        """Beyond what was read. A log that is shorter than that was reset; and a server may forget
        to send what it has, when the file that it sends from was taken away from it."""
        assert self._transactions is not None
        try:
            rows = self._ask("SHOW BINARY LOGS")
        except (pymysql.Error, OSError) as error:
            raise _explained(error) from error
        file, at = self._transactions.file, self._transactions.at
        sizes = {row[0]: int(row[1]) for row in rows}
        if sizes.get(file, -1) < at:
            raise Unavailable(f"the file {file} is not there as it was: reading begins anew")
        lag = sizes[file] - at + sum(size for name, size in sizes.items() if name > file)
        self._expect_progress(file, at, lag)
        return lag

    def _expect_progress(self, file: str, at: int, lag: int) -> None:
        now = time.monotonic()
        if not (lag and self._drained):
            self._behind = None
        elif self._behind is None or self._behind[:2] != (file, at):
            self._behind = file, at, now
        elif now - self._behind[2] > _FORGOTTEN_S:
            raise Unavailable(f"the server has more than {file}:{at}, and does not send it")

    def close(self) -> None:
        self._stop_replicating()
        if self._asking is not None:
            with suppress(pymysql.Error, OSError):
                self._asking.close()
        self._asking = self._descriptions = None

    def _stop_replicating(self) -> None:
        """Without a word: nothing else can be said on that connection."""
        if self._replicating is not None:
            self._replicating._force_close()
        self._replicating = self._stream = self._transactions = self._behind = None

    def _open_asking(self) -> None:
        self._asking = pymysql.connect(**self._arguments)
        self._ask("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        version = self._ask("SELECT VERSION()")[0][0]
        if "MariaDB" in version:
            self._server = MariaDbServer(self._ask, tuple(self._names))
        else:
            self._server = MysqlServer(self._ask)

    def _ask(self, query: str, *arguments: object) -> list[tuple[Any, ...]]:
        with self._asking.cursor() as cursor:
            cursor.execute(query, arguments or None)
            return list(cursor.fetchall())

    def _look_at_tables(self) -> MysqlTables:
        now = look_at_tables(self._ask, self._tables, self._names)
        self._problems = now.problems
        return now

    # Checking.

    def check(self) -> list[ServerProblem]:
        try:
            self._open_asking()
            tables = self._look_at_tables().problems
            return [
                *self._setting_problems(),
                *self._crash_problems(),
                *self._right_problems(),
                *tables,
            ]
        except (pymysql.Error, OSError) as error:
            raise _explained(error) from error
        finally:
            self.close()

    def _setting_problems(self) -> list[ServerProblem]:
        [(log, format, image, number)] = self._ask(
            "SELECT @@log_bin, @@GLOBAL.binlog_format, @@GLOBAL.binlog_row_image, @@server_id"
        )
        found = []
        if not log:
            found.append(
                ServerProblem(
                    "the server has no binary log",
                    "log_bin = binlog  # in its configuration, and restart it",
                )
            )
        if format != "ROW":
            found.append(
                ServerProblem(
                    f"binlog_format is {format}: the log does not say which rows were changed",
                    "SET GLOBAL binlog_format = 'ROW';  -- and in the configuration",
                )
            )
        if image != "FULL":
            found.append(
                ServerProblem(
                    f"binlog_row_image is {image}: the log leaves out columns",
                    "SET GLOBAL binlog_row_image = 'FULL';  -- and in the configuration",
                )
            )
        if number in (0, self.server_id):
            found.append(
                ServerProblem(
                    f"server_id is {number}: it takes one that nobody else has",
                    "SET GLOBAL server_id = 1;  -- and in the configuration",
                )
            )
        return found + (self._server.problems() if log else [])

    def _crash_problems(self) -> list[ServerProblem]:
        if self.survives():
            return []
        return [
            ServerProblem(
                "after a crash the log may lack what the tables have: that is a doubt each time",
                "SET GLOBAL sync_binlog = 1, GLOBAL innodb_flush_log_at_trx_commit = 1;"
                "  -- and in the configuration",
            )
        ]

    def _right_problems(self) -> list[ServerProblem]:
        [(user,)] = self._ask("SELECT CURRENT_USER()")
        grants = " ".join(row[0].partition(" ON ")[0] for row in self._ask("SHOW GRANTS"))
        name, _, host = user.rpartition("@")
        return [
            ServerProblem(f"{user} lacks {right}", f"GRANT {right} ON *.* TO `{name}`@`{host}`;")
            for right in ("REPLICATION SLAVE", self._server.right)
            if right not in grants and "ALL PRIVILEGES" not in grants
        ]


def connection_arguments(url: str, password: str | None, ca: str | None) -> dict[str, Any]:
    parts = urlsplit(url)
    if parts.password is not None:
        raise BadConfig("a password does not belong into url: name a file or a variable, password")
    arguments: dict[str, Any] = {
        "host": parts.hostname or "localhost",
        "port": parts.port or 3306,
        "user": unquote(parts.username or "root"),
        "password": password or "",
        "database": unquote(parts.path.removeprefix("/")),
        "charset": "utf8mb4",
        "autocommit": True,
        "connect_timeout": _CONNECT_S,
        "read_timeout": _ANSWER_S,
        "write_timeout": _ANSWER_S,
    }
    if not arguments["database"]:
        raise BadConfig("say which database it is: url = mariadb://USER@HOST:PORT/DATABASE")
    if ca is not None:
        arguments |= {"ssl_ca": ca, "ssl_verify_cert": True, "ssl_verify_identity": True}
    return arguments


def _is_late(event: bytes) -> bool:
    """An event begins with the second in which it was written, if it was."""
    written = int.from_bytes(event[:4], "little")
    return 0 < written < time.time() - _LATE_S


def _explained(error: Exception) -> Unavailable:
    said = error.args[-1] if error.args else error
    return Unavailable(f"the database: {' '.join(str(said).split()) or 'the connection broke'}")
