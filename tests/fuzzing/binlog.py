"""Binary logs of MariaDB, with their checksums broken, and with checksums that fit what is wrong.

What a checksum tells is never taken for a row, and the error names the place. What it cannot tell
is refused as garbled, or makes rows of their table.
"""

import re
from typing import Final

from tests.fuzzing.target import Target
from tests.sources.recorded import EVENTS, TABLE_MAP, sealed, transactions

from roskva.errors import BadMessage
from roskva.sources.mysql.binlog import Kind
from roskva.sources.reader import Doubtful, LogIdle, Received

_FORMAT: Final = EVENTS[1]
_GTID: Final = next(event for event in EVENTS if event[4] == Kind.GTID)
_PLACE: Final = re.compile(r", at [^:]*:\d+, after 0-1-2$")
_SOUND: Final = frozenset(EVENTS)


def _takes(event: bytes) -> bool:
    """Where it may stand: most of them after a transaction has begun, and its table was named."""
    reading = transactions()
    found: list[Received | Doubtful | LogIdle] = []
    begins = event[4:5] == bytes((Kind.GTID,))
    for before in (EVENTS[0], _FORMAT, *((_GTID, TABLE_MAP) if not begins else ())):
        reading.take(before, found)
    try:
        reading.take(event, found)
    except BadMessage as error:
        if not _PLACE.search(str(error)):
            raise AssertionError("the error does not say where") from error
        return False
    return True


def _takes_broken(event: bytes) -> bool:
    taken = _takes(event)
    assert not taken or event in _SOUND
    return taken


def _takes_sealed(event: bytes) -> bool:
    return _takes(sealed(event))


TARGETS: Final = [
    Target("binlog events", EVENTS, _takes_broken, rounds=100_000),
    Target("binlog events with their checksums", EVENTS, _takes_sealed, rounds=100_000),
]
