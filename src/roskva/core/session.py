"""What a registrar keeps in memory: its sessions, and the objects that they care about.

A registration is an entry on either side: the session's leads to the object, the object's says what
the session has acked of it. Acks come by object, those of many sessions at once: there they are at
hand.
Once acked, `(a, e)` is the very tuple that the object stands at: being fresh costs no memory of its
own.
"""

from collections.abc import Collection
from enum import Enum
from typing import Final, NamedTuple

from roskva.core.digest import MASK
from roskva.core.effects import Handle
from roskva.core.freshness import Acked, Due, Known, due
from roskva.core.sums import Sums
from roskva.model import NO_VERSION, NOBODY, Key

KEPT_AUDIENCE: Final = 100


class Phase(Enum):
    GREETING = 0
    """Connected; nothing said yet."""
    OPENING = 1
    """The row's owner was asked for the session."""
    OPEN = 2


class Watched:
    """An object that sessions here care about, and what its shard last said of it."""

    __slots__ = (
        *("_audience", "changed_in", "hash", "incarnation", "key", "known", "max_acked"),
        *("outstanding", "payload", "sessions", "shard", "sums", "untold"),
    )

    def __init__(self, key: Key, hash: int, shard: int, sums: Sums) -> None:
        self.key = key
        self.hash = hash
        self.shard = shard
        self.known: Known | None = None
        self.changed_in = 0
        """The step in which its shard last said anything of it."""
        self.incarnation = 0
        """Of the link by which `known` came; it holds only while that link is up."""
        self.payload: bytes | None = None
        self.max_acked = NO_VERSION
        """No session here acked or declared more: a version above it may go to all unseen."""
        self.sessions: dict[Session, Acked] = {}
        """With what each has acked."""
        self._audience: tuple[Handle, ...] | None = None
        self.sums = sums
        self.outstanding = 0
        """Sessions that were told what it stands at, and have not acked it."""
        self.untold: set[Session] | None = None
        """Sessions that are yet to be told."""

    def join(self, session: "Session", acked: Acked) -> None:
        self.sessions[session] = acked
        self._audience = None

    def leave(self, session: "Session") -> Acked:
        """What it had acked."""
        acked = self.sessions.pop(session)
        self._audience = None
        self._abandoned_by(session, acked)
        return acked

    def audience(self) -> tuple[Handle, ...]:
        """The connections of its sessions. A large one is kept until somebody joins or leaves:
        going through the sessions is a part of what telling them costs."""
        if self._audience is not None:
            return self._audience
        audience = tuple([session.conn for session in self.sessions])
        if len(audience) >= KEPT_AUDIENCE:
            self._audience = audience
        return audience

    # Counting: see `sums.py`.

    def moves(self) -> None:
        """To where nobody was told of."""
        self.sums.superseded += self.outstanding
        self.outstanding = 0

    def told_all(self, count: int, but: "set[Session] | None") -> None:
        """So many, right after it moved."""
        self.sums.first += count
        self.outstanding = count
        self.untold = but or None

    def told(self, sessions: "Collection[Session]") -> None:
        first, untold = 0, self.untold
        if untold is not None:
            first = len(untold)
            untold.difference_update(sessions)
            first -= len(untold)
            self.untold = untold or None
        self.sums.first += first
        self.outstanding += first
        self.sums.resent += len(sessions) - first

    def acked(self, count: int) -> None:
        self.sums.acked += count
        self.outstanding -= count

    def acked_by(self, session: "Session") -> None:
        """What was due to it."""
        if not self._no_longer_untold(session):
            self.acked(1)

    def nothing_for(self, session: "Session") -> None:
        self._no_longer_untold(session)

    def declared_by(self, session: "Session", acked: Acked) -> None:
        """It begins anew, with the version in its cache."""
        self._abandoned_by(session, self.sessions[session])
        self.sessions[session] = acked
        self.begins_with(session)

    def _abandoned_by(self, session: "Session", acked: Acked) -> None:
        told = not self._no_longer_untold(session)
        if told and self.known is not None and due(acked, self.known) is not Due.NOTHING:
            self.sums.abandoned += 1
            self.outstanding -= 1

    def begins_with(self, session: "Session") -> None:
        if self.untold is None:
            self.untold = set()
        self.untold.add(session)

    def _no_longer_untold(self, session: "Session") -> bool:
        """Whether it was until now."""
        untold = self.untold
        if untold is None or session not in untold:
            return False
        untold.remove(session)
        if not untold:
            self.untold = None
        return True


class Unconfirmed(NamedTuple):
    """An operation to be answered when the row is written."""

    number: int
    """Of its message."""
    declared: bool
    """With the version in the client's cache."""
    refused: str | None = None
    """The code, if it was a registration that is not allowed."""


class Session:
    __slots__ = (
        "app",
        "application",
        "bits",
        "client",
        "conn",
        "created",
        "dirty",
        "hash_sum",
        "heard_at",
        "keep",
        "lagged_in",
        "lagging",
        "nonce",
        "number",
        "owner",
        "paced",
        "phase",
        "principal",
        "refresh_at",
        "registered",
        "resume",
        "seen",
        "skipped",
        "sync_asked_at",
        "unconfirmed",
        "unsaved",
        "walk",
        "walk_since",
    )

    def __init__(self, conn: Handle, bits: bytes, now: float) -> None:
        self.conn = conn
        self.bits = bits
        """Random: 16 bytes for the client id, the rest for its tokens."""
        self.phase = Phase.GREETING
        self.client = b""
        self.app = ""
        """Whose objects it may name; empty where the channel looks after that."""
        self.principal = NOBODY
        self.application = ""
        self.number = 0
        self.owner = 0
        """The shard that keeps this client's row."""
        self.created = False
        self.resume = True
        """With the registrations in its row."""
        self.keep = True
        """Its registrations are in a row, and outlive it."""
        self.nonce: bytes | None = None
        """Of the hello to be answered; None where the channel identified the client."""
        self.refresh_at: float | None = None
        """When its token is to be replaced; None where it has none."""
        self.heard_at = now
        self.registered: dict[Key, Watched] = {}
        self.hash_sum = 0
        self.dirty: list[Key] | None = None
        """Acked since the row was last written."""
        self.seen = 0
        """The highest number of a message with operations."""
        self.unsaved: dict[Key, int] | None = None
        """Registrations not known to be durable, with the request that is to make them so."""
        self.unconfirmed: dict[Key, Unconfirmed] | None = None
        self.sync_asked_at: float | None = None
        self.lagging = False
        self.lagged_in: int | None = None
        """The first step it was left out of, and has not been walked over for."""
        self.skipped: dict[Key, None] | None = None
        """Registrations confirmed while it lagged."""
        self.paced = False
        """The channel may be full after any one notification (MQTT's Receive Maximum)."""
        self.walk: list[Key] | None = None
        """What is left of a walk over the registrations."""
        self.walk_since = 0
        """The walk is about what changed in this step or later."""

    def add(self, watched: Watched, acked: Acked) -> None:
        if watched.key in self.registered:
            watched.declared_by(self, acked)
        else:
            self.registered[watched.key] = watched
            self.hash_sum = (self.hash_sum + watched.hash) & MASK
            watched.join(self, acked)
            watched.begins_with(self)
        if acked[0] > watched.max_acked:
            watched.max_acked = acked[0]

    def remove(self, watched: Watched) -> None:
        del self.registered[watched.key]
        watched.leave(self)
        self.hash_sum = (self.hash_sum - watched.hash) & MASK

    def acked(self, key: Key) -> Acked | None:
        """None if it is not registered."""
        watched = self.registered.get(key)
        return None if watched is None else watched.sessions[self]
