"""In what MariaDB and MySQL differ: how transactions are named, asked for, and seen.

**Seen.** MariaDB says to which place in its log a consistent snapshot reaches; a transaction that
begins before it is in the snapshot. In MySQL a transaction is in `gtid_executed` when its engines
have committed it, and not before.

**Which server it is.** MySQL has a UUID beside its data. MariaDB has nothing of the kind: its
`server_id` is no other server's with which it ever replicated, and that together with when the
newest of our tables was made or altered tells databases of the same number apart.
"""

from collections.abc import Mapping, Sequence
from struct import pack
from typing import Any, Final, Protocol

from roskva.errors import Unavailable
from roskva.sources.database import AskServer, ServerProblem
from roskva.sources.mysql.catalog import HasTransaction
from roskva.sources.mysql.gtids import Gtids, GtidServer, MariaDbGtids, MysqlGtids
from roskva.sources.mysql.rows import Place
from roskva.sources.position import GtidPosition

_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_THROUGH_GTID: Final = 4
_FILE_BEGINS: Final = 4
_GLOBAL: Final = "SELECT @@GLOBAL.{}"


class Server(Protocol):
    right: str
    """That is needed to ask where its log ends."""
    collations: str
    """Where they all are listed."""

    def gtids(self, text: str) -> Gtids: ...

    def look(self, ours: GtidPosition | None, tables: str) -> GtidServer: ...

    def end(self) -> str:
        """Up to where everything can be seen."""

    def seen(self, places: Mapping[int, Place]) -> frozenset[int]: ...

    def transactions(self) -> HasTransaction:
        """That are in its log now."""

    def dump(self, gtids: str, server_id: int) -> tuple[Sequence[str], int, bytes]:
        """The log after these transactions: statements, a command, and what goes with it."""

    def problems(self) -> list[ServerProblem]: ...


class MariaDbServer:
    """A `Server`. `names`: our tables, with their databases."""

    right = "BINLOG MONITOR"
    collations = "COLLATION_CHARACTER_SET_APPLICABILITY"

    def __init__(self, ask: AskServer, names: Sequence[tuple[str, str]]) -> None:
        self._ask, self._names = ask, names

    def gtids(self, text: str) -> MariaDbGtids:
        return MariaDbGtids(text)

    def look(self, ours: GtidPosition | None, tables: str) -> GtidServer:
        [(number, state, replicated, last)] = self._ask(
            "SELECT @@server_id, @@gtid_binlog_state, @@gtid_slave_pos, @@gtid_current_pos"
        )
        created = self._ask(
            "SELECT UNIX_TIMESTAMP(MAX(CREATE_TIME)) FROM information_schema.TABLES "
            "WHERE (TABLE_SCHEMA, TABLE_NAME) IN %s",
            self._names,
        )[0][0]
        found = GtidServer(f"{number}/{created or 0}", last, "none", tables)
        if ours is None:
            return found
        behind = MariaDbGtids(ours.gtids)
        everything = ",".join(each for each in (state, replicated) if each)
        if behind.known_in(everything):
            return GtidServer(found.server, last, "all", tables)
        another = ours.server.partition("/")[0] != str(number)
        if another and behind.shared_with(everything):
            return GtidServer(found.server, last, "some", tables)
        return found

    def end(self) -> str:
        file, at = self._snapshot()
        [(gtids,)] = self._ask("SELECT BINLOG_GTID_POS(%s, %s)", file, at)
        if gtids is None:
            raise Unavailable(f"MariaDB does not say which transactions are before {file}:{at}")
        return ",".join(gtids.split())

    def _snapshot(self) -> tuple[str, int]:
        """How far it reaches."""
        self._ask("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        said = {row[0]: row[1] for row in self._ask("SHOW STATUS LIKE 'binlog_snapshot_%'")}
        self._ask("ROLLBACK")
        return said["Binlog_snapshot_file"], int(said["Binlog_snapshot_position"])

    def seen(self, places: Mapping[int, Place]) -> frozenset[int]:
        file, at = self._snapshot()
        reached = (_number(file), at)
        return frozenset(
            number
            for number, place in places.items()
            if (_number(place.file), place.start) < reached
        )

    def transactions(self) -> HasTransaction:
        state = self._ask(_GLOBAL.format("gtid_binlog_state"))[0][0]
        return lambda gtid: MariaDbGtids(gtid).known_in(state)

    def dump(self, gtids: str, server_id: int) -> tuple[Sequence[str], int, bytes]:
        settings = (
            "SET @mariadb_slave_capability = 4",
            f"SET @slave_connect_state = '{gtids}'",
            "SET @slave_gtid_strict_mode = 0",
            "SET @slave_gtid_ignore_duplicates = 0",
        )
        return settings, _DUMP, pack("<IHI", _FILE_BEGINS, 0, server_id)

    def problems(self) -> list[ServerProblem]:
        [(replicated, logged)] = self._ask("SELECT @@gtid_slave_pos, @@log_slave_updates")
        if replicated and not logged:
            return [
                ServerProblem(
                    "this server replicates another one, and does not log what it gets from there",
                    "log_slave_updates = ON  # in its configuration, and restart it",
                )
            ]
        return []


class MysqlServer:
    """A `Server`."""

    right = "REPLICATION CLIENT"
    collations = "COLLATIONS"

    def __init__(self, ask: AskServer) -> None:
        self._ask = ask

    def gtids(self, text: str) -> MysqlGtids:
        return MysqlGtids(text)

    def look(self, ours: GtidPosition | None, tables: str) -> GtidServer:
        [(uuid, executed)] = self._ask("SELECT @@server_uuid, @@GLOBAL.gtid_executed")
        has = MysqlGtids(executed)
        behind = MysqlGtids("" if ours is None else ours.gtids)
        if ours is not None and behind.known_in(has):
            return GtidServer(uuid, str(has), "all", tables)
        return GtidServer(uuid, str(has), "some" if behind.shared_with(has) else "none", tables)

    def end(self) -> str:
        return str(self._executed())

    def _executed(self) -> MysqlGtids:
        return MysqlGtids(self._ask(_GLOBAL.format("gtid_executed"))[0][0])

    def seen(self, places: Mapping[int, Place]) -> frozenset[int]:
        executed = self._executed()
        return frozenset(number for number, place in places.items() if place.gtid in executed)

    def transactions(self) -> HasTransaction:
        return self._executed().__contains__

    def dump(self, gtids: str, server_id: int) -> tuple[Sequence[str], int, bytes]:
        packed = packed_gtids(MysqlGtids(gtids))
        head = pack("<HIIQI", _THROUGH_GTID, server_id, 0, _FILE_BEGINS, len(packed))
        return (), _DUMP_GTID, head + packed

    def problems(self) -> list[ServerProblem]:
        wanted = {
            "gtid_mode": "ON",
            "enforce_gtid_consistency": "ON",
            "binlog_row_value_options": "",
            "binlog_transaction_compression": "0",
        }
        rows: list[tuple[Any, ...]] = self._ask(
            "SHOW GLOBAL VARIABLES WHERE Variable_name IN %s", tuple(wanted)
        )
        found = {name: {"OFF": "0"}.get(value, value) for name, value in rows}
        return [
            ServerProblem(f"{name} is {found[name]}", f"SET GLOBAL {name} = '{value}';")
            for name, value in wanted.items()
            if found.get(name, value) != value
        ]


def packed_gtids(gtids: MysqlGtids) -> bytes:
    """The ends of ranges are behind their last numbers."""
    parts = [pack("<Q", len(gtids.ranges))]
    for uuid, ranges in sorted(gtids.ranges.items()):
        parts.append(bytes.fromhex(uuid.replace("-", "")) + pack("<Q", len(ranges)))
        parts += [pack("<QQ", first, last + 1) for first, last in ranges]
    return b"".join(parts)


def _number(file: str) -> int:
    return int(file.rpartition(".")[2])
