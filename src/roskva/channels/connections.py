"""Connections from outside: how many a process holds, and who gives way when it holds them all.

Every socket counts from the moment it is accepted until it is closed, whatever its channel, TLS
handshakes under way among them. At each moment a connection

- *waits* for its client: to shake hands, to finish a request, to send another, to read an answer;
- or is *served*: its request is here, and the answer on its way;
- or *stays*: it has a session, a stream or a poll.

When all places are taken, whoever has waited longest gives way to the next that comes: what is well
behaved waits for milliseconds, and what is held open for its own sake grows old. Who stays never
gives way, so a part of the places is not for them: publishes and reads come and go there.
"""

from typing import Any, Final, Protocol

from roskva.channels.base import FULL
from roskva.errors import Overloaded

KEPT_PART: Final = 8
"""One place in so many is kept for requests,"""
MOST_KEPT: Final = 256
"""and no more than these."""

STAYS: Final = "stays"
"""In the state of a request: what is asked whether its connection may stay."""


def stay(state: Any) -> None:
    """For the request with this state; `Overloaded` if it may not."""
    if STAYS in state and not state[STAYS]():
        raise Overloaded(FULL)


class Closable(Protocol):
    def abort(self) -> None: ...


class Connections:
    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._most_staying = max(1, limit - min(limit // KEPT_PART, MOST_KEPT))
        self._open: set[Closable] = set()
        self._waiting: dict[Closable, None] = {}
        """Longest first."""
        self._staying: set[Closable] = set()
        self.gave_way = 0
        self.refused = 0

    @property
    def count(self) -> int:
        return len(self._open)

    @property
    def full(self) -> bool:
        """Of those who stay."""
        return len(self._staying) >= self._most_staying

    def admit(self, conn: Closable) -> bool:
        """Whether there is a place for it, or is now."""
        if len(self._open) >= self._limit and not self._make_room():
            self.refused += 1
            return False
        self.enter(conn)
        return True

    def enter(self, conn: Closable) -> None:
        """In the place of what was admitted and is about to leave; it waits."""
        self._open.add(conn)
        self._waiting[conn] = None

    def leave(self, conn: Closable) -> None:
        self._open.discard(conn)
        self._waiting.pop(conn, None)
        self._staying.discard(conn)

    def waits(self, conn: Closable) -> None:
        self._staying.discard(conn)
        if conn in self._open and conn not in self._waiting:
            self._waiting[conn] = None

    def is_held_up(self, conn: Closable) -> None:
        """Its answer is not read, so that it waits for its client; if it stays, it stays."""
        if conn not in self._staying:
            self.waits(conn)

    def is_served(self, conn: Closable) -> None:
        self._waiting.pop(conn, None)

    def stays(self, conn: Closable) -> bool:
        """Whether it may."""
        if conn not in self._staying:
            if self.full or conn not in self._open:
                self.refused += 1
                return False
            self._staying.add(conn)
            self._waiting.pop(conn, None)
        return True

    def _make_room(self) -> bool:
        oldest = next(iter(self._waiting), None)
        if oldest is None:
            return False
        self.leave(oldest)
        self.gave_way += 1
        oldest.abort()
        return True
