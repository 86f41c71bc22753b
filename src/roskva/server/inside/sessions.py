"""The sessions of this process, looked at from outside the registrar: counted and compared.

Nothing is kept for it while nobody asks. Whoever asks pays, a slice per turn of the loop, so that
clients wait no longer for their notifications while an operator looks.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from typing import Final, TypeVar

import msgspec

from roskva.core.freshness import Acked, Due, due
from roskva.core.registrar import Registrar
from roskva.core.session import Phase, Session, Watched
from roskva.host.delivery import Delivery
from roskva.model import NO_VERSION, Key, is_probe
from roskva.server.inside.facts import Compared, FrontObject, PendingSession, SessionFacts
from roskva.wire.admin import Freshness

FRESH, PENDING, UNKNOWN, SLOW, BLIND = "fresh", "pending", "unknown", "slow", "blind"
LISTED: Final = 300
"""Registrations of one client that are listed; all are counted."""
SLOWEST: Final = 10
_SLICE: Final = 1000
_MIN_AGE_S: Final = 1.0
_SHARE: Final = 0.02
"""Of the time, for counting."""

T = TypeVar("T")


def state_of(core: Registrar, session: Session, watched: Watched, acked: Acked) -> str:
    known = watched.known
    if known is None or not core.interests.holds(watched):
        return BLIND
    told = Due.NOTHING if acked is known else due(acked, known)
    if told is Due.NOTHING:
        return FRESH
    if session.lagging:
        return SLOW
    return PENDING if told is Due.VERSION else UNKNOWN


class Census:
    """How many registrations of the sessions here are fresh. Counted when somebody asks, and not
    again before it has rested for long enough to be cheap."""

    def __init__(self, core: Registrar) -> None:
        self._core = core
        self._counted = Freshness()
        self._counted_at = float("-inf")
        self._rest_until = float("-inf")
        self._lock = asyncio.Lock()

    async def take(self) -> Freshness:
        async with self._lock:
            if time.monotonic() >= self._rest_until:
                spent = time.thread_time()
                self._counted = await self._count()
                self._counted_at = time.monotonic()
                spent = time.thread_time() - spent
                self._rest_until = self._counted_at + max(_MIN_AGE_S, spent / _SHARE)
        age_s = time.monotonic() - self._counted_at
        return msgspec.structs.replace(self._counted, age_seconds=round(age_s, 1))

    async def _count(self) -> Freshness:
        core, counts = self._core, Counter[str]()
        async for watched in _in_turns(list(core.watched.values())):
            if is_probe(watched.key):
                continue
            async for session in _in_turns(list(watched.sessions)):
                acked = watched.sessions.get(session)
                if acked is not None and session.phase is Phase.OPEN:
                    counts[state_of(core, session, watched, acked)] += 1
        slow = sum(session.lagging for session in core.conns.values())
        return Freshness(
            counts.total(),
            counts[FRESH],
            counts[PENDING] + counts[UNKNOWN] + counts[SLOW],
            counts[SLOW],
            counts[BLIND],
            slow,
        )


async def of_object(core: Registrar, key: Key) -> FrontObject:
    watched = core.watched.get(key)
    if watched is None:
        return FrontObject()
    counts, behind = Counter[str](), list[PendingSession]()
    async for session in _in_turns(list(watched.sessions)):
        acked = watched.sessions.get(session)
        if acked is None or session.phase is not Phase.OPEN:
            continue
        state = state_of(core, session, watched, acked)
        counts[state] += 1
        if state != FRESH and len(behind) < _SLICE:
            behind.append(_pending(core, session, acked, state))
    behind.sort(key=lambda one: (one.acked, -one.silent_s))
    return FrontObject(counts.total(), dict(counts), behind[:SLOWEST])


async def of_client(core: Registrar, process: str, wanted: str) -> list[SessionFacts]:
    """By its id in hexadecimal digits, or by its application id."""
    id = wanted.lower()
    found = [
        session
        async for session in _in_turns(list(core.conns.values()))
        if session.client and (session.client.hex() == id or session.application == wanted)
    ]
    return [await _facts(core, process, session) for session in found[:SLOWEST]]


async def _facts(core: Registrar, process: str, session: Session) -> SessionFacts:
    counts, listed, fresh = Counter[str](), list[Compared](), list[Compared]()
    async for key, watched in _in_turns(list(session.registered.items())):
        acked = watched.sessions.get(session)
        if acked is None:
            continue
        state = state_of(core, session, watched, acked)
        counts[state] += 1
        into = fresh if state == FRESH else listed
        if len(into) < LISTED:
            known = None if state == BLIND or watched.known is None else watched.known[0]
            into.append(Compared(key, state, acked[0], known))
    return SessionFacts(
        session.client.hex(),
        process,
        _channel(session),
        session.number,
        session.phase is Phase.OPEN,
        session.owner,
        session.application,
        session.principal.name,
        round(_silent_s(core, session), 1),
        session.lagging,
        len(session.unsaved or ()),
        dict(counts),
        [*listed, *fresh][:LISTED],
    )


def _pending(core: Registrar, session: Session, acked: Acked, state: str) -> PendingSession:
    return PendingSession(
        session.client.hex(),
        session.application,
        _channel(session),
        max(acked[0], NO_VERSION),
        state,
        round(_silent_s(core, session), 1),
    )


def _silent_s(core: Registrar, session: Session) -> float:
    return max(0.0, time.monotonic() - session.heard_at)


def _channel(session: Session) -> str:
    return session.conn.channel if isinstance(session.conn, Delivery) else ""


async def _in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    for number, item in enumerate(items, 1):
        yield item
        if number % _SLICE == 0:
            await asyncio.sleep(0)
