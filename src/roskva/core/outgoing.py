"""What one step has to say: to shards, to many sessions at once, and to single ones.

What is meant for one session is gathered, so that it leaves together.
"""

from collections.abc import Iterator
from typing import Final

from roskva.core.effects import Effect
from roskva.core.session import Session
from roskva.wire.messages import (
    PROTOCOL,
    Config,
    Failure,
    Grant,
    Notification,
    ServerDigest,
    ServerMessage,
    Status,
    SyncRequest,
)

_FRAME_ROOM: Final = 24_000
"""Bytes of notifications and statuses in one frame. Escaped in JSON they may double, and the rest
of a frame is small."""
_PART_OVERHEAD: Final = 64


class Outgoing:
    __slots__ = (
        "close",
        "config",
        "digest",
        "error",
        "grant",
        "not_before_ms",
        "notifications",
        "statuses",
        "sync_request",
    )

    def __init__(self) -> None:
        self.not_before_ms: int | None = None
        self.config: Config | None = None
        self.grant: Grant | None = None
        self.digest = False
        self.notifications: list[Notification] = []
        self.statuses: list[Status] = []
        self.sync_request: SyncRequest | None = None
        self.error: Failure | None = None
        self.close = False

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

    def _frames(self) -> Iterator[tuple[list[Notification], list[Status]]]:
        notifications: list[Notification] = []
        statuses: list[Status] = []
        room = _FRAME_ROOM
        parts: list[Notification | Status] = [*self.notifications, *self.statuses]
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

    def take(self) -> list[Effect]:
        effects, self._effects = self._effects, []
        return effects
