"""What a client must still be told: the one place that decides it.

A registration is acked up to `(a, e)`: the highest version acked, and the epoch it was acked in.
Its object is known to stand at `(v, E)`. Nothing else is kept per client and object, and no queue:

    |           | e = E     | e ≠ E          |
    |-----------|-----------|----------------|
    | v > a     | Notify v  | Notify v       |
    | v ≤ a     | nothing   | NotifyUnknown  |
    | v unknown | nothing   | NotifyUnknown  |

An unknown v is −1, below every version, so the last two rows are one.

Why it is enough: within an epoch versions only rise and none is missed, so `v ≤ a` in the same
epoch means the client holds the latest. In another epoch versions may have been lost, and a client
that acked more than we know must look for itself.

A reset object has a mark in its epoch (`model.mark_of`). Acks from before the reset say nothing
about versions after it: acking under a new mark takes `a` back. (Without a mark nothing is known of
a reset, and a client keeps what it acked.)

Registrars decide by this table what to send, clients what to hand to the application, and the
audit what is stale.
"""

from enum import Enum
from typing import Final

from roskva.model import NO_EPOCH, NO_MARK, NO_VERSION, mark_of

Acked = tuple[int, int]
"""(a, e)"""
Known = tuple[int, int]
"""(v, E)"""

NEVER: Final[Acked] = (NO_VERSION, NO_EPOCH)


class Due(Enum):
    NOTHING = 0
    VERSION = 1
    UNKNOWN = 2


def due(acked: Acked, known: Known) -> Due:
    if known[0] > acked[0]:
        return Due.VERSION
    if known[1] != acked[1]:
        return Due.UNKNOWN
    return Due.NOTHING


def is_forged(version: int, epoch: int, known: Known) -> bool:
    """An ack of what cannot have been sent: versions never pass what is known of their epoch."""
    return epoch == known[1] and version > known[0]


def after_ack(acked: Acked, version: int, epoch: int, known: Known) -> Acked:
    """The registration after an ack that echoes the version (−1: unknown) and epoch it answers."""
    a, e = acked
    if epoch == known[1]:
        if mark_of(epoch) not in (NO_MARK, mark_of(e)):
            return version, epoch
        return max(a, version), epoch
    if e == known[1] and mark_of(epoch) != mark_of(e):
        return acked  # late, from before a reset that the client has acked since
    return max(a, version), e  # it was true in its epoch, and says nothing of the new one


def declared(version: int, acked: Acked | None, known: Known | None) -> Acked:
    """A registration whose client says which version its cache holds, higher or lower than acked.

    An existing registration keeps its epoch: the cache is as old as that. A new one counts as
    acked now. But a version above what is known of an epoch is not of that epoch: the cache is from
    before a loss or a reset, and its client has to look.
    """
    if acked is not None and acked[1] != NO_EPOCH:
        epoch = acked[1]
    else:
        epoch = NO_EPOCH if known is None else known[1]
    if known is not None and is_forged(version, epoch, known):
        epoch = NO_EPOCH
    return version, epoch
