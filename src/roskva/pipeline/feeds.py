"""The feeds of a data directory, and where a reader of all of them stands; the options that say it.

Spark keeps that as JSON and compares it as text: one dict of integers with its keys in order,

    {"shard-00": 4711, "shard-00.lineage": 1234567890, "shard-01": …}

which is what `startingOffsets` of the source takes, too (lineages may be left out there).

The log of changes of a change source is a feed of one shard.

**Beats.** Python workers that have had nothing to do for a minute are gone, and the next update
would wait for new ones. So our own queries have a micro-batch every 30 seconds, as a rule an empty
one; the offset counts them under `beat`, and the query moves on.
"""

import difflib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.base import START, Marker
from roskva.feed.reader import LogReader
from roskva.feed.record import META, read_record
from roskva.sources.changes import LOG

_SHARD: Final = "shard-"
_LINEAGE: Final = ".lineage"

BEAT: Final = "beat"
BEAT_S: Final = 30.0

Offsets = dict[str, int]

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
Default = TypeVar("Default", int, None)
Where = str | dict[int, Marker]
"""`earliest`, `latest`, or an offset for every shard."""


class _DataMeta(msgspec.Struct, frozen=True):
    shards: int


def shard_count(data: str) -> int:
    try:
        return read_record(RealDisk(), f"{data}/{META}", _DataMeta).shards
    except (FileNotFoundError, NotADirectoryError):
        raise BadInput(
            f"{data} is no data directory of Roskva: name the one that `roskva serve` was given"
        ) from None


def feed_path(data: str, shard: int) -> str:
    return f"{data}/{_SHARD}{shard:02}/feed"


class Feeds:
    """Readers of all feeds of a data directory; for one thread. One whose shard has never been
    opened is empty until it has."""

    def __init__(self, data: str) -> None:
        self.data = data
        self.shards = self._count()
        self._readers: dict[int, LogReader] = {}

    def _count(self) -> int:
        return shard_count(self.data)

    def _path(self, shard: int) -> str:
        return feed_path(self.data, shard)

    def reader(self, shard: int) -> LogReader | None:
        found = self._readers.get(shard)
        if found is None:
            path = self._path(shard)
            if not Path(path, META).exists():
                return None
            found = self._readers[shard] = LogReader(RealDisk(), path)
        return found

    def ends(self) -> dict[int, Marker]:
        """Of every feed that there is."""
        found = {}
        for shard in range(self.shards):
            reader = self.reader(shard)
            if reader is not None:
                end = reader.end()
                found[shard] = Marker(reader.lineage, end)
        return found

    def starts(self) -> dict[int, Marker]:
        """Before the first update that retention has left."""
        found = {}
        for shard in self.ends():
            reader = self._readers[shard]
            found[shard] = Marker(reader.lineage, reader.start() - 1)
        return found


class ChangesFeed(Feeds):
    """The log of changes in the directory of a source."""

    def _count(self) -> int:
        if not Path(self.data).is_dir():
            raise BadInput(f"{self.data} is no directory of a source: name DATA/sources/NAME")
        return 1

    def _path(self, shard: int) -> str:
        return f"{self.data}/{LOG}"


@cache
def feeds_at(data: str, of_source: bool = False) -> Feeds:
    """Of this process and its one thread: what is mapped stays, and reading on costs a frame."""
    return ChangesFeed(data) if of_source else Feeds(data)


def offsets_of(markers: Mapping[int, Marker]) -> Offsets:
    offsets: Offsets = {}
    for shard in sorted(markers):
        offsets[f"{_SHARD}{shard:02}"] = markers[shard].offset
        offsets[f"{_SHARD}{shard:02}{_LINEAGE}"] = markers[shard].lineage
    return offsets


def markers_of(offsets: Mapping[str, int]) -> dict[int, Marker]:
    return {
        _number(name): Marker(offsets.get(name + _LINEAGE, 0), offset)
        for name, offset in offsets.items()
        if not name.endswith(_LINEAGE)
    }


def passed(offsets: Mapping[str, int]) -> dict[int, Marker]:
    """Where a query with beats has been."""
    return markers_of({name: at for name, at in offsets.items() if name != BEAT})


def _number(name: str) -> int:
    digits = name.removeprefix(_SHARD)
    if digits == name or not digits.isdecimal():
        raise BadInput(f'offsets are given by shard, as in {{"shard-00": {START}}}; got {name!r}')
    return int(digits)


# The options of our Spark sources and sinks, checked: what is wrong is a sentence.


class Options:
    """As Spark gives them: text by name, in whatever case."""

    def __init__(self, source: str, given: Mapping[str, str], *known: str) -> None:
        self._source = source
        self._given = {name.lower(): value for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._given:
            if name not in names:
                close = difflib.get_close_matches(name, names, n=1)
                hint = (
                    f"did you mean {names[close[0]]}?" if close else f"it has: {', '.join(known)}"
                )
                raise BadInput(f"{source} has no option {name}; {hint}")

    def text(self, name: str, default: str | None = None) -> str:
        value = self._given.get(name.lower(), default)
        if value is None:
            raise BadInput(f"{self._source} needs the option {name}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        value = self._given.get(name.lower(), str(default)).strip().lower()
        if value not in ("true", "false"):
            raise BadInput(f"{name} is true or false; got {value!r}")
        return value == "true"

    def number(self, name: str, default: Default) -> int | Default:
        text = self._given.get(name.lower())
        if text is None:
            return default
        if not text.strip().isdecimal() or int(text) < 1:
            raise BadInput(f"{name} is a whole number from 1 on; got {text!r}")
        return int(text)

    def where(self, name: str, default: str) -> Where:
        text = self._given.get(name.lower(), default).strip()
        if text.lower() in (EARLIEST, LATEST):
            return text.lower()
        try:
            found = json.loads(text)
            return markers_of({str(key): int(value) for key, value in found.items()})
        except (ValueError, TypeError, AttributeError):
            raise BadInput(
                f'{name} is {EARLIEST}, {LATEST}, or offsets as in {{"shard-00": 4711}}; '
                f"got {text[:80]!r}"
            ) from None
