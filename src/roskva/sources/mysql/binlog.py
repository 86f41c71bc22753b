"""What MariaDB and MySQL say of changes: the events of a binary log in rows, as values.

A transaction comes whole, when it is committed: a `Gtid`, then for each statement the tables that
it changes (TABLE_MAP, which becomes no value of its own) and `Rows`, then `Committed`. Whatever is
no change of a row comes as the text of a statement, a `Query`: in MySQL also the BEGIN, and the
COMMIT of engines without transactions.

An event has a header of 19 bytes, its own, and with most servers a CRC-32. Rows hold values without
names or types. `Layout` says how to read them: its owner makes one of a `TableMap`, or none for a
table that nobody wants, whose rows are passed over unread.

Whatever is not as the documentation has it raises `BadMessage`, with the table. `file` and
`position` say where that was.
"""

import zlib
from collections.abc import Callable, Sequence
from struct import Struct, error
from typing import Any, Final, Literal, NoReturn

import msgspec

from roskva.errors import BadMessage
from roskva.sources.mysql.values import ABSENT, Read, Type, Value

Op = Literal["insert", "update", "delete"]
Row = list[Any]
"""A value, or `ABSENT`, for each column."""


MOST_BYTES: Final = 1 << 30
"""Of an event that was compressed: what MariaDB lets a packet have."""
HEADER_BYTES: Final = 19
_CRC_BYTES: Final = 4

_HEADER: Final = Struct("<IBIIIH")
_ROTATE: Final = Struct("<Q")
_MARIADB_GTID: Final = Struct("<QIB")
_QUERY: Final = Struct("<IIBHH")


class Kind:
    """Of events. What is not here says nothing of rows."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT = 15
    XID = 16
    TABLE_MAP = 19
    INCIDENT = 26
    HEARTBEAT = 27
    MYSQL_GTID = 33
    MYSQL_XA_PREPARE = 38
    HEARTBEAT_2 = 41
    GTID = 162
    QUERY_COMPRESSED = 165


_OPS: Final[tuple[Op, ...]] = ("insert", "update", "delete")
_ROWS: Final[dict[int, tuple[Op, bool, bool]]] = {
    first + i: (op, second, compressed)
    for first, second, compressed in (
        (23, False, False),
        (30, True, False),
        (166, False, True),
        (169, True, True),
    )
    for i, op in enumerate(_OPS)
}
"""What they say; whether they are of version 2, and compressed."""
_REFUSED: Final = {
    39: "updates of parts of JSON: SET GLOBAL binlog_row_value_options = ''",
    40: "transactions that are compressed: SET GLOBAL binlog_transaction_compression = OFF",
    42: "GTIDs with tags",
}
_ARTIFICIAL: Final = 0x20
"""A flag of events that are not in the log."""
_STANDALONE, _PREPARED = 1, 64
"""Flags of MariaDB's GTIDs."""


# Events.


class Gtid(msgspec.Struct, frozen=True):
    """A transaction begins."""

    gtid: str
    """`0-1-17` in MariaDB, `UUID:17` in MySQL."""
    at: int
    """When it was committed: wall-clock microseconds. The same on every replica."""
    start: int
    """Where it begins in the file."""
    standalone: bool = False
    """One statement, and no COMMIT after it; in MySQL unless a BEGIN comes."""
    prepared: bool = False
    """It is the first phase of a distributed transaction (XA)."""


class ChangedRows(msgspec.Struct, frozen=True, gc=False):
    op: Op
    layout: "RowLayout"
    rows: list[tuple[Row | None, Row | None]]
    """New and old, as far as there are such."""


class Query(msgspec.Struct, frozen=True):
    database: str
    text: str
    end: int


class TransactionEnd(msgspec.Struct, frozen=True):
    end: int


class Prepared(msgspec.Struct, frozen=True):
    """The first phase ends."""

    xid: str
    """As the database writes it: X'…',X'…',1."""
    end: int


class Rotated(msgspec.Struct, frozen=True):
    """What follows is in this file, says the server."""

    file: str


class Ended(msgspec.Struct, frozen=True):
    """The file was ended in order."""


class Heartbeat(msgspec.Struct, frozen=True):
    """There is nothing more to say."""


class Incident(msgspec.Struct, frozen=True):
    """The server has lost events."""


Event = (
    Gtid | ChangedRows | Query | TransactionEnd | Prepared | Rotated | Ended | Heartbeat | Incident
)


class TableMap(msgspec.Struct, frozen=True):
    """A table, as the log has it."""

    schema: str
    table: str
    types: bytes
    metas: tuple[bytes, ...]
    optional: bytes
    """More about it, if the server is set to say that: `metadata.py`."""

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


class RowLayout(msgspec.Struct, frozen=True):
    """How rows of a table are read."""

    name: str
    columns: tuple[Read, ...]
    owner: Any
    """Whatever its maker wants to find with the rows."""


class BinlogDecoder:
    """Of one stream. `layout_of`: None for a table that nobody wants."""

    def __init__(self, layout_of: Callable[[TableMap], RowLayout | None]) -> None:
        self.file = ""
        self.position = 0
        """Behind what was decoded."""
        self.checksums: bool | None = None
        """None: nobody has said yet."""
        self._layout_of = layout_of
        self._layouts: dict[bytes, RowLayout | None] = {}
        """By what the log says of the table: it says it again in every transaction."""
        self._tables: dict[int, RowLayout | None] = {}
        self._decode: dict[int, Callable[[bytes, int], Event | None]] = {
            Kind.QUERY: self._query,
            Kind.QUERY_COMPRESSED: self._compressed_query,
            Kind.STOP: lambda event, end: Ended(),
            Kind.ROTATE: self._rotate,
            Kind.FORMAT: self._format,
            Kind.XID: lambda event, end: TransactionEnd(self.position),
            Kind.TABLE_MAP: self._table_map,
            Kind.INCIDENT: lambda event, end: Incident(),
            Kind.HEARTBEAT: lambda event, end: Heartbeat(),
            Kind.HEARTBEAT_2: lambda event, end: Heartbeat(),
            Kind.MYSQL_GTID: self._mysql_gtid,
            Kind.MYSQL_XA_PREPARE: self._prepared,
            Kind.GTID: self._gtid,
        }

    def forget_tables(self) -> None:
        """They were altered: ask anew."""
        self._layouts.clear()
        self._tables.clear()

    def decode(self, event: bytes) -> Event | None:
        """None: it says nothing of rows that are wanted."""
        try:
            end = self._end(event)
            kind = event[4]
            if kind in _ROWS:
                return self._rows(event, end)
            if kind in _REFUSED:
                raise BadMessage(f"the binary log has {_REFUSED[kind]}")
            decode = self._decode.get(kind)
            return decode(event, end) if decode is not None else None
        except (error, IndexError, ValueError, OverflowError, zlib.error):
            self._garbled(event)

    def _end(self, event: bytes) -> int:
        """Of the event without its checksum; and where we are is known then."""
        _at, kind, _server, size, position, _flags = _HEADER.unpack_from(event)
        if size != len(event):
            raise ValueError("another size")
        end = len(event)
        if self._has_checksum(event, kind):
            end -= _CRC_BYTES
            if zlib.crc32(event[:end]) != int.from_bytes(event[end:], "little"):
                raise ValueError("another checksum")
        if position:  # of which there are 32 bits
            wide = self.position & ~_32_BITS | position
            self.position = wide + _32_BITS + 1 if wide < self.position - _32_BITS // 2 else wide
        return end

    def _has_checksum(self, event: bytes, kind: int) -> bool:
        if kind == Kind.FORMAT:  # it says so itself, and has one in any case
            return True
        if self.checksums is None:  # the server names the file before it says in which format
            return zlib.crc32(event[:-_CRC_BYTES]) == int.from_bytes(event[-_CRC_BYTES:], "little")
        return self.checksums

    def _garbled(self, event: bytes) -> NoReturn:
        of = ""
        if len(event) > HEADER_BYTES + 6 and event[4] in _ROWS:
            layout = self._tables.get(_table_id(event))
            of = f" of the table {layout.name}" if layout is not None else ""
        raise BadMessage(f"an event{of} is cut off or garbled") from None

    # Files and transactions.

    def _rotate(self, event: bytes, end: int) -> Rotated | Ended:
        """In the log where a file ends; made by the server where it begins to send one."""
        (at,) = _ROTATE.unpack_from(event, HEADER_BYTES)
        file = event[HEADER_BYTES + 8 : end].decode()
        if not _HEADER.unpack_from(event)[-1] & _ARTIFICIAL:
            return Ended()
        self.file, self.position = file, at
        return Rotated(file)

    def _format(self, event: bytes, end: int) -> None:
        """Version, its server, a time, the lengths of headers, and whether there are checksums."""
        if event[HEADER_BYTES : HEADER_BYTES + 2] != b"\x04\x00":
            raise BadMessage("the binary log is not of version 4")
        self.checksums = event[end - 1] == 1
        self._tables.clear()

    def _gtid(self, event: bytes, end: int) -> Gtid:
        number, domain, flags = _MARIADB_GTID.unpack_from(event, HEADER_BYTES)
        at, _kind, server, size, _position, _flags = _HEADER.unpack_from(event)
        return Gtid(
            f"{domain}-{server}-{number}",
            at * 10**6,
            self.position - size,
            standalone=bool(flags & _STANDALONE),
            prepared=bool(flags & _PREPARED),
        )

    def _mysql_gtid(self, event: bytes, end: int) -> Gtid:
        """Flags, the UUID, the number, and from 5.7 on two numbers for parallel replicas; from 8.0
        on the time, and where it is another, that of the first server."""
        start = HEADER_BYTES + 1
        uuid = event[start : start + 16].hex()
        number = int.from_bytes(event[start + 16 : start + 24], "little")
        name = "-".join((uuid[:8], uuid[8:12], uuid[12:16], uuid[16:20], uuid[20:]))
        at = _HEADER.unpack_from(event)[0] * 10**6
        times = start + 24 + 17
        if end >= times + 7:
            at = int.from_bytes(event[times : times + 7], "little")
            if at >> 55:
                at = int.from_bytes(event[times + 7 : times + 14], "little")
        if number <= 0:
            raise ValueError("no number")
        return Gtid(f"{name}:{number}", at, self.position - len(event), standalone=True)

    def _prepared(self, event: bytes, end: int) -> Event:
        """One phase or two, the format of the name, the lengths of its parts, the parts."""
        one_phase = event[HEADER_BYTES]
        if one_phase:
            return TransactionEnd(self.position)
        format, first, second = Struct("<III").unpack_from(event, HEADER_BYTES + 1)
        at = HEADER_BYTES + 13
        if at + first + second != end:
            raise ValueError("another size")
        gtrid, bqual = event[at : at + first], event[at + first : end]
        return Prepared(f"X'{gtrid.hex()}',X'{bqual.hex()}',{format}", self.position)

    def _query(self, event: bytes, end: int) -> Query:
        database, at = self._query_head(event)
        return Query(database, event[at:end].decode(errors="replace"), self.position)

    def _compressed_query(self, event: bytes, end: int) -> Query:
        database, at = self._query_head(event)
        text = _inflated(event[at:end])
        return Query(database, text.decode(errors="replace"), self.position)

    def _query_head(self, event: bytes) -> tuple[str, int]:
        _thread, _took, length, _error, status = _QUERY.unpack_from(event, HEADER_BYTES)
        at = HEADER_BYTES + _QUERY.size + status
        database = event[at : at + length].decode(errors="replace")
        if event[at + length] != 0:
            raise ValueError("the name does not end")
        return database, at + length + 1

    # Tables and rows.

    def _table_map(self, event: bytes, end: int) -> None:
        id = _table_id(event)
        content = event[HEADER_BYTES + 6 : end]
        if content not in self._layouts:
            if len(self._layouts) > _MOST_LAYOUTS:
                self._layouts.clear()
            self._layouts[content] = self._layout_of(read_table_map(content))
        self._tables[id] = self._layouts[content]

    def _rows(self, event: bytes, end: int) -> ChangedRows | None:
        op, second, compressed = _ROWS[event[4]]
        id = _table_id(event)
        if id not in self._tables:
            if id == _NO_TABLE:
                return None  # it ends a statement, and has no rows
            raise BadMessage("rows of a table that nobody has told of")
        layout = self._tables[id]
        if layout is None:
            return None
        at = HEADER_BYTES + 8
        if second:
            at += int.from_bytes(event[at : at + 2], "little")
        count, at = packed_number(event, at)
        if count != len(layout.columns):
            raise ValueError("another number of columns")
        width = (count + 7) // 8
        images = [_columns(event[at : at + width], layout)]
        at += width
        if op == "update":
            images.append(_columns(event[at : at + width], layout))
            at += width
        content = _inflated(event[at:end]) if compressed else event[at:end]
        return ChangedRows(op, layout, _read_rows(op, content, images, count))


_32_BITS: Final = 0xFFFFFFFF
_MOST_LAYOUTS: Final = 10_000
_NO_TABLE: Final = 0xFFFFFF
Image = Sequence[tuple[int, Read]]
"""The columns that rows have: where they belong, and how they are read."""


def _table_id(event: bytes) -> int:
    return int.from_bytes(event[HEADER_BYTES : HEADER_BYTES + 6], "little")


def _columns(there: bytes, layout: RowLayout) -> Image:
    bits = int.from_bytes(there, "little")
    return [(i, read) for i, read in enumerate(layout.columns) if bits >> i & 1]


def _read_rows(
    op: Op, data: bytes, images: list[Image], count: int
) -> list[tuple[Row | None, Row | None]]:
    rows: list[tuple[Row | None, Row | None]] = []
    at, end = 0, len(data)
    while at < end:
        first, at = _read_row(data, at, images[0], count)
        if op == "insert":
            rows.append((first, None))
        elif op == "delete":
            rows.append((None, first))
        else:
            second, at = _read_row(data, at, images[1], count)
            rows.append((second, first))
    if at != end:
        raise ValueError("cut off")
    return rows


def _read_row(data: bytes, at: int, image: Image, count: int) -> tuple[Row, int]:
    """Bits say which of the columns are NULL, then come the values of the others."""
    start = at
    at += (len(image) + 7) // 8
    nulls = int.from_bytes(data[start:at], "little")
    row: Row = [ABSENT] * count
    value: Value
    for i, read in image:
        if nulls & 1:
            row[i] = None
        else:
            value, at = read(data, at)
            row[i] = value
        nulls >>= 1
    if at > len(data) or at == start:
        raise ValueError("cut off")
    return row, at


def read_table_map(content: bytes) -> TableMap:
    """Behind its number: flags, names, types, what belongs to them, which may be NULL."""
    schema, at = _name(content, 2)
    table, at = _name(content, at)
    count, at = packed_number(content, at)
    types = content[at : at + count]
    length, at = packed_number(content, at + count)
    metas, after = [], at + length
    for type in types:
        size = _META_BYTES.get(type, 0)
        metas.append(content[at : at + size])
        at += size
    if at != after or len(types) != count:
        raise ValueError("another size")
    at += (count + 7) // 8
    if at > len(content):
        raise ValueError("cut off")
    return TableMap(schema, table, types, tuple(metas), content[at:])


_COMPRESSED_BLOB, _COMPRESSED_VARCHAR = 140, 141
_META_BYTES: Final[dict[int, int]] = {
    **dict.fromkeys((Type.FLOAT, Type.DOUBLE, Type.BLOB, Type.GEOMETRY, Type.JSON), 1),
    **dict.fromkeys((Type.TIMESTAMP2, Type.DATETIME2, Type.TIME2), 1),
    **dict.fromkeys((Type.VARCHAR, Type.BIT, Type.NEWDECIMAL, Type.STRING), 2),
    **dict.fromkeys((Type.VAR_STRING, Type.ENUM, Type.SET), 2),
    _COMPRESSED_BLOB: 1,
    _COMPRESSED_VARCHAR: 2,
}


def _name(content: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + content[at]
    if content[end] != 0:
        raise ValueError("the name does not end")
    return content[at + 1 : end].decode(), end + 1


def packed_number(data: bytes, at: int) -> tuple[int, int]:
    """In one byte, or in two, three or eight behind one that says so."""
    first = data[at]
    if first < 251:
        return first, at + 1
    end = at + 1 + {252: 2, 253: 3, 254: 8}[first] if first in (252, 253, 254) else 0
    if not end or end > len(data):
        raise ValueError("no number")
    return int.from_bytes(data[at + 1 : end], "little"), end


def _inflated(content: bytes) -> bytes:
    """The first byte says how many bytes of length follow it."""
    width = content[0] & 7
    size = int.from_bytes(content[1 : 1 + width])
    if content[0] & 0xF0 != 0x80 or size > MOST_BYTES:
        raise ValueError("another compression")
    unpack = zlib.decompressobj()
    data = unpack.decompress(content[1 + width :], size + 1)
    if len(data) != size or not unpack.eof:
        raise ValueError("another size")
    return data
