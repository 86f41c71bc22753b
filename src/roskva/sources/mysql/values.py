"""Values of columns, as row events of a binary log hold them.

A row event has no types of its own: the event before it, TABLE_MAP, says of each column a type and
up to two bytes about it. What these leave open (whether a number has a sign, how text is encoded,
the words of an ENUM) comes from whoever knows the table: `Column`.

A value becomes what stands in JSON: whole numbers, numbers as they are written, text, and binary as
`\\\\x` and hexadecimal digits. Times are text as the database shows it, TIMESTAMP in UTC.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from socket import AF_INET6, inet_ntop
from struct import Struct
from typing import Final

import msgspec

from roskva.errors import BadMessage
from roskva.sources.mysql.decimals import decimal_reader
from roskva.sources.mysql.json_values import read_json


class Absent:
    """A value that is not there: the log does not have it, or it is too large to be kept."""


ABSENT: Final = Absent()
MAX_VALUE_BYTES: Final = 1 << 20
Value = int | float | str | msgspec.Raw | Absent | None
Read = Callable[[bytes, int], tuple[Value, int]]
"""The value that begins there, and where the next one does."""


class Type(IntEnum):
    """Of a column, in the log."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    TIMESTAMP = 7
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    TIME = 11
    DATETIME = 12
    YEAR = 13
    NEWDATE = 14
    VARCHAR = 15
    BIT = 16
    TIMESTAMP2 = 17
    DATETIME2 = 18
    TIME2 = 19
    JSON = 245
    NEWDECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    VAR_STRING = 253
    STRING = 254
    GEOMETRY = 255


_INTEGERS: Final = {Type.TINY: 1, Type.SHORT: 2, Type.INT24: 3, Type.LONG: 4, Type.LONGLONG: 8}
_IN_SQL: Final[dict[str, tuple[Type, ...]]] = {
    "tinyint": (Type.TINY,),
    "smallint": (Type.SHORT,),
    "mediumint": (Type.INT24,),
    "int": (Type.LONG,),
    "bigint": (Type.LONGLONG,),
    "decimal": (Type.NEWDECIMAL,),
    "float": (Type.FLOAT,),
    "double": (Type.DOUBLE,),
    "bit": (Type.BIT,),
    "year": (Type.YEAR,),
    "date": (Type.DATE, Type.NEWDATE),
    "time": (Type.TIME, Type.TIME2),
    "datetime": (Type.DATETIME, Type.DATETIME2),
    "timestamp": (Type.TIMESTAMP, Type.TIMESTAMP2),
    "json": (Type.JSON,),
    "enum": (Type.ENUM,),
    "set": (Type.SET,),
    **dict.fromkeys(("varchar", "varbinary"), (Type.VARCHAR, Type.VAR_STRING)),
    **dict.fromkeys(("char", "binary", "uuid", "inet4", "inet6"), (Type.STRING,)),
    **dict.fromkeys(("tinyblob", "blob", "mediumblob", "longblob"), (Type.BLOB,)),
    **dict.fromkeys(("tinytext", "text", "mediumtext", "longtext"), (Type.BLOB,)),
}
"""What is not here is a geometry."""

_CODECS: Final = {
    **dict.fromkeys(("utf8", "utf8mb3", "utf8mb4"), "utf-8"),
    "latin1": "cp1252",
    "latin2": "iso8859_2",
    "latin5": "iso8859_9",
    "latin7": "iso8859_13",
    "greek": "iso8859_7",
    "hebrew": "iso8859_8",
    "koi8r": "koi8_r",
    "koi8u": "koi8_u",
    "ucs2": "utf-16-be",
    "utf16": "utf-16-be",
    "utf16le": "utf-16-le",
    "utf32": "utf-32-be",
    "sjis": "shift_jis",
    "ujis": "euc_jp",
    "eucjpms": "euc_jp",
    "euckr": "euc_kr",
    "tis620": "tis_620",
    "macroman": "mac_roman",
    "macce": "mac_latin2",
    **{name: name for name in ("ascii", "big5", "gbk", "gb2312", "gb18030", "cp932")},
    **{name: name for name in ("cp850", "cp852", "cp866", "cp1250", "cp1251", "cp1256", "cp1257")},
}
_DAY_S: Final = 86400
_FLOAT: Final = Struct("<f")
_DOUBLE: Final = Struct("<d")


class ColumnTraits(msgspec.Struct, frozen=True):
    """What is known of a column beside its type in the log."""

    name: str
    type: str
    """As SQL calls it: `int`, `varchar`, `uuid`."""
    unsigned: bool = False
    charset: str | None = None
    """None: binary."""
    words: tuple[str, ...] = ()
    """Of an ENUM or a SET."""

    def may_be(self, type: int) -> bool:
        return type in _IN_SQL.get(self.type, (Type.GEOMETRY,))


def real_type(type: int, meta: bytes) -> tuple[int, int]:
    """Of a STRING: ENUM and SET hide in there; and how many bytes its values have at most."""
    if type != Type.STRING:
        return type, 0
    high, low = meta
    if high & 0x30 != 0x30:
        return high | 0x30, low | ((high & 0x30) ^ 0x30) << 4
    return high, low


def value_reader(type: int, meta: bytes, column: ColumnTraits) -> Read:
    """`BadMessage`: there is no such type, or none that can be read."""
    type, length = real_type(type, meta)
    match type:
        case Type.TINY | Type.SHORT | Type.INT24 | Type.LONG | Type.LONGLONG:
            return _integer(_INTEGERS[Type(type)], not column.unsigned)
        case Type.FLOAT:
            return _float
        case Type.DOUBLE:
            return _double
        case Type.NEWDECIMAL:
            return decimal_reader(*meta)
        case Type.BIT:
            return _bits(meta[1] + (meta[0] > 0))
        case Type.VARCHAR | Type.VAR_STRING:
            return _counted(1 if int.from_bytes(meta, "little") < 256 else 2, _text(column))
        case Type.STRING:
            return _counted(1 if length < 256 else 2, _fixed(column, length))
        case Type.BLOB | Type.GEOMETRY:
            return _counted(meta[0], _text(column))
        case Type.JSON:
            return _counted(meta[0], read_json)
        case Type.ENUM:
            return _enum(length, column.words)
        case Type.SET:
            return _set(length, column.words)
    return _time_reader(type, meta, column)


def _time_reader(type: int, meta: bytes, column: ColumnTraits) -> Read:
    match type:
        case Type.YEAR:
            return _year
        case Type.DATE | Type.NEWDATE:
            return _date
        case Type.TIMESTAMP:
            return _timestamp(None)
        case Type.TIMESTAMP2:
            return _timestamp(meta[0])
        case Type.DATETIME:
            return _old_datetime
        case Type.DATETIME2:
            return _datetime(meta[0])
        case Type.TIME:
            return _old_time
        case Type.TIME2:
            return _time(meta[0])
    raise BadMessage(f"the column {column.name} has a type that is not read here: {type}")


# Numbers.


def _integer(size: int, signed: bool) -> Read:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        return int.from_bytes(data[at:end], "little", signed=signed), end

    return read


def _bits(size: int) -> Read:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        return int.from_bytes(data[at:end]), end

    return read


def _double(data: bytes, at: int) -> tuple[Value, int]:
    return _DOUBLE.unpack_from(data, at)[0], at + 8


def _float(data: bytes, at: int) -> tuple[Value, int]:
    """The shortest number that is the same in four bytes."""
    (value,) = _FLOAT.unpack_from(data, at)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if abs(short) < 3.4028235e38 and _FLOAT.pack(short) == data[at : at + 4]:
            return short, at + 4
    return value, at + 4


# Times.


def _year(data: bytes, at: int) -> tuple[Value, int]:
    return data[at] + 1900 if data[at] else 0, at + 1


def _date(data: bytes, at: int) -> tuple[Value, int]:
    value = int.from_bytes(data[at : at + 3], "little")
    return f"{value >> 9:04d}-{value >> 5 & 15:02d}-{value & 31:02d}", at + 3


def _fraction(data: bytes, at: int, digits: int) -> tuple[str, int]:
    end = at + (digits + 1) // 2
    value = int.from_bytes(data[at:end])
    return (f".{value:0{(digits + 1) // 2 * 2}d}"[: digits + 1] if digits else ""), end


def _timestamp(digits: int | None) -> Read:
    """None: as MySQL before 5.6 has it."""

    def read(data: bytes, at: int) -> tuple[Value, int]:
        order = "big" if digits is not None else "little"
        seconds = int.from_bytes(data[at : at + 4], order)  # type: ignore[arg-type]
        fraction, end = _fraction(data, at + 4, digits or 0)
        if not seconds:
            return f"0000-00-00 00:00:00{fraction}", end
        days, second = divmod(seconds, _DAY_S)
        year, month, day = _civil(days)
        clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"
        return f"{year:04d}-{month:02d}-{day:02d} {clock}{fraction}", end

    return read


def _civil(days: int) -> tuple[int, int, int]:
    """The date so many days after the first of 1970."""
    days += 719_468  # since the first of March of the year 0
    era, day = divmod(days, 146_097)
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day += 1 - (153 * month + 2) // 5
    month += 3 if month < 10 else -9
    return era * 400 + year + (month <= 2), month, day


def _datetime(digits: int) -> Read:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        value = int.from_bytes(data[at : at + 5]) - (1 << 39)
        fraction, end = _fraction(data, at + 5, digits)
        day, clock = divmod(value, 1 << 17)
        months, day = divmod(day, 32)
        year, month = divmod(months, 13)
        time = f"{clock >> 12:02d}:{clock >> 6 & 63:02d}:{clock & 63:02d}"
        return f"{year:04d}-{month:02d}-{day:02d} {time}{fraction}", end

    return read


def _time(digits: int) -> Read:
    size = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + 3 + size
        value = int.from_bytes(data[at:end]) - (0x800000 << 8 * size)
        sign, value = ("-", -value) if value < 0 else ("", value)
        clock = value >> 8 * size
        fraction, _ = _fraction(value.to_bytes(3 + size), 3, digits)
        hours, minutes, seconds = clock >> 12, clock >> 6 & 63, clock & 63
        return f"{sign}{hours:02d}:{minutes:02d}:{seconds:02d}{fraction}", end

    return read


def _old_datetime(data: bytes, at: int) -> tuple[Value, int]:
    """The digits of the text, as a number."""
    digits = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
    date = f"{digits[:-10]}-{digits[-10:-8]}-{digits[-8:-6]}"
    return f"{date} {digits[-6:-4]}:{digits[-4:-2]}:{digits[-2:]}", at + 8


def _old_time(data: bytes, at: int) -> tuple[Value, int]:
    value = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, value = ("-", -value) if value < 0 else ("", value)
    return f"{sign}{value // 10000:02d}:{value // 100 % 100:02d}:{value % 100:02d}", at + 3


# Text, bytes and words.


def _counted(size: int, read_value: Callable[[bytes], Value]) -> Read:
    """Behind their length, of so many bytes."""

    def read(data: bytes, at: int) -> tuple[Value, int]:
        start = at + size
        end = start + int.from_bytes(data[at:start], "little")
        if end > len(data):
            raise ValueError("cut off")
        if end - start > MAX_VALUE_BYTES:
            return ABSENT, end
        return read_value(data[start:end]), end

    return read


def hexadecimal(content: bytes) -> str:
    return f"\\x{content.hex()}"


def decode_text(content: bytes, charset: str | None) -> str:
    """Of a word or a name: it is for people."""
    return content.decode(_CODECS.get(charset or "", "utf-8"), errors="replace")


def _text(column: ColumnTraits) -> Callable[[bytes], Value]:
    if column.charset in (None, "binary"):
        return hexadecimal
    codec = _CODECS.get(column.charset or "")
    if codec is None:
        raise BadMessage(f"the text of {column.name} is in {column.charset}, which is not read")

    def read(content: bytes) -> str:
        try:
            return content.decode(codec)
        except UnicodeDecodeError:
            if codec == "cp1252":  # of which five bytes mean nothing
                return "".join(_LATIN1[byte] for byte in content)
            return hexadecimal(content)

    return read


_LATIN1: Final = [
    bytes((byte,)).decode("cp1252", errors="ignore") or chr(byte) for byte in range(256)
]


def _fixed(column: ColumnTraits, length: int) -> Callable[[bytes], Value]:
    """The log leaves out what pads a value: spaces, or zero bytes where it is binary."""
    match column.type:
        case "uuid":
            return lambda content: _uuid(content.ljust(length, b"\0"))
        case "inet4":
            return lambda content: ".".join(map(str, content.ljust(length, b"\0")))
        case "inet6":
            return lambda content: inet_ntop(AF_INET6, content.ljust(length, b"\0"))
    if column.charset in (None, "binary"):
        return lambda content: hexadecimal(content.ljust(length, b"\0"))
    return _text(column)


def _uuid(stored: bytes) -> str:
    digits = stored.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _enum(size: int, words: Sequence[str]) -> Read:
    """0 stands for what was no word of it."""

    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        number = int.from_bytes(data[at:end], "little")
        return words[number - 1] if number else "", end

    return read


def _set(size: int, words: Sequence[str]) -> Read:
    def read(data: bytes, at: int) -> tuple[Value, int]:
        end = at + size
        bits = int.from_bytes(data[at:end], "little")
        if bits >> len(words):
            raise ValueError("no word")
        return ",".join(word for i, word in enumerate(words) if bits >> i & 1), end

    return read
