"""The sessions of this process, looked at from outside the registrar: counted and compared.

Nothing is kept for it while nobody asks. Whoever asks pays, a slice per turn of the loop, so that
clients wait no longer for their notifications while an operator looks. Kept are only notes of what
this process told clients lately that changed what they get: soft and bounded, and no log.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import Final, Literal, TypeVar

import msgspec

from roskva.core.freshness import Acked, Due, due
from roskva.core.registrar import Registrar
from roskva.core.session import Session, SessionPhase, Watched
from roskva.host.delivery import Delivery
from roskva.host.observer import Observer
from roskva.model import NO_VERSION, Key, is_probe
from roskva.wire import admin
from roskva.wire.messages import OperationStatus

State = Literal["fresh", "pending", "unknown", "slow", "blind"]
FRESH: Final = "fresh"
PENDING: Final = "pending"
UNKNOWN: Final = "unknown"
SLOW: Final = "slow"
BLIND: Final = "blind"
STATES: Final[dict[Due, State]] = {
    Due.NOTHING: FRESH,
    Due.VERSION: PENDING,
    Due.UNKNOWN: UNKNOWN,
}
LISTED: Final = 300
"""Registrations of one client that are listed; all are counted."""
SLOWEST: Final = 10
_SLICE: Final = 1000
_MIN_AGE_S: Final = 1.0
_SHARE: Final = 0.02
"""Of the time, for counting."""
_NOTES: Final = 1000

T = TypeVar("T")


def as_text(version: int) -> str | None:
    return None if version == NO_VERSION else str(version)


def state_of(core: Registrar, session: Session, watched: Watched, acked: Acked) -> State:
    known = watched.known
    if known is None or not core.interests.is_current(watched):
        return BLIND
    state = STATES[due(acked, known)] if acked is not known else FRESH
    return SLOW if session.lagging and state != FRESH else state


class Listed:
    """Registrations of one client: all are counted, some are listed, those behind first."""

    def __init__(self) -> None:
        self.counts = Counter[str]()
        self._fresh: list[admin.RegistrationNow] = []
        self._others: list[admin.RegistrationNow] = []

    def add(self, key: Key, state: State, acked: int, version: int | None) -> None:
        self.counts[state] += 1
        into = self._fresh if state == FRESH else self._others
        if len(into) < LISTED:
            stands = None if version is None else as_text(version)
            into.append(admin.RegistrationNow(key, state, as_text(acked), stands))

    def listed(self) -> list[admin.RegistrationNow]:
        return [*self._others, *self._fresh][:LISTED]


class Census:
    """How many registrations of the sessions here are fresh. Counted when somebody asks, and not
    again before it has rested for long enough to be cheap."""

    def __init__(self, core: Registrar) -> None:
        self._core = core
        self._counted = admin.Freshness()
        self._counted_at = float("-inf")
        self._rest_until = float("-inf")
        self._lock = asyncio.Lock()

    async def take(self) -> admin.Freshness:
        async with self._lock:
            if time.monotonic() >= self._rest_until:
                spent = time.thread_time()
                self._counted = await self._count()
                self._counted_at = time.monotonic()
                spent = time.thread_time() - spent
                self._rest_until = self._counted_at + max(_MIN_AGE_S, spent / _SHARE)
        age_s = time.monotonic() - self._counted_at
        return msgspec.structs.replace(self._counted, age_seconds=round(age_s, 1))

    async def _count(self) -> admin.Freshness:
        core, counts = self._core, Counter[str]()
        async for watched in _in_turns(list(core.watched.values())):
            if is_probe(watched.key):
                continue
            async for session in _in_turns(list(watched.sessions)):
                acked = watched.sessions.get(session)
                if acked is not None and session.phase is SessionPhase.OPEN:
                    counts[state_of(core, session, watched, acked)] += 1
        return admin.Freshness(
            registrations=counts.total(),
            fresh=counts[FRESH],
            pending=counts[PENDING] + counts[UNKNOWN] + counts[SLOW],
            slow=counts[SLOW],
            blind=counts[BLIND],
            slow_sessions=sum(session.lagging for session in core.conns.values()),
        )


async def with_sessions(
    core: Registrar, process: str, key: Key, found: admin.ObjectNow
) -> admin.ObjectNow:
    """What is found of an object, and who is registered for it here."""
    watched = core.watched.get(key)
    if watched is None:
        return found
    counts, slowest = Counter[str](), list[admin.SlowSession]()
    async for session in _in_turns(list(watched.sessions)):
        acked = watched.sessions.get(session)
        if acked is None or session.phase is not SessionPhase.OPEN:
            continue
        state = state_of(core, session, watched, acked)
        counts[state] += 1
        if state != FRESH and len(slowest) < _SLICE:
            slowest.append(_slow_session(session, process, acked, state))
    return msgspec.structs.replace(
        found,
        sessions=counts.total(),
        fresh=counts[FRESH],
        pending=counts.total() - counts[FRESH] - counts[BLIND],
        slow=counts[SLOW],
        slowest=slowest_of(slowest),
    )


def slowest_of(sessions: Iterable[admin.SlowSession]) -> list[admin.SlowSession]:
    behind = sorted(sessions, key=lambda one: (int(one.acked or -1), -one.silent_seconds))
    return behind[:SLOWEST]


async def of_client(core: Registrar, process: str, wanted: str) -> list[admin.ClientNow]:
    """Sessions by the client's id in hexadecimal digits, or by its application id."""
    id = wanted.lower()
    found = [
        session
        async for session in _in_turns(list(core.conns.values()))
        if session.client and (session.client.hex() == id or session.application == wanted)
    ]
    return [await _client(core, process, session) for session in found[:SLOWEST]]


async def _client(core: Registrar, process: str, session: Session) -> admin.ClientNow:
    listed = Listed()
    async for key, watched in _in_turns(list(session.registered.items())):
        acked = watched.sessions.get(session)
        if acked is None:
            continue
        state = state_of(core, session, watched, acked)
        known = None if state == BLIND or watched.known is None else watched.known[0]
        listed.add(key, state, acked[0], known)
    return admin.ClientNow(
        client=session.client.hex(),
        presence="online",
        application=session.application,
        principal=session.principal.name,
        channel=_channel(session),
        process=process,
        session=str(session.number),
        opening=session.phase is not SessionPhase.OPEN,
        slow=session.lagging,
        unsaved=len(session.unsaved or ()),
        silent_seconds=_silent_s(session),
        counts=dict(listed.counts),
        registrations=listed.listed(),
    )


def _slow_session(session: Session, process: str, acked: Acked, state: State) -> admin.SlowSession:
    return admin.SlowSession(
        session.client.hex(),
        session.application,
        _channel(session),
        process,
        as_text(acked[0]),
        state,
        _silent_s(session),
    )


def _silent_s(session: Session) -> float:
    return round(max(0.0, time.monotonic() - session.heard_at), 1)


def _channel(session: Session) -> str:
    return session.conn.channel if isinstance(session.conn, Delivery) else ""


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    for number, item in enumerate(items, 1):
        yield item
        if number % _SLICE == 0:
            await asyncio.sleep(0)


class Notes(Observer):
    """Refusals, and ends of sessions."""

    def __init__(self, process: str) -> None:
        self._process = process
        self._kept: deque[tuple[str, str, admin.NoteNow]] = deque(maxlen=_NOTES)

    def answered(self, session: Session, statuses: Sequence[OperationStatus]) -> None:
        """Its operations, some of which may have been refused."""
        for status in statuses:
            if status.code:
                self._note(session, status.code, status.object)

    def ended(self, session: Session, code: str) -> None:
        self._note(session, code)

    def _note(self, session: Session, code: str, key: Key = "") -> None:
        note = admin.NoteNow(time.time(), code, key, self._process)
        self._kept.append((session.client.hex(), session.application, note))

    def about(self, wanted: str) -> tuple[list[admin.NoteNow], str]:
        """By a client's id in hexadecimal digits or its application id: the latest first, and whom
        that is about."""
        id = wanted.lower()
        found = [
            (client, note)
            for client, application, note in reversed(self._kept)
            if client == id or (application and application == wanted)
        ]
        return [note for _, note in found], found[0][0] if found else ""
