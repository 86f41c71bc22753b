"""A change of a row, and how it stands in the changes log: as an `Update`.

| of the update | of a change | of a doubt |
|---|---|---|
| object | `app/` and the name of the row | `app/` |
| version | ordinal « 43, and its offset in the log | the new ordinal |
| source | the position behind its transaction, if it is the last of it | where reading goes on |
| payload | the rest, as JSON | cause and sentence |
| reset | no | yes |

So the log is a feed like any other, Spark reads it as it reads those, and what is told of a row is
the update itself, without the payload.
"""

from typing import Final, Literal

import msgspec

from roskva.model import OFFSET_BITS, Update, app_key
from roskva.sources.names import row_name
from roskva.sources.position import Doubt, Position, position_text

NULL: Final = msgspec.Raw(b"null")
Op = Literal["insert", "update", "delete"]


class Change(msgspec.Struct, frozen=True, gc=False):
    table: str
    """As `names.table_name` makes it."""
    op: Op
    key: tuple[str | None, ...]
    row: msgspec.Raw
    """The columns after it, as JSON; null: it was deleted."""
    before: msgspec.Raw
    """What the database gives of the columns before it."""
    at: int
    """When its transaction was committed: wall-clock microseconds of the database."""
    missing: tuple[str, ...] = ()
    """Columns that it left alone and the database did not send."""


class Body(msgspec.Struct, frozen=True, omit_defaults=True):
    """The payload of a change."""

    table: str
    op: Op
    key: tuple[str | None, ...]
    transaction: str
    row: msgspec.Raw = NULL
    before: msgspec.Raw = NULL
    missing: tuple[str, ...] = ()


_encode: Final = msgspec.json.Encoder().encode
_read_body: Final = msgspec.json.Decoder(Body).decode
_read_doubt: Final = msgspec.json.Decoder(Doubt).decode


def version_of(ordinal: int, offset: int) -> int:
    return ordinal << OFFSET_BITS | offset


def update_of(app: str, change: Change, transaction: str, version: int, end: str | None) -> Update:
    """`end`: the position behind its transaction, as text, if it is the last change of it."""
    body = Body(
        change.table,
        change.op,
        change.key,
        transaction,
        change.row,
        change.before,
        change.missing,
    )
    name = row_name(change.table, change.key)
    return Update(f"{app}/{name}", version, end, _encode(body), change.at)


def doubt_record(app: str, doubt: Doubt, ordinal: int, position: Position, now_us: int) -> Update:
    where = position_text(position)
    return Update(app_key(app), ordinal, where, _encode(doubt), now_us, reset=True)


def body_of(update: Update) -> Body:
    return _read_body(update.payload or b"")


def doubt_of(update: Update) -> Doubt:
    return _read_doubt(update.payload or b"")
