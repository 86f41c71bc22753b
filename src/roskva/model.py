"""The values everything else speaks of: objects, versions, epochs, updates.

An object's **key** is its one spelling, `app/name`: on the wire, on disk, as an MQTT topic and on
the command line. An app has no `/` in it, so the first `/` splits a key for good.

An **epoch** names a gap-free history of versions. Whenever a shard cannot vouch for its history any
more, a record in its feed begins another one (40 random bits), for whoever reads that feed; an
object that was reset carries a mark of its own (20 bits) beside it. Both travel as one integer, and
whoever holds two epochs of an object can tell whether a reset lies between them.

A whole **app** can be reset, too: its **generation** says how often. A version belongs to the
generation it was applied under, and the marks of all its objects follow from it.

Where a change source publishes, the generation is its **ordinal**, and versions carry it: they are
`ordinal « 43 | offset in the log of changes`.
"""

import hashlib
import re
import zlib
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, Literal

import msgspec

from roskva.errors import BadName

_ACCOUNT_BYTES: Final = 8
MAX_VERSION: Final = 2**63 - 1
NO_VERSION: Final = -1
"""Inside the code "no version" is below every version; on the wire it is null."""

NO_EPOCH: Final = 0
"""What a registration has acked before it acked anything; no shard ever draws it."""

NO_MARK: Final = 0
"""Of an object that was never reset, as far as anybody remembers."""

NO_GENERATION: Final = 0
"""Of an app that was never reset, likewise."""

MAX_RESET_APPS: Final = 1000
"""That a shard keeps generations of: they are written at once, with its marker."""

OFFSET_BITS: Final = 43
"""Of a version that a change source has given."""

MAX_NAME_BYTES: Final = 255
MAX_PAYLOAD_BYTES: Final = 1024
MAX_SOURCE_BYTES: Final = 64

_VERSION_DIGITS = len(str(MAX_VERSION))
_RESET_BITS = 20
_RESET_MASK = (1 << _RESET_BITS) - 1
_SHARD_EPOCH_BITS = 40
START_OF_2025_S: Final = 1_735_689_600

_APP = re.compile(r"[a-z0-9-]{1,63}\Z")
_FORBIDDEN_IN_NAME = re.compile(r"[\x00-\x1f\x7f-\x9f+#\ud800-\udfff]")

PROBE_APP: Final = "roskva-probe"
PROBE_SLOW_APP: Final = "roskva-probe-slow"
"""Its updates take the way through the pipeline."""
PROBE_APPS: Final = frozenset((PROBE_APP, PROBE_SLOW_APP))
"""Kept for the prober of a node: nobody else gets at their objects where there are keys."""

OF_PROBER: Final = tuple(f"{app}/" for app in sorted(PROBE_APPS))
"""How the keys of their objects begin."""

Key = str
"""`app/name`; made by `ObjectId.key` or checked by `parse_key`."""


def is_version(text: str) -> bool:
    """Whether it is one in digits."""
    digits = text.isascii() and text.isdecimal() and len(text) <= _VERSION_DIGITS
    return digits and int(text) <= MAX_VERSION


class ObjectId(msgspec.Struct, frozen=True, order=True):
    app: str
    name: str

    @property
    def key(self) -> Key:
        return f"{self.app}/{self.name}"

    def __str__(self) -> str:
        return self.key


@lru_cache(maxsize=4096)
def parse_key(text: str) -> ObjectId:
    """`app/name` as an object, or BadName with a sentence that says what is wrong."""
    app, slash, name = text.partition("/")
    if not slash:
        raise BadName(f"an object is written app/name; {text[:80]!r} has no '/'")
    check_app(app)
    check_name(name)
    return ObjectId(app, name)


def check_app(app: str) -> None:
    if not _APP.match(app):
        raise BadName(f"an app is 1 to 63 of a-z, 0-9 and '-'; got {app[:80]!r}")


def check_name(name: str) -> None:
    found = _FORBIDDEN_IN_NAME.search(name)
    if found:
        raise BadName(f"a name has no control characters, '+' or '#'; got {found.group()!r}")
    if not 1 <= len(name.encode()) <= MAX_NAME_BYTES:
        raise BadName(f"a name is 1 to {MAX_NAME_BYTES} bytes of UTF-8; got {len(name.encode())}")


def is_key(text: str) -> bool:
    try:
        parse_key(text)
    except BadName:
        return False
    return True


def app_of(key: Key) -> str:
    return key.partition("/")[0]


def app_key(app: str) -> Key:
    """What the reset of an app names as its object: no object is called so."""
    return f"{app}/"


def is_app(key: Key) -> bool:
    """Whether it stands for a whole app."""
    return key.find("/") == len(key) - 1 > 0


WHOLE_SHARD: Final = "/"
"""What the record of a new epoch names as its object: no app, and nothing of it."""


def is_probe(key: Key) -> bool:
    """Whether an object is one of the prober's."""
    return key.startswith(OF_PROBER)


def shard_of(identity: Key | bytes, shards: int) -> int:
    """The shard of an object (its key) or of a client (its id). Never changes for a given count."""
    return zlib.crc32(identity.encode() if isinstance(identity, str) else identity) % shards


class Principal(msgspec.Struct, frozen=True):
    """Who somebody proved to be. Without keys everybody is nobody in particular."""

    name: str = ""
    app: str | None = None
    """Whose objects it may name; None: any."""
    issued_at: int = 0
    """Wall-clock seconds: when that was issued which it proved it with."""
    key: bool = False
    """It showed a publish key: it may publish whatever its app has, and do nothing else."""
    address: str = ""
    """Where nobody in particular is, if addresses are counted there."""

    def at(self, address: str) -> "Principal":
        nobody = not self.name and address
        return msgspec.structs.replace(self, address=address) if nobody else self

    @property
    def account(self) -> bytes:
        """Under which is counted what it leaves behind; empty: it is not."""
        if not self.name and not self.address:
            return b""
        parts = [part.encode() for part in (self.app or "", self.name, self.address)]
        named = b"".join(len(part).to_bytes(4) + part for part in parts)
        return hashlib.sha256(named).digest()[:_ACCOUNT_BYTES]


NOBODY: Final = Principal()


class Update(msgspec.Struct, frozen=True, gc=False):
    """What a publisher publishes, and one row of the feed.

    A reset is an update too, so that it has its place in the order: its `version` is the mark
    (1 … 2^20−1, drawn at random) that the object's epoch carries from then on. The reset of an app
    names `app_key` as its object, and its `version` is the generation that begins. The record of a
    new epoch names `WHOLE_SHARD`, and its `version` is the epoch that begins (`epoch_record`).
    """

    object: Key
    version: int
    source: str | None = None
    payload: bytes | None = None
    published_at: int = 0
    """Wall-clock microseconds at the publisher."""
    reset: bool = False


def shard_epoch(random_bits: int) -> int:
    """An epoch for a shard, from random bits; never NO_EPOCH."""
    return 1 + random_bits % ((1 << _SHARD_EPOCH_BITS) - 1)


NOTHING_LOST: Final = -1
"""In place of an offset up to which something is lost: it is below every one."""


class Loss(msgspec.Struct, frozen=True):
    """For what an epoch begins: of this feed what is up to `last` cannot be had, or was another
    than what is there now. Up to 0: nothing is, but whatever was there before this feed."""

    lineage: int
    last: int
    why: Literal["begun", "recreated", "truncated", "retention", "damage", "restore"]
    """For people to read; two losses up to one place are the same."""


def epoch_record(epoch: int, loss: Loss, published_at: int) -> Update:
    payload = msgspec.json.encode(loss)
    return Update(WHOLE_SHARD, epoch, None, payload, published_at, reset=True)


def loss_of(record: Update) -> Loss:
    """For what this record of an epoch was written."""
    return msgspec.json.decode(record.payload or b"", type=Loss)


def reset_mark(random_bits: int) -> int:
    return 1 + random_bits % _RESET_MASK


def object_epoch(shard: int, mark: int) -> int:
    """The epoch of one object: its shard's, and the mark of its last reset (0: never reset)."""
    return shard << _RESET_BITS | mark


def next_generation(known: Iterable[int], wall_s: float) -> int:
    """For the reset of an app of which shards know these: above them all. And not below the hours
    of the clock: whoever forgets a generation with its disk shall not give it out again."""
    return max(*known, int((wall_s - START_OF_2025_S) / 3600), NO_GENERATION) + 1


def ordinal_of(version: int) -> int:
    """Under which a change source has given it."""
    return version >> OFFSET_BITS


def mark_under(own: int, generation: int) -> int:
    """The mark of an object: that of its own last reset, and the generation of its app."""
    return 1 + (own + generation) % _RESET_MASK if generation else own


def shard_part(epoch: int) -> int:
    """Of an object's epoch what is not its mark."""
    return epoch >> _RESET_BITS


def mark_of(epoch: int) -> int:
    return epoch & _RESET_MASK
