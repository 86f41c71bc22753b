"""The real machines, by number.

Every state a machine of the core gets into is kept once, pickled, under a number; what it does with
an event is worked out once per number and event, by the core itself, and remembered. A step of the
whole cluster is then a few look-ups, and millions of them are affordable.

Events and effects cross as tuples that begin with a word. Messages cross as bytes of the real codec
and are numbered too (`Frames`).
"""

import pickle
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

from roskva.core.client import ClientConfig, ClientMachine, ClientPhase
from roskva.core.effects import (
    Acknowledge,
    Applied,
    Apply,
    Broadcast,
    ClientRow,
    Close,
    CloseConnection,
    Closed,
    Connected,
    Deliver,
    Disconnected,
    Drained,
    DropLink,
    Effect,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromConnection,
    FromLink,
    FromServer,
    Lagging,
    LinkDown,
    LinkUp,
    LoadClient,
    Loaded,
    LoadObjects,
    Notify,
    NotifyUnknown,
    OpenConnection,
    Opened,
    Persist,
    Persisted,
    PutShard,
    ReadFeed,
    Register,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    SaveIdentity,
    Send,
    SendLink,
    Tick,
    Transmit,
    Unregister,
)
from roskva.core.identity import Claims, TokenKeys
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.rows import Rows
from roskva.core.session import Session, SessionPhase
from roskva.model import Update
from roskva.wire import codec
from roskva.wire.links import FromShard, Registered, ToShard
from roskva.wire.messages import ClientMessage, FromClient, ServerMessage
from verification.exploration.canonical import (
    LONG_AGO,
    MUCH_LATER,
    NO_LIMIT,
    NOW,
    PROMPT_TIMERS,
    SLOW_TIMERS,
    LoadedDice,
    Mute,
    frozen,
    settle_client,
    settle_matcher,
    settle_registrar,
    settle_rows,
)
from verification.exploration.state import APP, CLOSE, index_of, key_of

C = TypeVar("C")
F = TypeVar("F")
Words = tuple[Any, ...]
"""An event or an effect: a word, and what belongs to it."""


class Frames:
    """Messages by number: encoded, and decoded again, by the real codec."""

    def __init__(self) -> None:
        self.messages: list[Any] = [CLOSE]
        self._numbers: dict[tuple[str, bytes], int] = {}

    def to_server(self, message: FromClient) -> int:
        return self._number("to server", codec.encode(message), codec.decode_from_client)

    def to_client(self, message: ServerMessage) -> int:
        return self._number("to client", codec.encode(message), codec.decode_from_server)

    def to_shard(self, message: ToShard) -> int:
        return self._number("to shard", codec.encode_link(message), codec.decode_to_shard)

    def to_registrar(self, message: FromShard) -> int:
        frame = codec.encode_link(message)
        return self._number("to registrar", frame, codec.decode_from_shard)

    def thing(self, thing: Hashable) -> int:
        """A storage operation or its answer, numbered likewise."""
        return self._number("thing", pickle.dumps(thing), lambda _: thing)

    def _number(self, way: str, frame: bytes, decode: Callable[[bytes], Any]) -> int:
        number = self._numbers.get((way, frame))
        if number is None:
            number = self._numbers[way, frame] = len(self.messages)
            self.messages.append(decode(frame))
        return number


class OpenTokens(TokenKeys, frozen=True):
    """Tokens without secrets: forging them is not explored, and sealing them costs time."""

    def seal(self, claims: Claims, nonce: bytes) -> bytes:
        return b"token of " + claims.client

    def open(self, token: bytes, wall_s: int) -> Claims | None:
        return Claims(APP, token[-16:], "", "local", 1 << 40)


class Machines(Generic[C, F]):
    """All states of one kind of machine that were ever met."""

    settle: Callable[[C], None]
    known: Callable[[C], F]
    """What the cluster and the judge want to know of a state."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.facts: list[F] = []
        self._blobs: list[bytes] = []
        self._numbers: dict[Any, int] = {}
        self._steps: dict[tuple[int, Words], tuple[int, tuple[Words, ...]]] = {}
        self._starts: dict[Hashable, int] = {}

    def started(self, how: Hashable, make: Callable[[], C]) -> int:
        if how not in self._starts:
            self._starts[how] = self._number(make())
        return self._starts[how]

    def step(self, number: int, event: Words) -> tuple[int, tuple[Words, ...]]:
        known = self._steps.get((number, event))
        if known is None:
            core: C = pickle.loads(self._blobs[number])
            effects = tuple(self.perform(core, event))
            known = self._steps[number, event] = (self._number(core), effects)
        return known

    def _number(self, core: C) -> int:
        self.settle(core)
        value = frozen(core)
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._blobs)
            self._blobs.append(pickle.dumps(core, pickle.HIGHEST_PROTOCOL))
            self.facts.append(self.known(core))
        return number

    def perform(self, core: C, event: Words) -> list[Words]:
        raise NotImplementedError


class KnownClient:
    __slots__ = (
        *("client_id", "greeted", "last_operation", "pending", "prompt", "session", "slow"),
        "wanted",
    )

    def __init__(self, core: ClientMachine) -> None:
        self.client_id = core.client_id
        self.greeted = core.token is not None
        self.session = core.session if core.phase is ClientPhase.READY else None
        self.last_operation = core.last_operation
        self.pending = bool(core.pending)
        self.wanted = frozenset(map(index_of, core.wanted))
        armed = [t for t in (*PROMPT_TIMERS, *SLOW_TIMERS) if getattr(core, t) is not None]
        self.prompt = tuple(t for t in armed if t in PROMPT_TIMERS and not _waits(core, t))
        self.slow = tuple(t for t in armed if t not in self.prompt)


def _waits(core: ClientMachine, timer: str) -> bool:
    return timer == "flush_at" and core.flush_at == MUCH_LATER


class ClientMachines(Machines[ClientMachine, KnownClient]):
    settle = staticmethod(settle_client)
    known = KnownClient

    def start(self, identity: bytes | None) -> int:
        return self.started(identity, lambda: self._make(identity))

    def _make(self, identity: bytes | None) -> ClientMachine:
        core = ClientMachine(ClientConfig(APP, rate=NO_LIMIT), identity, 0, NOW)
        core.dice = LoadedDice(0)
        core.counters = Mute()
        core.settle_at = LONG_AGO
        return core

    def perform(self, core: ClientMachine, event: Words) -> list[Words]:
        core.number += event[-1]  # numbers still in flight
        return [
            words
            for effect in core.step(self._event(core, event), NOW)
            for words in self._out(effect)
        ]

    def _event(self, core: ClientMachine, event: Words) -> Event:
        match event:
            case ("frame", frame, _):
                return FromServer(self.frames.messages[frame])
            case ("timer", timer, _):
                if timer in SLOW_TIMERS or core.flush_at == MUCH_LATER:
                    core.settle_at = LONG_AGO
                setattr(core, timer, NOW)
                return Tick()
            case ("register", index, version, _):
                return Register(key_of(index), version)
            case ("unregister", index, _):
                return Unregister(key_of(index))
            case ("ack", index, version, epoch, _):
                return Acknowledge(key_of(index), version, epoch)
            case ("connected", _):
                return Connected()
            case _:
                return Disconnected()

    def _out(self, effect: Effect) -> list[Words]:
        match effect:
            case OpenConnection():
                return [("connect",)]
            case CloseConnection():
                return [("disconnect",)]
            case Transmit(message=message):
                return [("transmit", self.frames.to_server(message))]
            case SaveIdentity(identity=identity):
                return [("save", identity)]
            case Deliver(event=Notify(object=key, version=version, epoch=epoch)):
                return [("told", index_of(key), version, epoch)]
            case Deliver(event=NotifyUnknown(object=key, epoch=epoch)):
                return [("told", index_of(key), None, epoch)]
            case Deliver(event=RegistrationFailure(object=key)):
                return [("failed", index_of(key))]
            case Deliver(event=ReissueRegistrations()):
                return [("reissue",)]
            case Deliver(event=RegistrationStatus()):
                return []
            case _:
                return []

    def in_flight(self, frames: list[int], facts: KnownClient) -> int:
        """How far the numbers of messages under way are above that of the last operation."""
        above = 0
        for frame in frames:
            message = self.frames.messages[frame]
            if type(message) is ClientMessage and message.session == facts.session:
                above = max(above, message.number - facts.last_operation)
        return above


_TOKEN_BITS = bytes(12)


class KnownSession:
    __slots__ = ("client_id", "number", "open", "registered", "visited")

    def __init__(self, session: Session, visited: bool) -> None:
        self.client_id = session.client
        self.number = session.number
        self.open = session.phase is SessionPhase.OPEN
        self.registered = {
            index_of(key): at.sessions[session] for key, at in session.registered.items()
        }
        self.visited = visited


class KnownRegistrar:
    __slots__ = ("flushes", "known", "lingers", "problem", "sessions", "works")

    def __init__(self, core: Registrar) -> None:
        visited = {s.conn for turn in core.admission.wheel.values() for s in turn}
        self.sessions: dict[Any, KnownSession] = {
            conn: KnownSession(session, conn in visited) for conn, session in core.conns.items()
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
        "walks": list(core.walks),
    }
    for where, sessions in held.items():
        if any(core.conns.get(session.conn) is not session for session in sessions):
            return f"a registrar still has a closed session among its {where}"
    idle = [w for w in core.watched.values() if not w.sessions]
    if any(watched.key not in core.interests.lingering for watched in idle):
        return "a registrar watches an object for nobody, and for ever"
    return None


class RegistrarMachines(Machines[Registrar, KnownRegistrar]):
    known = KnownRegistrar

    def __init__(self, frames: Frames, lags: bool) -> None:
        super().__init__(frames)
        self.lags = lags

    def start(self) -> int:
        return self.started(None, self._make)

    def _make(self) -> Registrar:
        config = RegistrarConfig("registrar", 1, handshakes=NO_LIMIT)
        core = Registrar(config, OpenTokens({}, 0), 0, NOW)
        for part in (core, core.admission, core.registrations):
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
                    turn: [s for s in at if s is not session]
                    for turn, at in core.admission.wheel.items()
                }
                core.admission.wheel = {**later, int(NOW): [session]}
                core.admission.wheel_turn = int(NOW) - 1

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


class KnownMatcher:
    __slots__ = ("announces", "epoch", "links", "retries")

    def __init__(self, core: Matcher) -> None:
        self.announces = bool(core.announcing and core.caught_up)
        self.retries = core.retry_at is not None
        self.epoch = core.epoch
        self.links = frozenset(core.links)


class MatcherMachines(Machines[Matcher, KnownMatcher]):
    settle = staticmethod(settle_matcher)
    known = KnownMatcher

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
            case ("apply", lineage, first, updates, request, _):
                rows = [
                    (first + i, Update(key_of(index), version))
                    for i, (index, version) in enumerate(updates)
                ]
                return Apply(lineage, first, first + len(rows) - 1, rows, request)
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
            case ("announce", _):
                return Tick()
            case _:
                return _shard_event(self.frames, event)


class KnownRows:
    __slots__ = ("opening",)

    def __init__(self, core: Rows) -> None:
        self.opening = {id: opening[1].client for id, opening in core.opening.items()}


class RowsMachines(Machines[Rows, KnownRows]):
    settle = staticmethod(settle_rows)
    known = KnownRows

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
            case ("loaded", id, None, _):
                return Loaded(id, None)
            case ("loaded", id, (session, cells), _):
                registered = [Registered(key_of(index), a, e) for index, a, e in cells]
                return Loaded(id, ClientRow(session, "", registered))
            case _:
                return _shard_event(self.frames, event)


def _shard_event(frames: Frames, event: Words) -> Event:
    match event:
        case ("link", handle, frame, _):
            return FromLink(handle, frames.messages[frame])
        case ("link down", handle, _):
            return LinkDown(handle)
        case ("persisted", id, _):
            return Persisted(id)
        case ("failed", id, _):
            return Failed(id)
        case _:
            raise TypeError(f"not for a shard: {event!r}")


def _shard_out(machines: Machines[Any, Any], effect: Effect, whose: str) -> list[Words]:
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
