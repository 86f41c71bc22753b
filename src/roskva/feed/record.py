"""Small files that people can read and no flipped bit can change: meta and markers.

One line of JSON, a space and its CRC32C in hexadecimal, replaced as a whole.
"""

from typing import TypeVar

import msgspec
from google_crc32c import value as crc32c

from roskva.disk import Disk, write_whole
from roskva.errors import BadConfig, BadInput, Damaged
from roskva.feed.base import Marker
from roskva.feed.segment import FORMAT

META = "meta"
MARKERS = "markers"

_MAX_BYTES = 4096
_TRAILER_BYTES = 10
_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")


class Meta(msgspec.Struct, frozen=True):
    format: int
    lineage: int


T = TypeVar("T")


def read_record(disk: Disk, path: str, of: type[T]) -> T:
    raw = disk.read(path, 0, _MAX_BYTES)
    body = raw[:-_TRAILER_BYTES]
    if raw != body + _trailer(body):
        raise Damaged(f"{path} is not what was written")
    return msgspec.json.decode(body, type=of)


def write_record(disk: Disk, path: str, value: msgspec.Struct) -> None:
    body = msgspec.json.encode(value)
    write_whole(disk, path, body + _trailer(body))


def read_meta(disk: Disk, directory: str) -> Meta | None:
    """None if there is none; Damaged if it is not what was written."""
    try:
        meta = read_record(disk, f"{directory}/{META}", Meta)
    except FileNotFoundError:
        return None
    if meta.format > FORMAT:
        raise BadConfig(
            f"the feed in {directory} has format {meta.format}; this Roskva reads up to {FORMAT}: "
            "update it"
        )
    return meta


def write_marker(disk: Disk, directory: str, name: str, marker: Marker) -> None:
    if not name or not _NAME_CHARACTERS.issuperset(name):
        raise BadInput(f"a marker's name is made of a-z, 0-9, '-' and '_'; got {name[:80]!r}")
    write_record(disk, f"{directory}/{MARKERS}/{name}", marker)


def read_markers(disk: Disk, directory: str) -> tuple[dict[str, Marker], list[str]]:
    """The markers, and the names of those that are damaged."""
    sound: dict[str, Marker] = {}
    damaged: list[str] = []
    for name in disk.list(f"{directory}/{MARKERS}"):
        if not _NAME_CHARACTERS.issuperset(name):
            continue  # half a replacement that a crash left behind
        try:
            sound[name] = read_record(disk, f"{directory}/{MARKERS}/{name}", Marker)
        except Damaged:
            damaged.append(name)
    return sound, damaged


def _trailer(body: bytes) -> bytes:
    return b" %08x\n" % crc32c(body)
