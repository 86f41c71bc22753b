"""JSON as MySQL stores it."""

import json
from struct import error

import pytest

from roskva.errors import BadMessage
from roskva.sources.mysql.json_values import read_json
from roskva.sources.mysql.values import ColumnTraits, value_reader


def small(value: int) -> bytes:
    return value.to_bytes(2, "little")


def text(content: str) -> bytes:
    return bytes((len(content.encode()),)) + content.encode()


def test_an_object_with_an_array() -> None:
    """{"a": [1, "x", true], "b": null}: offsets are from behind the type of what they are in."""
    array = small(3) + small(17) + b"\x05" + small(1) + b"\x0c" + small(13) + b"\x04" + small(1)
    array += text("x")
    array += bytes(17 - len(array))
    head = small(2) + small(20 + len(array)) + small(18) + small(1) + small(19) + small(1)
    head += b"\x02" + small(20) + b"\x04" + small(0)
    document = b"\x00" + head + b"ab" + array
    assert json.loads(bytes(read_json(document))) == {"a": [1, "x", True], "b": None}


@pytest.mark.parametrize(
    ("document", "value"),
    [
        (b"", None),
        (b"\x04\x00", None),
        (b"\x04\x02", False),
        (b"\x05\xff\xff", -1),
        (b"\x0a" + b"\xff" * 8, 2**64 - 1),
        (b"\x0b\x00\x00\x00\x00\x00\x00\xf8\x3f", 1.5),
        (b"\x0c\x03abc", "abc"),
        (b"\x0f\xf6\x04\x03\x02\x81\x05", 1.05),
        (b"\x0f\xfc\x02\x00\xff", "\\x00ff"),
    ],
)
def test_single_values(document: bytes, value: object) -> None:
    assert json.loads(bytes(read_json(document))) == value


def test_a_time_within_json() -> None:
    day = (2024 * 13 + 2) << 5 | 29
    packed = ((day << 17) | 12 << 12 | 34 << 6 | 56) << 24 | 789_000
    document = b"\x0f\x0c\x08" + packed.to_bytes(8, "little")
    assert json.loads(bytes(read_json(document))) == "2024-02-29 12:34:56.789000"


def test_what_is_garbled_or_endless_is_an_error() -> None:
    inward = b"\x02" + small(1) + small(7) + b"\x02" + small(0)
    for wrong in (b"\x0c\x05ab", b"\x07", b"\x02" + small(9) + small(4), inward, b"\x04\x09"):
        with pytest.raises((ValueError, IndexError, error)):
            read_json(wrong)


def test_a_type_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(BadMessage, match="price has a type that is not read here: 200"):
        value_reader(200, b"", ColumnTraits("price", "int"))
