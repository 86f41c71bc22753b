"""What one process of a node knows of an object or a client: plain values, to be put together."""

import msgspec

from roskva.model import NO_VERSION
from roskva.wire.admin import Freshness, ProcessNow, ShardNow

Passed = tuple[str, int, str, int]
"""An object, its version, the stage that it passed, and when in wall-clock microseconds."""


class Held(msgspec.Struct, frozen=True):
    """A registration of a session, or of a row."""

    object: str
    acked: int
    epoch: int


class Compared(msgspec.Struct, frozen=True):
    """A registration beside what its object stands at; without a version and an epoch if the
    object's shard does not answer."""

    object: str
    state: str
    acked: int
    version: int | None = None


class SessionFacts(msgspec.Struct, frozen=True):
    client: str
    """In hexadecimal digits."""
    process: str
    channel: str
    number: int
    open: bool
    """Otherwise it waits for its row."""
    owner: int
    application: str
    principal: str
    silent_s: float
    slow: bool
    unsaved: int
    """Registrations on their way to the row."""
    counts: dict[str, int]
    registrations: list[Compared]


class NoteFacts(msgspec.Struct, frozen=True):
    client: str
    at: float
    code: str
    process: str
    object: str = ""


class FrontClient(msgspec.Struct, frozen=True):
    sessions: list[SessionFacts] = []
    notes: list[NoteFacts] = []


class RowFacts(msgspec.Struct, frozen=True):
    application: str
    session: int
    created_at_us: int
    seen_at_us: int
    registered: list[Held]


class PendingSession(msgspec.Struct, frozen=True):
    client: str
    application: str
    channel: str
    acked: int
    state: str
    silent_s: float


class FrontObject(msgspec.Struct, frozen=True):
    """The sessions of one process that are registered for an object."""

    sessions: int = 0
    counts: dict[str, int] = {}
    slowest: list[PendingSession] = []


class ObjectFacts(msgspec.Struct, frozen=True):
    """What the shard has of an object."""

    version: int
    """−1: not known."""
    epoch: int
    lower_bound: int = -1
    reset: bool = False
    published_at_us: int = 0
    source: str | None = None
    payload_bytes: int | None = None
    caught_up: bool = True


class ProcessFacts(msgspec.Struct, frozen=True):
    process: ProcessNow
    shards: list[ShardNow]
    freshness: Freshness
    passed: list[Passed]


class ObjectSeen(msgspec.Struct, frozen=True):
    """By one process: as the registrar of some, as the owner of its shard, or as both."""

    front: FrontObject
    stands: ObjectFacts | None


class RowSeen(msgspec.Struct, frozen=True):
    row: RowFacts | None


class Stands(msgspec.Struct, frozen=True):
    objects: dict[str, ObjectFacts]


def as_text(version: int) -> str | None:
    return None if version == NO_VERSION else str(version)
