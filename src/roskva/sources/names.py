"""How a row of a table is called as an object: one rule, for every database.

    TABLE/KEY            products/17              the table `products` in the default schema
    SCHEMA.TABLE/KEY     sales.orders/17
    TABLE/KEY/KEY        stock/berlin/17          a key of two columns, in the order of the key

A value stands there as the database writes it as text; binary as `\\x` and hexadecimal digits. What
may not be in a name, and what separates, is written as `%` and two hexadecimal digits for each byte
of UTF-8: `/`, `%`, `+`, `#` and control characters, and in the names of schemas and tables the `.`.
NULL is `%-`. So no two rows of a database share a name.

A name has at most 255 bytes. Where it would be longer, the key is `%~` and 40 hexadecimal digits of
its SHA-256: the same for the same row, always, and the table can still be read.
"""

import re
from collections.abc import Sequence
from hashlib import sha256
from typing import Final

from roskva.errors import BadName
from roskva.model import MAX_NAME_BYTES

NULL: Final = "%-"
_HASHED: Final = "%~"
_HASH_DIGITS: Final = 40
_MAX_TABLE_BYTES: Final = MAX_NAME_BYTES - len(_HASHED) - _HASH_DIGITS - 1
_IN_KEYS: Final = re.compile(r"[\x00-\x1f\x7f-\x9f+#/%\ud800-\udfff]")
_IN_TABLES: Final = re.compile(r"[\x00-\x1f\x7f-\x9f+#/%.\ud800-\udfff]")


def table_name(schema: str | None, table: str) -> str:
    """`schema`: None for the default one."""
    name = ".".join(_IN_TABLES.sub(_escape, part) for part in (schema, table) if part is not None)
    if len(name.encode()) > _MAX_TABLE_BYTES:
        raise BadName(
            f"the table {name[:40]}… cannot be published: its name is longer than "
            f"{_MAX_TABLE_BYTES} bytes, and would leave no room for keys"
        )
    return name


def row_name(table: str, key: Sequence[str | None]) -> str:
    """`table`: as `table_name` made it; `key`: the values of its key columns, as text."""
    name = "/".join((table, *map(_value, key)))
    if len(name) > MAX_NAME_BYTES // 4 and len(name.encode()) > MAX_NAME_BYTES:
        digest = sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
        return f"{table}/{_HASHED}{digest}"
    return name


def _value(value: str | None) -> str:
    if value is None:
        return NULL
    return value if value.isalnum() and value.isascii() else _IN_KEYS.sub(_escape, value)


def _escape(found: re.Match[str]) -> str:
    return "".join(f"%{byte:02x}" for byte in found.group().encode("utf-8", "surrogatepass"))
