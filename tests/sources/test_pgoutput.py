"""The messages of pgoutput, as PostgreSQL sends them; and what is none."""

import random
from contextlib import suppress
from struct import pack

import pytest

from roskva.errors import BadMessage
from roskva.sources.postgres.pgoutput import (
    EPOCH_US,
    UNCHANGED,
    Begin,
    Column,
    Commit,
    PgoutputDecoder,
    Relation,
    RowChange,
    Truncate,
)

INT8, TEXT = 20, 25
PRODUCTS = Relation(
    7, "public", "products", "d", (Column("id", INT8, True), Column("name", TEXT, False))
)
MUTATIONS = 20_000


def text(value: bytes | None) -> bytes:
    if value is None:
        return b"n"
    return b"u" if value == UNCHANGED else b"t" + pack(">I", len(value)) + value


def row(*values: bytes | None) -> bytes:
    return pack(">H", len(values)) + b"".join(map(text, values))


def relation(of: Relation) -> bytes:
    columns = [
        pack(">B", column.identity) + column.name.encode() + b"\0" + pack(">Ii", column.type, -1)
        for column in of.columns
    ]
    names = of.schema.encode() + b"\0" + of.table.encode() + b"\0"
    head = b"R" + pack(">I", of.id) + names + of.identity.encode()
    return head + pack(">H", len(of.columns)) + b"".join(columns)


ID = pack(">I", PRODUCTS.id)
TABLE = relation(PRODUCTS)
BEGIN = b"B" + pack(">QqI", 0x16B3748, 1_000_000, 731)
COMMIT = b"C" + pack(">BQQq", 0, 0x16B3748, 0x16B3778, 1_000_000)
INSERT = b"I" + ID + b"N" + row(b"17", b"Salt")
UPDATE = b"U" + ID + b"N" + row(b"17", UNCHANGED)
RENAME = b"U" + ID + b"K" + row(b"17", None) + b"N" + row(b"18", b"Pepper")
DELETE = b"D" + ID + b"K" + row(b"18", None)
TRUNCATE = b"T" + pack(">IB", 1, 0) + ID
ALL = (BEGIN, TABLE, INSERT, UPDATE, RENAME, DELETE, TRUNCATE, COMMIT)


def test_a_transaction_is_read_as_it_was_written() -> None:
    decoder = PgoutputDecoder()
    assert [decoder.decode(message) for message in ALL] == [
        Begin(0x16B3748, EPOCH_US + 1_000_000, 731),
        PRODUCTS,
        RowChange("insert", PRODUCTS, [b"17", b"Salt"], None),
        RowChange("update", PRODUCTS, [b"17", UNCHANGED], None),
        RowChange("update", PRODUCTS, [b"18", b"Pepper"], [b"17", None]),
        RowChange("delete", PRODUCTS, None, [b"18", None]),
        Truncate((PRODUCTS,)),
        Commit(0x16B3748, 0x16B3778, EPOCH_US + 1_000_000),
    ]


def test_an_altered_table_is_told_of_again() -> None:
    decoder = PgoutputDecoder()
    decoder.decode(TABLE)
    narrower = Relation(7, "public", "products", "d", PRODUCTS.columns[:1])
    decoder.decode(relation(narrower))
    change = decoder.decode(b"I" + ID + b"N" + row(b"19"))
    assert change == RowChange("insert", narrower, [b"19"], None)


@pytest.mark.parametrize("kind", [b"O", b"Y", b"M"])
def test_what_is_about_no_row_is_passed_over(kind: bytes) -> None:
    assert PgoutputDecoder().decode(kind + b"whatever") is None


def test_a_table_that_nobody_told_of_is_an_error() -> None:
    with pytest.raises(BadMessage, match="not told of: 7"):
        PgoutputDecoder().decode(INSERT)


@pytest.mark.parametrize("message", ALL)
def test_a_message_that_is_cut_off_or_goes_on_is_an_error(message: bytes) -> None:
    for wrong in (*(message[:end] for end in range(len(message))), message + b"\0"):
        decoder = PgoutputDecoder()
        decoder.decode(TABLE)
        with pytest.raises(BadMessage):
            decoder.decode(wrong)


def test_an_error_names_the_table() -> None:
    decoder = PgoutputDecoder()
    decoder.decode(TABLE)
    with pytest.raises(BadMessage, match=r"public\.products"):
        decoder.decode(INSERT[:-1])


def test_a_message_with_wrong_bytes_is_a_message_or_an_error() -> None:
    dice = random.Random(7)
    for _ in range(MUTATIONS):
        decoder = PgoutputDecoder()
        decoder.decode(TABLE)
        wrong = bytearray(dice.choice(ALL))
        for _ in range(dice.randint(1, 3)):
            wrong[dice.randrange(len(wrong))] = dice.randrange(256)
        with suppress(BadMessage):
            decoder.decode(bytes(wrong))
