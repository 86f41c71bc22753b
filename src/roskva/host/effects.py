"""What hosts are told and ask for, beyond what passes through from the core (`core/effects.py`)."""

from collections.abc import Sequence

import msgspec

from roskva.core.effects import Broadcast, Handle
from roskva.errors import RoskvaError
from roskva.model import Update

# The feed: shard.


class Append(msgspec.Struct, frozen=True):
    """Answer with `Appended` when these would survive a power cut, or with `NotAppended`.

    What is asked for first has the lower offsets. One answer may be to several.
    """

    request: int
    updates: Sequence[Update]


class Appended(msgspec.Struct, frozen=True):
    """A group that is durable: all that follows `first` - 1, up to `last`, and nothing else."""

    first: int
    last: int
    entries: Sequence[tuple[int, Update]]
    requests: Sequence[int]


class NotAppended(msgspec.Struct, frozen=True):
    """None of them counts as published, though a part may turn up in the feed."""

    requests: Sequence[int]
    error: RoskvaError


class SetMarker(msgspec.Struct, frozen=True):
    """The feed may be cut off up to here, as far as this shard is concerned. Not answered: a marker
    that is lost comes again with the next."""

    lineage: int
    offset: int


# Publishing: registrar.


class Submitted(msgspec.Struct, frozen=True):
    """Updates to publish, of any shards. Those that may not be are errors already."""

    request: Handle
    updates: Sequence[Update | RoskvaError]


class Settled(msgspec.Struct, frozen=True):
    """The version under which each is durable, or why it is not; in the order of `Submitted`."""

    request: Handle
    outcomes: list[int | RoskvaError]


class Stopping(msgspec.Struct, frozen=True):
    """The node stops, and its shards may be gone before it."""


# Apps that are asked before each notification: registrar.


class CheckAudience(msgspec.Struct, frozen=True):
    """Whom may this go to? Answer with `AudienceChecked`."""

    broadcast: Broadcast


class AudienceChecked(msgspec.Struct, frozen=True):
    broadcast: Broadcast
