"""Registrars, matcher and rows by number: see `machines.py`."""

from typing import Any

from roskva.core.effects import (
    Applied,
    Apply,
    Broadcast,
    ClientRow,
    Close,
    Closed,
    Drained,
    DropLink,
    Effect,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromConnection,
    FromLink,
    Lagging,
    LinkDown,
    LinkUp,
    LoadClient,
    Loaded,
    LoadObjects,
    Opened,
    Persist,
    Persisted,
    PutShard,
    ReadFeed,
    Send,
    SendLink,
    Tick,
)
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.rows import Rows
from roskva.core.session import Session, SessionPhase
from roskva.model import Update
from roskva.simulation.exploration.canonical import (
    LONG_AGO,
    NO_LIMIT,
    NOW,
    Mute,
    settle_matcher,
    settle_registrar,
    settle_rows,
)
from roskva.simulation.exploration.machines import Frames, Machines, OpenTokens, Words
from roskva.simulation.exploration.state import index_of, key_of
from roskva.wire.links import Registered

_TOKEN_BITS = bytes(12)


class SessionFacts:
    __slots__ = ("client_id", "number", "open", "registered", "visited")

    def __init__(self, session: Session, visited: bool) -> None:
        self.client_id = session.client
        self.number = session.number
        self.open = session.phase is SessionPhase.OPEN
        self.registered = {
            index_of(key): at.sessions[session] for key, at in session.registered.items()
        }
        self.visited = visited


class RegistrarFacts:
    __slots__ = ("flushes", "known", "lingers", "problem", "sessions", "works")

    def __init__(self, core: Registrar) -> None:
        visited = {s.conn for turn in core.wheel.values() for s in turn}
        self.sessions: dict[Any, SessionFacts] = {
            conn: SessionFacts(session, conn in visited) for conn, session in core.conns.items()
        }
        self.known = {
            index_of(watched.key): watched.known
            for watched in core.watched.values()
            if core.interests.is_current(watched)
        }
        self.works = core.next_deadline() == 0.0
        self.flushes = core.row_writes.flush_at is not None
        self.lingers = bool(core.interests.lingering)
        self.problem = None if self.works else _left_behind(core)


def _left_behind(core: Registrar) -> str | None:
    """State of sessions that are closed, when all work is done."""
    (link,) = core.interests.links
    held: dict[str, list[Session]] = {
        "sessions": list(core.sessions.values()),
        "objects": [s for watched in core.watched.values() for s in watched.sessions],
        "unwritten acks": list(link.dirty),
        "waiting": list(link.waiting),
        "walks": list(core.notifications.walks),
    }
    for where, sessions in held.items():
        if any(core.conns.get(session.conn) is not session for session in sessions):
            return f"a registrar still has a closed session among its {where}"
    idle = [w for w in core.watched.values() if not w.sessions]
    if any(watched.key not in core.interests.lingering for watched in idle):
        return "a registrar watches an object for nobody, and for ever"
    return None


class Registrars(Machines[Registrar]):
    facts: list[RegistrarFacts]

    def __init__(self, frames: Frames, lags: bool) -> None:
        super().__init__(frames)
        self.lags = lags

    def start(self) -> int:
        return self.started(None, self._make)

    def _make(self) -> Registrar:
        config = RegistrarConfig("registrar", 1, handshakes=NO_LIMIT)
        core = Registrar(config, OpenTokens({}, 0), 0, NOW)
        for part in (core, core.admission, core.registrations, core.notifications):
            part.counters = Mute()
        return core

    def perform(self, core: Registrar, event: Words) -> list[Words]:
        effects = core.step(self._event(core, event), NOW)
        return [words for effect in effects for words in self._out(effect)]

    def _event(self, core: Registrar, event: Words) -> Event:
        match event:
            case ("frame", conn, frame):
                return FromConnection(conn, self.frames.messages[frame])
            case ("link", frame):
                return FromLink(0, self.frames.messages[frame])
            case ("open", conn, client):
                return Opened(conn, client + _TOKEN_BITS)
            case ("closed", conn):
                return Closed(conn)
            case ("lagging", conn):
                return Lagging(conn)
            case ("drained", conn):
                return Drained(conn)
            case ("link up",):
                return LinkUp(0)
            case ("link down",):
                return LinkDown(0)
            case _:
                self._run_out(core, event)
                return Tick()

    def _run_out(self, core: Registrar, event: Words) -> None:
        """Which timer the next tick finds at its end; `work` is none."""
        match event:
            case ("ack flush",):
                core.row_writes.flush_at = NOW
            case ("ping",):
                core.ping_at = NOW
            case ("linger",):
                core.ping_at = NOW
                core.interests.lingering = dict.fromkeys(core.interests.lingering, NOW)
            case ("silence",):
                core.ping_at = NOW
                core.interests.links[0].heard_at = LONG_AGO
            case ("visit" | "expire" as why, conn):
                session = core.conns[conn]
                session.sync_asked_at = None
                if why == "expire":
                    session.heard_at = LONG_AGO
                later = {
                    turn: [s for s in at if s is not session] for turn, at in core.wheel.items()
                }
                core.wheel = {**later, int(NOW): [session]}
                core.wheel_turn = int(NOW) - 1

    def _out(self, effect: Effect) -> list[Words]:
        match effect:
            case Send(conn=conn, message=message):
                return [("send", conn, self.frames.to_client(message))]
            case Broadcast(message=message, conns=conns):
                frame = self.frames.to_client(message)
                return [("send", conn, frame) for conn in sorted(conns)]  # type: ignore[type-var]
            case Close(conn=conn):
                return [("close", conn)]
            case SendLink(message=message):
                return [("link", self.frames.to_shard(message))]  # type: ignore[arg-type]
            case DropLink():
                return [("drop link",)]
            case _:
                raise TypeError(f"not of a registrar: {effect!r}")

    def settle(self, core: Registrar) -> None:
        settle_registrar(core, self.lags)

    def facts_of(self, core: Registrar) -> RegistrarFacts:
        return RegistrarFacts(core)


class MatcherFacts:
    __slots__ = ("announces", "epoch", "links", "retries")

    def __init__(self, core: Matcher) -> None:
        self.announces = bool(core.announcing and core.caught_up)
        self.retries = core.retry_at is not None
        self.epoch = core.epoch
        self.links = frozenset(core.links)


class Matchers(Machines[Matcher]):
    facts: list[MatcherFacts]

    def start(self, epoch: int, lineage: int, applied: int) -> int:
        stored = PutShard(epoch, lineage, applied)
        return self.started(stored, lambda: self._make(stored))

    def _make(self, stored: PutShard) -> Matcher:
        core = Matcher(MatcherConfig(0, 1), stored)
        core.counters = Mute()
        return core

    def perform(self, core: Matcher, event: Words) -> list[Words]:
        core.ids = max(core.ids, event[-1])  # ids still in flight
        effects = core.step(self._event(core, event), NOW)
        return [words for effect in effects for words in _shard_out(self, effect, "matcher")]

    def _event(self, core: Matcher, event: Words) -> Event:
        match event:
            case ("link", handle, frame, _):
                return FromLink(handle, self.frames.messages[frame])
            case ("link down", handle, _):
                return LinkDown(handle)
            case ("apply", lineage, first, updates, request, _):
                rows = [
                    (first + i, Update(key_of(index), version))
                    for i, (index, version) in enumerate(updates)
                ]
                return Apply(lineage, first, first + len(rows) - 1, rows, request)
            case ("persisted", id, _):
                return Persisted(id)
            case ("failed", id, _):
                return Failed(id)
            case ("loaded", id, rows, _):
                found = {key_of(index): self.frames.messages[row] for index, row in rows}
                return Loaded(id, found)
            case ("feed end", lineage, last, bits, _):
                return FeedEnd(lineage, last, bits)
            case ("feed missing", lineage, last, bits, _):
                return FeedMissing(lineage, last, bits)
            case ("silence", handle, _):
                core.links[handle].heard_at = LONG_AGO
                return Tick()
            case ("retry", _):
                core.retry_at = NOW
                return Tick()
            case _:
                return Tick()

    def settle(self, core: Matcher) -> None:
        settle_matcher(core)

    def facts_of(self, core: Matcher) -> MatcherFacts:
        return MatcherFacts(core)


class RowsFacts:
    __slots__ = ("opening",)

    def __init__(self, core: Rows) -> None:
        self.opening = {id: opening[1].client for id, opening in core.opening.items()}


class AllRows(Machines[Rows]):
    facts: list[RowsFacts]

    def start(self) -> int:
        return self.started(None, self._make)

    def _make(self) -> Rows:
        core = Rows(0, 0, NOW)
        core.counters = Mute()
        return core

    def perform(self, core: Rows, event: Words) -> list[Words]:
        """Session numbers are counted per client, outside: which of two clients came first is not
        to be seen in them."""
        core.sessions = event[-1]
        effects = core.step(self._event(event), NOW)
        out = [words for effect in effects for words in _shard_out(self, effect, "rows")]
        return [*out, ("sessions", core.sessions)]

    def _event(self, event: Words) -> Event:
        match event:
            case ("link", handle, frame, _):
                return FromLink(handle, self.frames.messages[frame])
            case ("link down", handle, _):
                return LinkDown(handle)
            case ("persisted", id, _):
                return Persisted(id)
            case ("failed", id, _):
                return Failed(id)
            case ("loaded", id, None, _):
                return Loaded(id, None)
            case ("loaded", id, (session, cells), _):
                registered = [Registered(key_of(index), a, e) for index, a, e in cells]
                return Loaded(id, ClientRow(session, "", registered))
            case _:
                raise TypeError(f"not for rows: {event!r}")

    def settle(self, core: Rows) -> None:
        settle_rows(core)

    def facts_of(self, core: Rows) -> RowsFacts:
        return RowsFacts(core)


def _shard_out(machines: Machines[Any], effect: Effect, whose: str) -> list[Words]:
    match effect:
        case SendLink(link=handle, message=message):
            return [("link", handle, machines.frames.to_registrar(message))]  # type: ignore[arg-type]
        case DropLink(link=handle):
            return [("drop link", handle)]
        case Persist(id=id, writes=writes):
            return [("operation", machines.frames.thing((whose, "persist", id, tuple(writes))))]
        case LoadObjects(id=id, keys=keys):
            indices = tuple(map(index_of, keys))
            return [("operation", machines.frames.thing((whose, "load", id, indices)))]
        case LoadClient(id=id, client=client):
            return [("operation", machines.frames.thing((whose, "load", id, client)))]
        case ReadFeed(lineage=lineage, after=after):
            return [("read", lineage, after)]
        case Applied(request=request, lineage=lineage, offset=offset):
            return [("applied", lineage, offset)] if request is not None else []
        case _:
            raise TypeError(f"not of a shard: {effect!r}")
