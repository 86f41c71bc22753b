"""Machines as values: two that behave alike are equal, whatever they went through.

A machine under exploration lives at one moment for ever (`NOW`). What it keeps of time comes down
to which of its timers are armed, so every armed one stands at `LATER`. Numbers that only have to
differ from each other (requests, storage operations, incarnations of a link) are lowered to the
smallest that do. Counters are mute. What is left is compared field by field, without regard to the
order of dictionaries or to which equal tuples are one object.
"""

from collections import OrderedDict, deque
from enum import Enum
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, Final

import msgspec

from roskva.core.backoff import Dice, Rate, RateLimit
from roskva.core.client import ClientMachine, ClientPhase
from roskva.core.interest import Interests
from roskva.core.matcher import Matcher
from roskva.core.registrar import Registrar
from roskva.core.row_writes import RowWrites
from roskva.core.session import Session
from roskva.host.delivery import MessageDelivery
from roskva.host.registrar import RegistrarHost
from roskva.host.shard import ShardHost, every_app

NOW: Final = 1000.0
LATER: Final = NOW + 1e6
MUCH_LATER: Final = LATER + 1e6
"""Of a client's flush that waits until its application has restated what it wants."""
LONG_AGO: Final = NOW - 1e6
NO_LIMIT: Final = Rate(1, 1)

PROMPT_TIMERS: Final = ("flush_at", "connect_at", "greet_at")
SLOW_TIMERS: Final = ("answer_by", "retry_at", "show_at", "beat_at")


class Mute(dict[str, int]):
    """Counters that count nothing."""

    def __missing__(self, name: str) -> int:
        return 0

    def __setitem__(self, name: str, value: int) -> None:
        pass

    def __reduce__(self) -> tuple[type["Mute"], tuple[()]]:
        return Mute, ()


class LoadedDice(Dice):
    """Always in the middle; its bits count upwards, so that a nonce differs from the one before."""

    def bits(self) -> int:
        self.state += 1
        return self.state

    def fraction(self) -> float:
        return 0.5


def settle_client(core: ClientMachine) -> None:
    if core.flush_at is not None and core.flush_at != MUCH_LATER:
        core.flush_at = MUCH_LATER if core.flush_at == core.settle_at else LATER
    for timer in (*PROMPT_TIMERS[1:], *SLOW_TIMERS):
        if getattr(core, timer) is not None:
            setattr(core, timer, LATER)
    core.not_before = core.last_sent = core.now = NOW - 1
    core.settle_at = LATER if core.settle_at > NOW else LONG_AGO
    core.reconnects.reset()
    core.retries.reset()
    core.rate = RateLimit(NO_LIMIT)
    if core.phase is not ClientPhase.GREETING:
        core.dice.state = 0
    if core.phase is ClientPhase.READY:
        core.number = core.last_operation  # those in flight are counted when the next one leaves
        return
    core.number = core.last_operation = 0
    core.server_digest = None
    for operation in core.pending.values():
        operation.number = 0


def settle_registrar(core: Registrar, lags: bool) -> None:
    core.now = core.interests.now = core.admission.next_slot = NOW
    core.ping_at = LATER
    if core.row_writes.flush_at is not None:
        core.row_writes.flush_at = LATER
    visits: dict[Any, Session] = {s.conn: s for turn in core.admission.wheel.values() for s in turn}
    conns = sorted(visits, key=_NUMBER)
    there = [visits[conn] for conn in conns if core.conns.get(conn) is visits[conn]]
    core.admission.wheel = {int(LATER): there} if there else {}
    core.admission.wheel_turn = int(NOW)
    for session in core.conns.values():
        session.heard_at = NOW
        if session.dirty is not None:
            session.dirty = sorted(set(session.dirty))
        session.refresh_at = None if session.refresh_at is None else MUCH_LATER
        if session.sync_asked_at is not None:
            session.sync_asked_at = NOW
    core.admission.handshakes = RateLimit(NO_LIMIT)
    core.interests.lingering = dict.fromkeys(core.interests.lingering, LATER)
    (link,) = core.interests.links
    link.leased_at = NOW
    link.pings = deque([NOW] * len(link.pings))
    for watched in core.watched.values():
        watched.incarnation = int(watched.incarnation == link.incarnation and link.incarnation > 0)
    link.incarnation = min(link.incarnation, 1)
    unsaved = (n for s in core.conns.values() for n in (s.unsaved or {}).values())
    core.row_writes.requests = max((*link.requests, *unsaved), default=0)
    _settle_steps(core, lags)


def _settle_steps(core: Registrar, lags: bool) -> None:
    """When objects changed matters to sessions that lag, and to one that begins to right now."""
    interests, sessions = core.interests, list(core.conns.values())
    objects = list(core.watched.values())
    since = {s.lagged_in for s in sessions} | {s.walk_since for s in sessions if s.walk is not None}
    last = interests.step if lags else -1
    marks = sorted({step for step in since if step is not None} | {last})
    for watched in objects:
        watched.changed_in = sum(mark <= watched.changed_in for mark in marks if mark >= 0)
    for session in sessions:
        session.walk_since = marks.index(session.walk_since) + 1 if session.walk is not None else 0
        if session.lagged_in is not None:
            session.lagged_in = marks.index(session.lagged_in) + 1
    interests.step = len(marks)


def settle_shard(host: ShardHost) -> None:
    host.fast_path = every_app
    host.marked = -1
    host.accounted = 0  # for the observer alone
    if not host.publishes and not host.beginning:
        host.requests = 0
    if host.read_later is not None:
        host.read_later = LATER, host.read_later[1]
    host.bridge_failed_at = NOW if host.bridge_failed_at == NOW else -inf
    _settle_matcher(host.matcher)
    rows = host.rows
    rows.sessions = 0
    rows.ids = max((*rows.opening, *rows.checking, *rows.persisting), default=0)


def _settle_matcher(core: Matcher) -> None:
    for link in core.links.values():
        link.heard_at = NOW
    if core.retry_at is not None:
        core.retry_at = LATER
    if core.reading_since is not None:
        core.reading_since = NOW
    if core.flushing is None:
        core.flush_id = core.flush_covers = core.flush_epoch = 0
    if core.caught_up:
        core.catch_up_to = None
    if not core.announcing:
        core.announced_apps = set()
    core.ids = max((core.flush_id, core.asked, *(entry.load for entry in core.objects.values())))


_NUMBER: Final = attrgetter("address")
_SKIPPED: Final = frozenset(
    (
        *("config", "keys", "standing", "counters", "_effects", "outbox", "registrar"),
        *("observer", "fast_path", "reads_alone"),
        "welcomed",  # the host decides nothing by it
        *("slow", "walk_repeats"),  # the one follows from `lagging`, the other counts
    )
)
_SKIPPED_OF_REGISTRARS: Final = _SKIPPED | {"watched", "conns", "sessions"}  # its parts have them
_SHARED: Final = (Interests, RowWrites)


class _Freezer:
    """Sessions and the objects they watch point at each other: a session is spelled out once,
    under its connection, and named everywhere else."""

    def __init__(self, live: dict[Any, Session]) -> None:
        self.live = {id(session): conn.address for conn, session in live.items()}
        self.gone: dict[int, int] = {}
        self.spelled: set[int] = set()

    def freeze(self, value: Any) -> Any:
        kind = type(value)
        if kind in (int, str, bytes, bool, float) or value is None:
            return value
        if kind is dict:
            items = [(self.freeze(k), self.freeze(v)) for k, v in value.items()]
            return tuple(sorted(items, key=itemgetter(0)))
        if kind in (tuple, list, deque):
            return tuple([self.freeze(item) for item in value])
        if kind in (set, frozenset):
            return tuple(sorted(value))
        if kind is OrderedDict:
            return tuple([(self.freeze(k), self.freeze(v)) for k, v in value.items()])
        if isinstance(value, MessageDelivery):
            return value.address, value.lagging
        if kind is Session:
            return self._named(value)
        if isinstance(value, Enum):
            return value.value
        if isinstance(value, msgspec.Struct):
            return (kind.__name__, *(self.freeze(v) for v in msgspec.structs.astuple(value)))
        if kind in _SHARED:
            if id(value) in self.spelled:
                return None
            self.spelled.add(id(value))
        return self.fields(value)

    def fields(self, value: Any) -> Any:
        names = value.__slots__ if hasattr(value, "__slots__") else value.__dict__
        skipped = _SKIPPED_OF_REGISTRARS if type(value) is Registrar else _SKIPPED
        return tuple([self.freeze(getattr(value, name)) for name in names if name not in skipped])

    def _named(self, session: Session) -> Any:
        conn = self.live.get(id(session))
        if conn is not None:
            return ("live", conn)
        if id(session) not in self.gone:
            self.gone[id(session)] = len(self.gone)
            return ("gone", self.gone[id(session)], self.fields(session))
        return ("gone", self.gone[id(session)])


def frozen(core: object) -> Any:
    live: dict[Any, Session] = core.core.conns if isinstance(core, RegistrarHost) else {}
    freezer = _Freezer(live)
    spelled_out = [freezer.fields(live[conn]) for conn in sorted(live, key=_NUMBER)]
    return tuple(spelled_out), freezer.fields(core)
