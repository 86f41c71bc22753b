"""JSON as MySQL stores it, in binary; MariaDB's JSON is text.

A document is a byte for its type, and the value. Objects and arrays begin with the number of their
members and their size, in two bytes each, or in four if they are large; then entries that say where
keys and values are, counted from there. Small values stand in their entry.
"""

from collections.abc import Callable
from struct import Struct
from typing import Any, Final

import msgspec

from roskva.sources.mysql.decimals import decimal_reader

_MOST_DEEP: Final = 100
"""As deep as MySQL lets documents be."""
_LITERALS: Final = {0: None, 1: True, 2: False}
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY, _LITERAL = range(5)
_STRING, _OPAQUE = 12, 15
_NUMBERS: Final = {
    5: Struct("<h"),
    6: Struct("<H"),
    7: Struct("<i"),
    8: Struct("<I"),
    9: Struct("<q"),
    10: Struct("<Q"),
    11: Struct("<d"),
}
_DECIMAL, _DATE, _TIME, _DATETIMES = 246, 10, 11, (7, 12)


def read_json(content: bytes) -> msgspec.Raw:
    """As text. Whatever is wrong raises `ValueError`, `IndexError` or `struct.error`."""
    if not content:  # what MySQL keeps of a column that was made NOT NULL
        return msgspec.Raw(b"null")
    return msgspec.Raw(msgspec.json.encode(_value(content[0], content, 1, 0)))


def _value(type: int, data: bytes, at: int, depth: int) -> Any:
    if type <= _LARGE_ARRAY:
        return _members(type, data, at, depth)
    if type == _LITERAL:
        return _literal(data[at])
    if type in _NUMBERS:
        return _NUMBERS[type].unpack_from(data, at)[0]
    if type == _STRING:
        return _counted(data, at).decode()
    if type == _OPAQUE:
        return _opaque(data[at], _counted(data, at + 1))
    raise ValueError(f"no JSON is of type {type}")


def _literal(number: int) -> bool | None:
    if number not in _LITERALS:
        raise ValueError("no literal")
    return _LITERALS[number]


def _members(type: int, data: bytes, begin: int, depth: int) -> Any:
    if depth >= _MOST_DEEP:
        raise ValueError("too deep")
    large = type in (_LARGE_OBJECT, _LARGE_ARRAY)
    width = 4 if large else 2
    number = _reader(data, width)
    count, size = number(begin), number(begin + width)
    if begin + size > len(data) or count > size:
        raise ValueError("cut off")
    at = begin + 2 * width
    keys = []
    if type in (_SMALL_OBJECT, _LARGE_OBJECT):
        for _ in range(count):
            start, length = (
                begin + number(at),
                int.from_bytes(data[at + width : at + width + 2], "little"),
            )
            keys.append(data[start : start + length].decode())
            at += width + 2
    values = []
    for _ in range(count):
        kind, place = data[at], at + 1
        if not _inline(kind, large):
            place = begin + number(place)
            if place <= at:
                raise ValueError("a value before its entry")
        values.append(_value(kind, data, place, depth + 1))
        at += 1 + width
    return values if type in (_SMALL_ARRAY, _LARGE_ARRAY) else dict(zip(keys, values, strict=True))


def _inline(kind: int, large: bool) -> bool:
    return kind in (_LITERAL, 5, 6) or (large and kind in (7, 8))


def _reader(data: bytes, width: int) -> Callable[[int], int]:
    return lambda at: int.from_bytes(data[at : at + width], "little")


def _counted(data: bytes, at: int) -> bytes:
    """Behind its length, seven bits in a byte, the lowest first."""
    length = shift = 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
        if shift > 28:
            raise ValueError("too long")
    if at + length > len(data):
        raise ValueError("cut off")
    return data[at : at + length]


def _opaque(type: int, content: bytes) -> Any:
    """A value of a type that JSON has not."""
    if type == _DECIMAL:
        return decimal_reader(*content[:2])(content, 2)[0]
    if type in (_DATE, _TIME, *_DATETIMES):
        return _time(type, int.from_bytes(content[:8], "little", signed=True))
    return f"\\x{content.hex()}"


def _time(type: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    day, clock = whole >> 17, whole & 0x1FFFF
    time = f"{sign}{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}.{micros:06d}"
    date = f"{day // 32 // 13:04d}-{day // 32 % 13:02d}-{day % 32:02d}"
    if type == _TIME:
        return time
    return date if type == _DATE else f"{date} {time}"
