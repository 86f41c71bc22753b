"""Messages of pgoutput that are almost right: an error that says where, and nothing is lost.

A source reads a stream of which one message was changed. It takes it for what it says, or refuses
it by table and position; then it reads the rest again, from where it was, as from a server.
`ROSKVA_MUTATIONS` says how many of each kind of message there are in `make verify`.
"""

import os
import random
import re
from collections.abc import Sequence
from struct import pack
from typing import Final

import msgspec
import pytest
from tests.fuzzing.mutation import mutated
from tests.sources.test_pgoutput import (
    BEGIN,
    COMMIT,
    DELETE,
    INSERT,
    PRODUCTS,
    RENAME,
    TABLE,
    TRUNCATE,
    UPDATE,
    relation,
    row,
)

from roskva.errors import BadMessage
from roskva.sources.change import Change
from roskva.sources.database import Tables
from roskva.sources.names import row_name
from roskva.sources.position import PostgresPosition
from roskva.sources.postgres.pgoutput import Column, Relation
from roskva.sources.postgres.rows import Transactions
from roskva.sources.reader import Doubtful, LogIdle, Received

SOME: Final = 400
MANY: Final = int(os.environ.get("ROSKVA_MUTATIONS", "10000"))
STOCK: Final = Relation(
    8,
    "sales",
    "stock",
    "f",
    (Column("place", 25, True), Column("count", 23, True), Column("open", 16, True)),
)
_STOCK: Final = pack(">I", STOCK.id)
STOCKED: Final = relation(STOCK)
MOVED: Final = b"U" + _STOCK + b"O" + row(b"x", b"1", b"t") + b"N" + row(b"y", b"-1", b"f")
SOLD: Final = b"D" + _STOCK + b"O" + row(b"y", None, b"f")
ORIGIN: Final = b"O" + pack(">Q", 7) + b"elsewhere\0"
TYPE: Final = b"Y" + pack(">I", 9000) + b"public\0mood\0"
SAID: Final = b"M" + b"\1" + pack(">Q", 7) + b"prefix\0" + pack(">I", 2) + b"hi"
FIRST_END: Final = 0x16B3778


def _moved_on(message: bytes, to: int) -> bytes:
    """A `BEGIN` or `COMMIT` of a later transaction."""
    kind = message[:1]
    if kind == b"B":
        return kind + pack(">QqI", to - 0x30, 2_000_000, 732)
    return kind + pack(">BQQq", 0, to - 0x30, to, 2_000_000)


SECOND_END: Final = FIRST_END + 0x100
STREAM: Final[Sequence[tuple[bytes, int]]] = [
    *((message, FIRST_END - 0x40) for message in (BEGIN, ORIGIN, TABLE, INSERT, UPDATE, RENAME)),
    *((message, FIRST_END - 0x40) for message in (STOCKED, TYPE, SAID, MOVED, SOLD, DELETE)),
    (COMMIT, FIRST_END),
    *((message, SECOND_END - 0x40) for message in (_moved_on(BEGIN, SECOND_END), INSERT, TRUNCATE)),
    (_moved_on(COMMIT, SECOND_END), SECOND_END),
]
"""Messages, and the position at the head of each."""
PLACES: Final = {
    name: [message for message, _ in STREAM].index(message)
    for name, message in {
        "begin": BEGIN,
        "origin": ORIGIN,
        "relation": TABLE,
        "insert": INSERT,
        "update": UPDATE,
        "update of the key": RENAME,
        "update with the old row": MOVED,
        "type": TYPE,
        "message": SAID,
        "delete": DELETE,
        "delete with the old row": SOLD,
        "truncate": TRUNCATE,
        "commit": COMMIT,
    }.items()
}
BEGINS: Final = PostgresPosition("7", 1, 0x16B3000, "print")


class Catalog:
    def primary_key(self, relation: int) -> tuple[str, ...]:
        return ("id",) if relation == PRODUCTS.id else ()

    def print(self) -> str:
        return "print"


def _read(
    stream: Sequence[tuple[bytes, int]], after: PostgresPosition
) -> tuple[list[Received | Doubtful | LogIdle], BadMessage | None]:
    """As far as it goes. A server begins with the first transaction that ends after the position,
    and tells of every table again."""
    tables = Tables(("products", "sales.stock"), {"sales.stock": ("place",)})
    reading = Transactions(tables, Catalog(), {PRODUCTS.id, STOCK.id}, after)
    found: list[Received | Doubtful | LogIdle] = []
    again = stream if after.lsn < FIRST_END else [stream[0], *_tables_first(stream)]
    for message, start in again[(after.lsn >= FIRST_END) :]:
        try:
            reading.take(message, start, found)
        except BadMessage as error:
            return found, error
    return found, None


def _tables_first(stream: Sequence[tuple[bytes, int]]) -> Sequence[tuple[bytes, int]]:
    later = [part for part in stream if part[1] > FIRST_END]
    return [later[0], (TABLE, later[0][1]), *later[1:]]


def _whole(found: Sequence[Received | Doubtful | LogIdle]) -> list[Change]:
    """Of the transactions that came to their end; the others come again."""
    changes: list[Change] = []
    begun: list[Change] = []
    for each in found:
        if isinstance(each, Received):
            begun += each.part.changes
            if each.part.end is not None:
                changes += begun
                begun = []
    return changes


def _end(found: Sequence[Received | Doubtful | LogIdle]) -> PostgresPosition:
    ends = [each.part.end for each in found if isinstance(each, Received) and each.part.end]
    end = ends[-1] if ends else BEGINS
    assert isinstance(end, PostgresPosition)
    return end


TRUTH: Final = _whole(_read(STREAM, BEGINS)[0])


def _is_sound(change: Change) -> bool:
    msgspec.json.decode(change.row)
    msgspec.json.decode(change.before)
    return row_name(change.table, change.key).startswith(f"{change.table}/")


def _mutate(name: str, rounds: int) -> int:
    """How many were refused."""
    place, dice, refused = PLACES[name], random.Random(name), 0
    message, start = STREAM[place]
    for _ in range(rounds):
        wrong = mutated(message, dice.choice(STREAM)[0], dice)
        stream = [*STREAM[:place], (wrong, start), *STREAM[place + 1 :]]
        found, error = _read(stream, BEGINS)
        assert all(map(_is_sound, _whole(found))), wrong.hex()
        if error is None:
            assert _end(found).lsn == SECOND_END, wrong.hex()
            continue
        refused += 1
        said = str(error)
        end = _end(found)
        assert re.search(r", after 0/16B3[0-9A-F]{3}$", said), said
        if name in ("insert", "update of the key", "delete") and wrong[:5] == message[:5]:
            assert "public.products" in said, (said, wrong.hex())
        assert end in (BEGINS, PostgresPosition("7", 1, FIRST_END, end.tables))
        rest, error = _read(STREAM, end)
        assert error is None
        if end == BEGINS:
            assert _whole(rest) == TRUTH
        else:
            assert _whole(found) + _whole(rest) == TRUTH
    return refused


def test_the_stream_is_sound() -> None:
    found, error = _read(STREAM, BEGINS)
    assert error is None
    names = [row_name(change.table, change.key) for change in TRUTH]
    assert names == [
        *("products/17", "products/17", "products/17", "products/18"),
        *("sales.stock/x", "sales.stock/y", "sales.stock/y", "products/18", "products/17"),
    ]
    assert [each.doubt.cause for each in found if isinstance(each, Doubtful)] == ["truncated"]
    assert _end(found).lsn == SECOND_END


@pytest.mark.parametrize("name", PLACES)
def test_a_message_that_was_changed_is_refused_by_place_or_taken_as_it_is(name: str) -> None:
    refused = _mutate(name, SOME)
    assert refused > SOME / 2 or name in ("origin", "type", "message")


@pytest.mark.verify
@pytest.mark.parametrize("name", PLACES)
def test_nothing_is_lost_whatever_message_was_changed(name: str) -> None:
    _mutate(name, MANY)
