"""The real hosts and clients, by number.

Every state that one of them gets into is kept once, pickled, under a number; what it does with an
event is worked out once per number and event, by its own code, and remembered. A step of the whole
cluster is then a few look-ups, and millions of them are affordable.

Events and effects are those of the hosts, with a number wherever there is a message (`Numbers`),
and the number of a connection instead of its delivery.
"""

import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final, Generic, TypeVar

import msgspec

from roskva.core.client import ClientConfig, ClientMachine, ClientPhase
from roskva.core.effects import (
    Close,
    Closed,
    Drained,
    FromConnection,
    FromLink,
    FromServer,
    Lagging,
    LoadClient,
    Loaded,
    LoadObjects,
    Opened,
    Persist,
    PutShard,
    Send,
    SendLink,
    Tick,
    Transmit,
)
from roskva.core.identity import Claims, TokenKeys
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.rows import Rows
from roskva.core.session import Session, SessionPhase
from roskva.host.delivery import MessageDelivery, Write
from roskva.host.effects import Append, Appended
from roskva.host.registrar import RegistrarHost
from roskva.host.shard import ShardHost
from roskva.wire import codec
from roskva.wire.messages import ClientMessage
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
    settle_shard,
)
from verification.exploration.state import APP, CLOSE, ExploredState, index_of

C = TypeVar("C")
F = TypeVar("F")
Effects = tuple[Any, ...]


class Numbers:
    """Values by number: messages as the real codec leaves them, and what a store is asked for and
    answers."""

    def __init__(self) -> None:
        self.values: list[Any] = [CLOSE]
        self._numbers: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        return self._number(value, lambda _: value)

    def to_shard(self, message: Any) -> int:
        return self.frame(codec.encode_link(message), codec.decode_to_shard)

    def frame(self, frame: bytes, decode: Callable[[bytes], Any]) -> int:
        return self._number((frame, decode), lambda _: decode(frame))

    def _number(self, key: Hashable, value: Callable[[Hashable], Any]) -> int:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.values)
            self.values.append(value(key))
        return number


class TimeUp(msgspec.Struct, frozen=True):
    """A timer runs out: whose, if there are several."""

    timer: str
    of: int = 0


class OpenTokens(TokenKeys, frozen=True):
    """Tokens without secrets: forging them is not explored, and sealing them costs time."""

    def seal(self, claims: Claims, nonce: bytes) -> bytes:
        return b"token of " + claims.client

    def open(self, token: bytes, wall_s: int) -> Claims | None:
        return Claims(APP, token[-16:], "", "local", 1 << 40)


class States(Generic[C, F]):
    """All states of one kind of machine that were ever met."""

    def __init__(self, settle: Callable[[C], None], known: Callable[[C], F]) -> None:
        """`known`: what the cluster and the judge want to know of a state."""
        self.facts: list[F] = []
        self._settle = settle
        self._known = known
        self._blobs: list[bytes] = []
        self._numbers: dict[Any, int] = {}

    def number(self, machine: C) -> int:
        self._settle(machine)
        value = frozen(machine)
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._blobs)
            self._blobs.append(pickle.dumps(machine, pickle.HIGHEST_PROTOCOL))
            self.facts.append(self._known(machine))
        return number

    def load(self, number: int) -> C:
        machine: C = pickle.loads(self._blobs[number])
        return machine


class Machines(States[C, F]):
    """And what they do."""

    def __init__(
        self, numbers: Numbers, settle: Callable[[C], None], known: Callable[[C], F]
    ) -> None:
        super().__init__(settle, known)
        self.numbers = numbers
        self._starts: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, Hashable, int], tuple[int, Effects]] = {}

    def start(self, how: Any = None) -> int:
        if how not in self._starts:
            self._starts[how] = self.number(self.make(how))
        return self._starts[how]

    def step(self, number: int, event: Hashable, above: int = 0) -> tuple[int, Effects]:
        """`above`: see `perform`."""
        known = self._steps.get((number, event, above))
        if known is None:
            machine = self.load(number)
            effects = tuple(self.perform(machine, event, above))
            known = self._steps[number, event, above] = (self.number(machine), effects)
        return known

    def make(self, how: Any) -> C:
        raise NotImplementedError

    def perform(self, machine: C, event: Any, above: int) -> Iterable[Any]:
        raise NotImplementedError


def _with_message(event: Any, values: list[Any]) -> Any:
    return msgspec.structs.replace(event, message=values[event.message])


# Clients.


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
    def __init__(self, numbers: Numbers) -> None:
        super().__init__(numbers, settle_client, KnownClient)

    def make(self, identity: bytes | None) -> ClientMachine:
        core = ClientMachine(ClientConfig(APP, rate=NO_LIMIT), identity, 0, NOW)
        core.dice = LoadedDice(0)
        core.counters = Mute()
        core.settle_at = LONG_AGO
        return core

    def perform(self, core: ClientMachine, event: Any, above: int) -> Iterator[Any]:
        """`above`: the numbers of messages under way are, that of the last operation."""
        core.number += above
        if type(event) is FromServer:
            event = _with_message(event, self.numbers.values)
        elif type(event) is TimeUp:
            if event.timer in SLOW_TIMERS or core.flush_at == MUCH_LATER:
                core.settle_at = LONG_AGO
            setattr(core, event.timer, NOW)
            event = Tick()
        for effect in core.step(event, NOW):
            if type(effect) is Transmit:
                frame = codec.encode(effect.message)
                yield Transmit(self.numbers.frame(frame, codec.decode_from_client))  # type: ignore[arg-type]
            else:
                yield effect

    def in_flight(self, frames: list[int], facts: KnownClient) -> int:
        """How far the numbers of messages under way are above that of the last operation."""
        above = 0
        for frame in frames:
            message = self.numbers.values[frame]
            if type(message) is ClientMessage and message.session == facts.session:
                above = max(above, message.number - facts.last_operation)
        return above


# Registrars.


class Line(MessageDelivery):
    """Names a connection; its number, by itself, names it just as well."""

    __slots__ = ()

    def __init__(self, number: int, joins: bool = True, ended: bool = False) -> None:
        super().__init__(codec.encode)
        self.address, self._joins, self._ended = number, joins, ended

    def __hash__(self) -> int:
        return hash(self.address)

    def __eq__(self, other: object) -> bool:
        return self.address == (other.address if type(other) is Line else other)

    def __reduce__(self) -> tuple[type["Line"], tuple[int, bool, bool]]:
        return Line, (self.address, self._joins, self._ended)


class KnownSession:
    __slots__ = ("client_id", "lagging", "number", "open", "registered", "visited")

    def __init__(self, session: Session, visited: bool) -> None:
        self.client_id = session.client
        self.lagging = session.lagging
        self.number = session.number
        self.open = session.phase is SessionPhase.OPEN
        self.registered = {
            index_of(key): at.sessions[session] for key, at in session.registered.items()
        }
        self.visited = visited


class KnownRegistrar:
    __slots__ = ("flushes", "known", "lingers", "problem", "sessions", "works")

    def __init__(self, host: RegistrarHost) -> None:
        core = host.core
        visited = {s.conn for turn in core.admission.wheel.values() for s in turn}
        self.sessions: dict[Any, KnownSession] = {
            conn.address: KnownSession(session, conn in visited)  # type: ignore[attr-defined]
            for conn, session in core.conns.items()
        }
        self.known = {
            index_of(watched.key): watched.known
            for watched in core.watched.values()
            if core.interests.is_current(watched)
        }
        self.works = host.next_deadline() == 0.0
        self.flushes = core.row_writes.flush_at is not None
        self.lingers = bool(core.interests.lingering)
        self.problem = None if self.works else _left_behind(core)


def _left_behind(core: Registrar) -> str | None:
    """State of sessions that are closed, when all work is done."""
    (link,) = core.interests.links
    held: dict[str, Iterable[Session]] = {
        "sessions": core.sessions.values(),
        "objects": (s for watched in core.watched.values() for s in watched.sessions),
        "unwritten acks": link.dirty,
        "waiting": link.waiting,
        "walks": core.walks,
    }
    for where, sessions in held.items():
        if any(core.conns.get(session.conn) is not session for session in sessions):
            return f"a registrar still has a closed session among its {where}"
    idle = [w for w in core.watched.values() if not w.sessions]
    if any(watched.key not in core.interests.lingering for watched in idle):
        return "a registrar watches an object for nobody, and for ever"
    return None


class RegistrarMachines(Machines[RegistrarHost, KnownRegistrar]):
    def __init__(self, numbers: Numbers, lags: bool) -> None:
        super().__init__(numbers, lambda host: settle_registrar(host.core, lags), KnownRegistrar)

    def make(self, how: None) -> RegistrarHost:
        config = RegistrarConfig("registrar", 1, handshakes=NO_LIMIT)
        host = RegistrarHost(config, OpenTokens({}, 0), 0, NOW)
        core = host.core
        for part in (core, core.admission, core.registrations):
            part.counters = Mute()
        return host

    def perform(self, host: RegistrarHost, event: Any, above: int) -> Iterator[Any]:
        for effect in host.step(self._event(host.core, event), NOW):
            match effect:
                case Write(addresses=addresses, data=data):
                    frame = self.numbers.frame(data, codec.decode_from_server)
                    yield from (Send(address, frame) for address in addresses)  # type: ignore[arg-type]
                case Send(conn=Line(address=address), message=message):
                    frame = self.numbers.frame(codec.encode(message), codec.decode_from_server)
                    yield Send(address, frame)  # type: ignore[arg-type]
                case Close(conn=Line(address=address)):
                    yield Close(address)
                case SendLink(link=link, message=message):
                    yield SendLink(link, self.numbers.to_shard(message))  # type: ignore[arg-type]
                case _:
                    yield effect

    def _event(self, core: Registrar, event: Any) -> Any:
        match event:
            case FromConnection() | FromLink():
                return _with_message(event, self.numbers.values)
            case Opened(conn=int() as conn, bits=bits):
                return Opened(Line(conn), bits)
            case Closed(conn=conn) | Lagging(conn=conn) | Drained(conn=conn):
                line = core.conns[conn].conn
                assert type(line) is Line
                if type(event) is Closed:
                    line.end()
                    return Closed(line)
                return line.pause() if type(event) is Lagging else line.resume()
            case TimeUp(timer=timer, of=conn):
                _run_out(core, timer, conn)
                return Tick()
            case _:
                return event


def _run_out(core: Registrar, timer: str, conn: int) -> None:
    """Which timer the next tick finds at its end; `work` is none."""
    if timer == "ack flush":
        core.row_writes.flush_at = NOW
    elif timer in ("ping", "linger", "silence"):
        core.ping_at = NOW
        if timer == "linger":
            core.interests.lingering = dict.fromkeys(core.interests.lingering, NOW)
        elif timer == "silence":
            core.interests.links[0].heard_at = LONG_AGO
    elif timer in ("visit", "expire"):
        session = core.conns[conn]
        session.sync_asked_at = None
        if timer == "expire":
            session.heard_at = LONG_AGO
        later = {
            turn: [s for s in at if s is not session] for turn, at in core.admission.wheel.items()
        }
        core.admission.wheel = {**later, int(NOW): [session]}
        core.admission.wheel_turn = int(NOW) - 1


# The shard.

PARTS: Final = ("matcher", "rows")


class SplitHost(ShardHost):
    """A host whose two machines have numbers of their own: each is fetched when the host first
    turns to it."""

    fetch: Callable[[str], Any]

    def __getattr__(self, name: str) -> Any:
        if name not in PARTS:
            raise AttributeError(name)
        setattr(self, name, part := self.fetch(name))
        return part

    def __getstate__(self) -> dict[str, Any]:
        apart = (*PARTS, "fetch")
        return {name: value for name, value in vars(self).items() if name not in apart}


class KnownMatcher:
    __slots__ = ("announces", "epoch", "links", "retries")

    def __init__(self, core: Matcher) -> None:
        self.announces = bool(core.announcing and core.caught_up)
        self.retries = core.retry_at is not None
        self.epoch = core.epoch
        self.links = frozenset(core.links)


class Outcome(msgspec.Struct, frozen=True):
    host: int
    parts: dict[str, int]
    """What became of those that were turned to."""
    effects: Effects
    sessions: int
    """The newest that was numbered, if any was."""


class ShardMachines:
    """What a step needs is the host and the machines it turns to, and so they are its key. Which
    those are is found out the first time."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.host: States[SplitHost, bool] = States(
            settle_shard, lambda host: host.read_later is not None
        )
        self.matcher: States[Matcher, KnownMatcher] = States(settle_matcher, KnownMatcher)
        self.rows: States[Rows, dict[int, bytes]] = States(
            settle_rows, lambda core: {id: asked[1].client for id, asked in core.opening.items()}
        )
        self._starts: dict[PutShard, tuple[int, int, int]] = {}
        self._parts: dict[str, States[Any, Any]] = {"matcher": self.matcher, "rows": self.rows}
        self._steps: dict[tuple[int, Hashable], tuple[tuple[str, ...], dict[Any, Outcome]]] = {}

    def start(self, state: ExploredState, stored: PutShard) -> None:
        if stored not in self._starts:
            host = SplitHost(MatcherConfig(0, 1), stored, boot=0, assigned=0, wall_us=0, now=NOW)
            host.matcher.counters = host.rows.counters = Mute()
            parts = self.matcher.number(host.matcher), self.rows.number(host.rows)
            self._starts[stored] = self.host.number(host), *parts
        state.host, state.matcher, state.rows = self._starts[stored]

    def step(self, state: ExploredState, event: Hashable, above: dict[str, int]) -> Outcome:
        """`above`: numbers of requests that are under way, and of sessions that were given. The
        next ones are above them."""
        used, outcomes = self._steps.get((state.host, event), ((), {}))
        outcome = outcomes.get(tuple([(getattr(state, name), above[name]) for name in used]))
        if outcome is None:
            outcome = self._perform(state, event, above)
            needed = tuple(name for name in PARTS if name in used or name in outcome.parts)
            if needed != used:
                used, outcomes = needed, {}
            outcomes[tuple([(getattr(state, name), above[name]) for name in used])] = outcome
            self._steps[state.host, event] = used, outcomes
        return outcome

    def _perform(self, state: ExploredState, event: Any, above: dict[str, int]) -> Outcome:
        def fetch(name: str) -> Any:
            part = self._parts[name].load(getattr(state, name))
            if name == "matcher":
                part.ids = max(part.ids, above[name])
            else:
                part.sessions = above[name]
            return part

        host = self.host.load(state.host)
        host.fetch = fetch
        effects = tuple(map(self._kept, host.step(self._event(host, event), NOW)))
        touched = [name for name in PARTS if name in vars(host)]
        return Outcome(
            sessions=host.rows.sessions if "rows" in touched else 0,
            parts={name: self._parts[name].number(getattr(host, name)) for name in touched},
            host=self.host.number(host),
            effects=effects,
        )

    def _event(self, host: ShardHost, event: Any) -> Any:
        match event:
            case FromLink():
                return _with_message(event, self.numbers.values)
            case Loaded(id=id, rows=tuple() as rows):
                return Loaded(id, dict(rows))
            case (Appended() as appended, bool() as fast):
                host.fast_path = lambda app: fast
                return appended
            case TimeUp(timer=timer, of=link):
                if timer == "silence":
                    host.matcher.links[link].heard_at = LONG_AGO
                elif timer == "retry":
                    host.matcher.retry_at = NOW
                elif timer == "patience":
                    assert host.read_later is not None
                    host.read_later = NOW, host.read_later[1]
                return Tick()
            case _:
                return event

    def _kept(self, effect: Any) -> Any:
        match effect:
            case SendLink(link=link, message=message):
                frame = codec.encode_link(message)
                return SendLink(link, self.numbers.frame(frame, codec.decode_from_shard))  # type: ignore[arg-type]
            case Append(request=request, updates=updates):
                return Append(request, tuple(updates))
            case Persist(id=id, writes=writes):
                return self.numbers.of(Persist(id, tuple(writes)))
            case LoadObjects(id=id, keys=keys):
                return self.numbers.of(LoadObjects(id, tuple(keys)))
            case LoadClient():
                return self.numbers.of(effect)
            case _:
                return effect
