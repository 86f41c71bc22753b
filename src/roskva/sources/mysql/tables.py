"""Which columns a table has: what a binary log says of them, if its server is set to say it.

Row events have values and no names. With `binlog_row_metadata = FULL` names, keys, character sets
and words come before them, as fields of a number, a length and a content. Without, only the server
can be asked, which knows the table as it is now, and not as it was.
"""

from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from roskva.sources.mysql.binlog import TableMap, packed_number
from roskva.sources.mysql.values import ColumnTraits, Type, decode_text, real_type

_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _COLUMN_NAMES, _SET_WORDS, _ENUM_WORDS = range(1, 7)
_PRIMARY_KEY, _KEY_OF_PREFIXES, _WORDS_CHARSET, _WORDS_CHARSETS = 8, 9, 10, 11
_NUMBERS: Final = (
    *(Type.TINY, Type.SHORT, Type.INT24, Type.LONG, Type.LONGLONG),
    *(Type.NEWDECIMAL, Type.FLOAT, Type.DOUBLE, Type.YEAR),
)
_TEXTS: Final = (Type.VARCHAR, Type.VAR_STRING, Type.STRING, Type.BLOB, Type.GEOMETRY)
_WORDS: Final = (Type.ENUM, Type.SET)


class Described(msgspec.Struct, frozen=True):
    columns: tuple[ColumnTraits, ...]
    primary: tuple[str, ...]
    """The columns of its primary key, in their order."""

    def fits(self, table: TableMap) -> bool:
        """Whether that may be what the log has."""
        return len(self.columns) == len(table.types) and all(
            column.may_be(real_type(type, meta)[0])
            for column, type, meta in zip(self.columns, table.types, table.metas, strict=True)
        )


def described(table: TableMap, charset_of: Callable[[int], str]) -> Described | None:
    """By the log itself; None if it does not say. `charset_of`: the name, by a collation's number.
    `ValueError` and `IndexError`: it is garbled."""
    fields = _fields(table.optional)
    if _COLUMN_NAMES not in fields:
        return None
    types = [real_type(t, meta)[0] for t, meta in zip(table.types, table.metas, strict=True)]
    names = [name.decode() for name in _texts(fields[_COLUMN_NAMES])]
    unsigned = _unsigned(types, fields.get(_SIGNS, b""))
    charsets = {
        **_collations(types, _TEXTS, fields, _DEFAULT_CHARSET, _CHARSETS),
        **_collations(types, _WORDS, fields, _WORDS_CHARSET, _WORDS_CHARSETS),
    }
    words = {
        **_words(types, Type.ENUM, fields.get(_ENUM_WORDS, b"")),
        **_words(types, Type.SET, fields.get(_SET_WORDS, b"")),
    }
    columns = []
    for i, (name, type) in enumerate(zip(names, types, strict=True)):
        charset = charset_of(charsets[i]) if i in charsets else None
        texts = tuple(decode_text(word, charset) for word in words.get(i, ()))
        columns.append(ColumnTraits(name, _SQL.get(type, ""), i in unsigned, charset, texts))
    return Described(tuple(columns), tuple(names[i] for i in _primary(fields)))


_SQL: Final[dict[int, str]] = {
    Type.ENUM: "enum",
    Type.SET: "set",
    Type.STRING: "char",
    Type.VARCHAR: "varchar",
    Type.BLOB: "blob",
}


def _fields(optional: bytes) -> dict[int, bytes]:
    fields, at = {}, 0
    while at < len(optional):
        length, start = packed_number(optional, at + 1)
        if start + length > len(optional):
            raise ValueError("cut off")
        fields[optional[at]] = optional[start : start + length]
        at = start + length
    return fields


def _numbers(content: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(content):
        number, at = packed_number(content, at)
        numbers.append(number)
    return numbers


def _texts(content: bytes) -> list[bytes]:
    texts, at = [], 0
    while at < len(content):
        text, at = _text(content, at)
        texts.append(text)
    return texts


def _text(content: bytes, at: int) -> tuple[bytes, int]:
    length, start = packed_number(content, at)
    if start + length > len(content):
        raise ValueError("cut off")
    return content[start : start + length], start + length


def _unsigned(types: Sequence[int], bits: bytes) -> frozenset[int]:
    """A bit for each number, the highest first."""
    numbers = [i for i, type in enumerate(types) if type in _NUMBERS]
    return frozenset(
        i for n, i in enumerate(numbers) if n // 8 < len(bits) and bits[n // 8] >> (7 - n % 8) & 1
    )


def _collations(
    types: Sequence[int], of: Sequence[int], fields: dict[int, bytes], default: int, each: int
) -> dict[int, int]:
    """Either that of most, and pairs for the others, or one for each."""
    places = [i for i, type in enumerate(types) if type in of]
    if each in fields:
        return dict(zip(places, _numbers(fields[each]), strict=True))
    if default not in fields:
        return {}
    usual, *others = _numbers(fields[default])
    found = dict.fromkeys(places, usual)
    for n, collation in zip(others[::2], others[1::2], strict=True):
        found[places[n]] = collation
    return found


def _words(types: Sequence[int], of: int, content: bytes) -> dict[int, tuple[bytes, ...]]:
    found, at = {}, 0
    for i in (i for i, type in enumerate(types) if type == of and content):
        count, at = packed_number(content, at)
        words = []
        for _ in range(count):
            word, at = _text(content, at)
            words.append(word)
        found[i] = tuple(words)
    return found


def _primary(fields: dict[int, bytes]) -> list[int]:
    if _KEY_OF_PREFIXES in fields:
        return _numbers(fields[_KEY_OF_PREFIXES])[::2]
    return _numbers(fields.get(_PRIMARY_KEY, b""))
