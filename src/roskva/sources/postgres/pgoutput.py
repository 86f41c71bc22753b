"""What PostgreSQL says of changes: the messages of `pgoutput`, protocol version 1, as values.

A transaction comes whole, when it is committed: `Begin`, its changes in order, `Commit`. Before the
first change of a table, and after it was altered, comes a `Relation` that says which columns it
has. Values are text as `psql` shows it, in bytes; None is NULL. A value stored out of line that an
update left alone is not sent: `UNCHANGED`.

Whatever is not as the documentation of PostgreSQL has it raises `BadMessage`, with the table.
"""

from collections.abc import Callable
from struct import Struct, error
from typing import Final, Literal

import msgspec

from roskva.errors import BadMessage

UNCHANGED: Final = b"\x00unchanged"
"""No text of PostgreSQL has a zero byte."""
EPOCH_US: Final = 946_684_800_000_000
"""PostgreSQL counts microseconds from the year 2000."""

Value = bytes | None
Op = Literal["insert", "update", "delete"]

_U32: Final = Struct(">I")
_BEGIN: Final = Struct(">QqI")
_COMMIT: Final = Struct(">BQQq")
_COLUMN: Final = Struct(">Ii")
_TRUNCATE: Final = Struct(">IB")


class Begin(msgspec.Struct, frozen=True):
    final: int
    """Where its commit is in the log."""
    committed_at: int
    """Wall-clock microseconds."""
    xid: int
    """32 bits of it."""


class Commit(msgspec.Struct, frozen=True):
    at: int
    """Where it is in the log itself."""
    end: int
    """What follows the transaction in the log: the position to confirm."""
    committed_at: int


class Column(msgspec.Struct, frozen=True):
    name: str
    type: int
    """The OID of its type."""
    identity: bool
    """Part of the replica identity: in the old row that updates and deletes come with."""


class Relation(msgspec.Struct, frozen=True):
    id: int
    schema: str
    table: str
    identity: str
    """`d` the primary key, `i` an index, `f` the whole row, `n` nothing."""
    columns: tuple[Column, ...]

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


class RowChange(msgspec.Struct, frozen=True, gc=False):
    op: Op
    relation: Relation
    new: list[Value] | None
    old: list[Value] | None
    """As far as the replica identity goes; of an update only if it changed, or is the whole row."""
    in_full: bool = False
    """The old row is the whole row."""


class Truncate(msgspec.Struct, frozen=True):
    relations: tuple[Relation, ...]


Message = Begin | Commit | Relation | RowChange | Truncate


class PgoutputDecoder:
    """Of one stream: it remembers the tables that the server has told of."""

    def __init__(self) -> None:
        self.relations: dict[int, Relation] = {}
        self._decode: dict[int, Callable[[bytes], Message | None]] = {
            ord("B"): _begin,
            ord("C"): _commit,
            ord("R"): self._relation,
            ord("I"): self._insert,
            ord("U"): self._update,
            ord("D"): self._delete,
            ord("T"): self._truncate,
            **dict.fromkeys(b"OYM", lambda data: None),  # origins, types, messages: not rows
        }

    def decode(self, data: bytes) -> Message | None:
        try:
            decode = self._decode[data[0]]
        except (IndexError, KeyError):
            raise BadMessage(f"pgoutput has no message {data[:1]!r}") from None
        try:
            return decode(data)
        except (error, IndexError, ValueError):
            raise BadMessage(
                f"a message of pgoutput is cut off or garbled{self._of(data)}"
            ) from None

    def _of(self, data: bytes) -> str:
        relation = self.relations.get(int.from_bytes(data[1:5])) if data[:1] in b"RIUD" else None
        return f", of the table {relation}" if relation else f" ({data[:1].decode('latin-1')})"

    def _relation(self, data: bytes) -> Relation:
        (id,) = _U32.unpack_from(data, 1)
        schema, at = _text(data, 5)
        table, at = _text(data, at)
        identity, count = chr(data[at]), int.from_bytes(data[at + 1 : at + 3])
        _expect(data[at], b"dnfi")
        at += 3
        columns = []
        for _ in range(count):
            flags = data[at]
            _expect(flags, b"\0\1")
            name, at = _text(data, at + 1)
            type, _modifier = _COLUMN.unpack_from(data, at)
            at += _COLUMN.size
            columns.append(Column(name, type, bool(flags)))
        _ends(data, at)
        relation = Relation(id, schema or "pg_catalog", table, identity, tuple(columns))
        self.relations[id] = relation
        return relation

    def _insert(self, data: bytes) -> RowChange:
        relation = self._known(data)
        _expect(data[5], b"N")
        new, at = _row(data, 6, relation)
        _ends(data, at)
        return RowChange("insert", relation, new, None)

    def _update(self, data: bytes) -> RowChange:
        relation = self._known(data)
        old, at = None, 5
        if data[5] != _NEW:
            _expect(data[5], b"KO")
            old, at = _row(data, 6, relation)
        _expect(data[at], b"N")
        new, at = _row(data, at + 1, relation)
        _ends(data, at)
        return RowChange("update", relation, new, old, data[5] == _FULL)

    def _delete(self, data: bytes) -> RowChange:
        relation = self._known(data)
        _expect(data[5], b"KO")
        old, at = _row(data, 6, relation)
        _ends(data, at)
        return RowChange("delete", relation, None, old, data[5] == _FULL)

    def _truncate(self, data: bytes) -> Truncate:
        count, _options = _TRUNCATE.unpack_from(data, 1)
        _ends(data, 6 + 4 * count)
        ids = [int.from_bytes(data[at : at + 4]) for at in range(6, len(data), 4)]
        unknown = [id for id in ids if id not in self.relations]
        if unknown:
            raise BadMessage(f"pgoutput truncates a table that it has not told of: {unknown[0]}")
        return Truncate(tuple(self.relations[id] for id in ids))

    def _known(self, data: bytes) -> Relation:
        (id,) = _U32.unpack_from(data, 1)
        relation = self.relations.get(id)
        if relation is None:
            raise BadMessage(f"pgoutput changes a table that it has not told of: {id}")
        return relation


_NEW: Final = ord("N")
_FULL: Final = ord("O")
_TEXT: Final = ord("t")
_NULL: Final = ord("n")
_SAME: Final = ord("u")


def _begin(data: bytes) -> Begin:
    _ends(data, 1 + _BEGIN.size)
    final, at, xid = _BEGIN.unpack_from(data, 1)
    return Begin(final, at + EPOCH_US, xid)


def _commit(data: bytes) -> Commit:
    _ends(data, 1 + _COMMIT.size)
    flags, lsn, end, at = _COMMIT.unpack_from(data, 1)
    _expect(flags, b"\0")
    return Commit(lsn, end, at + EPOCH_US)


def _row(data: bytes, at: int, relation: Relation) -> tuple[list[Value], int]:
    count = data[at] << 8 | data[at + 1]
    if count != len(relation.columns):
        raise BadMessage(
            f"a row of the table {relation} has {count} values and {len(relation.columns)} columns"
        )
    at += 2
    row: list[Value] = []
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            start = at + 4
            at = start + int.from_bytes(data[at:start])
            row.append(data[start:at])
        elif kind == _NULL:
            row.append(None)
        elif kind == _SAME:
            row.append(UNCHANGED)
        else:
            raise BadMessage(f"a value of the table {relation} comes as {chr(kind)!r}, not as text")
    if at > len(data):
        raise ValueError("cut off")
    return row, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _expect(kind: int, kinds: bytes) -> None:
    if kind not in kinds:
        raise ValueError("another part")


def _ends(data: bytes, at: int) -> None:
    if at != len(data):
        raise ValueError("too long, or too short")
