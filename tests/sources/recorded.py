"""The log of a MariaDB 10.11 as it came over a connection: `mariadb_binlog.hex`, an event a line.

With `binlog_row_metadata = FULL`: rows of `products` inserted, updated and deleted, once more with
compression, a row of `others`, a distributed transaction, TRUNCATE, and a row in the next file.
"""

import zlib
from pathlib import Path
from typing import Final

from roskva.sources.database import Tables
from roskva.sources.mysql.binlog import HEADER_BYTES, TableMap
from roskva.sources.mysql.gtids import MariaDbGtids
from roskva.sources.mysql.rows import BinlogTransactions
from roskva.sources.mysql.tables import Described, described
from roskva.sources.position import GtidPosition

EVENTS: Final = [
    bytes.fromhex(line)
    for line in Path(__file__).with_name("mariadb_binlog.hex").read_text().split()
]
BEGUN: Final = GtidPosition("0-1-2", "1/1")
TABLE_MAP: Final = next(event for event in EVENTS if event[4] == 19)


class LogOnly:
    """A `Catalog` that knows what the log says."""

    def describe(self, table: TableMap) -> Described | None:
        return described(table, lambda collation: {45: "utf8mb4"}.get(collation, "binary"))

    def altered(self, gtid: str) -> bool:
        return False

    def print(self) -> str:
        return ""

    def survives(self) -> bool:
        return False


def transactions() -> BinlogTransactions:
    position = MariaDbGtids(BEGUN.gtids)
    return BinlogTransactions(Tables(("products",)), "shop", LogOnly(), position, BEGUN)


def sealed(event: bytes) -> bytes:
    """With the size and the checksum that it should have."""
    if len(event) < HEADER_BYTES + 4:
        return event
    body = event[:9] + len(event).to_bytes(4, "little") + event[13:-4]
    return body + zlib.crc32(body).to_bytes(4, "little")
