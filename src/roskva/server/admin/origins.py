"""Which change of a database a version came from: looked up in the log of changes.

A version says it by itself (docs/sources.md): its lower bits are an offset of that log. One record
is read, whatever the log holds.
"""

from pathlib import Path
from typing import Final

from roskva.disk import RealDisk
from roskva.errors import RoskvaError
from roskva.feed.base import Batch, Marker, Missing
from roskva.feed.reader import LogReader
from roskva.model import OFFSET_BITS, ordinal_of
from roskva.sources.change import body_of
from roskva.sources.changes import DIRECTORY, LOG
from roskva.wire.admin import OriginNow

_RETENTION: Final = "it is older than what the log of changes keeps"
_ANEW: Final = "the log of changes has begun anew since"


def origin_of(data: Path, source: str, version: int) -> OriginNow:
    """Waits for the disk."""
    offset = version - (ordinal_of(version) << OFFSET_BITS)
    ordinal = str(ordinal_of(version))
    if not offset:
        return OriginNow(source, ordinal, "0", why=_ANEW)
    try:
        reader = LogReader(RealDisk(), str(data / DIRECTORY / source / LOG))
        read = reader.read(Marker(reader.lineage, offset - 1), 1)
    except RoskvaError as error:
        return OriginNow(source, ordinal, str(offset), why=str(error))
    if isinstance(read, Missing):
        why = _RETENTION if read.why == "retention" else f"the log of changes lost it: {read.why}"
        return OriginNow(source, ordinal, str(offset), why=why)
    if not isinstance(read, Batch) or (update := read.updates()[0]).version != version:
        return OriginNow(source, ordinal, str(offset), why=_ANEW)
    body = body_of(update)
    return OriginNow(
        *(source, ordinal, str(offset), update.object, body.op, body.transaction),
        at=update.published_at / 1e6,
    )
