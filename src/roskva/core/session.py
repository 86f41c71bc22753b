"""What a registrar keeps in memory: its sessions, the objects that they care about, and for the
length of one step what it has to say to each session.

A registration is an entry on either side: the session's leads to the object, the object's says what
the session has acked of it. Acks come by object, those of many sessions at once: there they are at
hand.
Once acked, `(a, e)` is the very tuple that the object stands at: being fresh costs no memory of its
own.
"""

from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from roskva.core.digest import MASK
from roskva.core.effects import Effect, Handle
from roskva.core.freshness import Acked, Known
from roskva.model import NO_VERSION, NOBODY, Key
from roskva.wire.messages import (
    PROTOCOL,
    Grant,
    Notification,
    OperationStatus,
    ServerDigest,
    ServerError,
    ServerMessage,
    SessionConfig,
    SyncRequest,
)

TURN: Final = 500
"""Registrations looked at before the loop gets its turn."""
KEPT_AUDIENCE: Final = 100
ONLY_SKIPPED: Final = 1 << 63
"""A walk about what changed since then tells only what was skipped."""
_FRAME_ROOM: Final = 24_000
"""Bytes of notifications and statuses in one frame. Escaped in JSON they may double, and the rest
of a frame is small."""
_PART_OVERHEAD: Final = 64


class SessionPhase(Enum):
    GREETING = 0
    """Connected; nothing said yet."""
    OPENING = 1
    """The row's owner was asked for the session."""
    OPEN = 2


class Watched:
    """An object that sessions here care about, and what its shard last said of it."""

    __slots__ = (
        *("_audience", "changed_in", "hash", "incarnation", "key", "known", "max_acked"),
        *("payload", "sessions", "shard"),
    )

    def __init__(self, key: Key, hash: int, shard: int) -> None:
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

    def join(self, session: "Session", acked: Acked) -> None:
        self.sessions[session] = acked
        self._audience = None

    def leave(self, session: "Session") -> Acked:
        """What it had acked."""
        acked = self.sessions.pop(session)
        self._audience = None
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
        *("app", "application", "bits", "client", "conn", "created", "dirty", "expiry_s"),
        *(
            "hash_sum",
            "heard_at",
            "held_in",
            "keep",
            "lagged_in",
            "lagging",
            "nonce",
            "number",
            "owner",
            "paced",
            "phase",
        ),
        *("once", "principal", "refresh_at", "registered", "resume", "seen", "skipped"),
        "sync_asked_at",
        *("unconfirmed", "unsaved", "walk", "walk_repeats", "walk_since"),
    )

    def __init__(self, conn: Handle, bits: bytes, now: float) -> None:
        self.conn = conn
        self.bits = bits
        """Random: 16 bytes for the client id, the rest for its tokens."""
        self.phase = SessionPhase.GREETING
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
        self.expiry_s: int | None = None
        """They do so for no longer than this."""
        self.held_in = 0
        """The incarnation of the link by which the row's owner has last heard of it."""
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
        """Registrations confirmed while it lagged, and those of which something was kept back."""
        self.once = False
        """Its channel carries nothing twice over one connection (MQTT), or needs no acks (HTTP):
        what it was told there it is not told again."""
        self.paced = False
        """The channel may be full after any one notification (MQTT's Receive Maximum)."""
        self.walk: list[Key] | None = None
        """What is left of a walk over the registrations."""
        self.walk_since = 0
        """The walk is about what changed in this step or later."""
        self.walk_repeats = False
        """The walk is the regular one: what it finds due was told before, and not acked."""

    def add(self, watched: Watched, acked: Acked) -> None:
        if watched.key in self.registered:
            watched.sessions[self] = acked
        else:
            self.registered[watched.key] = watched
            self.hash_sum = (self.hash_sum + watched.hash) & MASK
            watched.join(self, acked)
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


class Outgoing(msgspec.Struct):
    """What one session is told in this step: gathered, so that it leaves together."""

    not_before_ms: int | None = None
    config: SessionConfig | None = None
    grant: Grant | None = None
    digest: bool = False
    notifications: list[Notification] = []
    statuses: list[OperationStatus] = []
    sync_request: SyncRequest | None = None
    error: ServerError | None = None
    close: bool = False

    def messages(self, session: int | None, digest: ServerDigest | None) -> Iterator[ServerMessage]:
        """Usually one. The first carries the grant, so that the rest finds a session; the last the
        digest, which is true only after all that was confirmed."""
        frames = list(self._frames()) or [([], [])]
        for i, (notifications, statuses) in enumerate(frames):
            first, last = i == 0, i == len(frames) - 1
            yield ServerMessage(
                v=PROTOCOL,
                session=session,
                not_before_ms=self.not_before_ms if first else None,
                config=self.config if first else None,
                grant=self.grant if first else None,
                digest=digest if last else None,
                notifications=notifications,
                statuses=statuses,
                sync_request=self.sync_request if last else None,
                error=self.error if last else None,
            )

    def _frames(self) -> Iterator[tuple[list[Notification], list[OperationStatus]]]:
        notifications: list[Notification] = []
        statuses: list[OperationStatus] = []
        room = _FRAME_ROOM
        parts: list[Notification | OperationStatus] = [*self.notifications, *self.statuses]
        for part in parts:
            size = _PART_OVERHEAD + len(part.object.encode())
            if isinstance(part, Notification):
                size += len(part.payload or b"")
            if size > room:
                yield notifications, statuses
                notifications, statuses, room = [], [], _FRAME_ROOM
            room -= size
            if isinstance(part, Notification):
                notifications.append(part)
            else:
                statuses.append(part)
        if notifications or statuses:
            yield notifications, statuses


class Outbox:
    """What one step has to say: to shards, to many sessions at once, and to single ones."""

    __slots__ = ("_effects", "sessions")

    def __init__(self) -> None:
        self._effects: list[Effect] = []
        self.sessions: dict[Session, Outgoing] = {}

    def emit(self, *effects: Effect) -> None:
        self._effects.extend(effects)

    def to(self, session: Session) -> Outgoing:
        outgoing = self.sessions.get(session)
        if outgoing is None:
            outgoing = self.sessions[session] = Outgoing()
        return outgoing

    def dismiss(self, session: Session, code: str, text: str = "") -> Outgoing:
        """It is told why, and its connection closed."""
        out = self.to(session)
        out.error, out.close = ServerError(code, text), True
        return out

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
