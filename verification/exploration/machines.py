"""The real hosts and clients, by number.

Every state that one of them gets into is kept once, pickled, under a number; what it does with an
event is worked out once per number and event, by its own code, and remembered. A step of the whole
cluster is then a few look-ups, and millions of them are affordable.

Events and effects are those of the hosts, with a number wherever there is a message (`Numbers`),
and the number of a connection instead of its delivery.
"""

import pickle
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from roskva.core import effects
from roskva.core.client import ClientConfig, ClientMachine, ClientPhase
from roskva.core.identity import Claims, TokenKeys
from roskva.core.matcher import MatcherConfig
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.session import Session, SessionPhase
from roskva.host.delivery import MessageDelivery, Write
from roskva.host.effects import Append, Appended
from roskva.host.registrar import RegistrarHost
from roskva.host.shard import ShardHost
from roskva.wire import codec
from roskva.wire.messages import ClientMessage
from verification.exploration import canonical
from verification.exploration.canonical import LONG_AGO, MUCH_LATER, NO_LIMIT, NOW, Mute, frozen
from verification.exploration.state import APP, CLOSE, index_of

C = TypeVar("C")
F = TypeVar("F")
Asked = tuple[Any, ...]


class Numbers:
    """Values by number: messages as the real codec leaves them, and what a store is asked for and
    answers."""

    def __init__(self) -> None:
        self.values: list[Any] = [CLOSE]
        self._numbers: dict[Hashable, int] = {}

    def of(self, value: Hashable) -> int:
        number = self._numbers.get(value)
        return self._add(value, value) if number is None else number

    def frame(self, frame: bytes, decode: Callable[[bytes], Any]) -> int:
        number = self._numbers.get((frame, decode))
        return self._add((frame, decode), decode(frame)) if number is None else number

    def to_shard(self, message: Any) -> int:
        return self.frame(codec.encode_link(message), codec.decode_to_shard)

    def _add(self, key: Hashable, value: Any) -> int:
        number = self._numbers[key] = len(self.values)
        self.values.append(value)
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


class Machines(Generic[C, F]):
    """All states of one kind of machine that were ever met, and what it does in them."""

    settle: Callable[[C], None]
    known: Callable[[C], F]
    """What the cluster and the judge want to know of a state."""

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.facts: list[F] = []
        self._blobs: list[bytes] = []
        self._numbers: dict[Any, int] = {}
        self._starts: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, Hashable, Hashable], tuple[int, Asked]] = {}

    def start(self, how: Any = None) -> int:
        if how not in self._starts:
            self._starts[how] = self._number(self.make(how))
        return self._starts[how]

    def step(self, number: int, event: Hashable, above: Hashable = None) -> tuple[int, Asked]:
        """`above`: which numbers are in use outside, where that matters."""
        known = self._steps.get((number, event, above))
        if known is None:
            machine: C = pickle.loads(self._blobs[number])
            asked = tuple(self.perform(machine, event, above))
            known = self._steps[number, event, above] = (self._number(machine), asked)
        return known

    def _number(self, machine: C) -> int:
        self.settle(machine)
        value = frozen(machine)
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self._blobs)
            self._blobs.append(pickle.dumps(machine, pickle.HIGHEST_PROTOCOL))
            self.facts.append(self.known(machine))
        return number

    def make(self, how: Any) -> C:
        raise NotImplementedError

    def perform(self, machine: C, event: Any, above: Any) -> Iterable[Any]:
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
        prompt, slow = canonical.PROMPT_TIMERS, canonical.SLOW_TIMERS
        armed = [timer for timer in (*prompt, *slow) if getattr(core, timer) is not None]
        waits = "flush_at" if core.flush_at == MUCH_LATER else None
        self.prompt = tuple(timer for timer in armed if timer in prompt and timer != waits)
        self.slow = tuple(timer for timer in armed if timer not in self.prompt)


class ClientMachines(Machines[ClientMachine, KnownClient]):
    settle = staticmethod(canonical.settle_client)
    known = KnownClient

    def make(self, identity: bytes | None) -> ClientMachine:
        core = ClientMachine(ClientConfig(APP, rate=NO_LIMIT), identity, 0, NOW)
        core.dice = canonical.LoadedDice(0)
        core.counters = Mute()
        core.settle_at = LONG_AGO
        return core

    def perform(self, core: ClientMachine, event: Any, above: Any) -> Iterator[Any]:
        """`above`: the numbers of messages under way are, that of the last operation."""
        core.number += above
        if type(event) is effects.FromServer:
            event = _with_message(event, self.numbers.values)
        elif type(event) is TimeUp:
            if event.timer in canonical.SLOW_TIMERS or core.flush_at == MUCH_LATER:
                core.settle_at = LONG_AGO
            setattr(core, event.timer, NOW)
            event = effects.Tick()
        for effect in core.step(event, NOW):
            if type(effect) is effects.Transmit:
                frame = codec.encode(effect.message)
                yield effects.Transmit(self.numbers.frame(frame, codec.decode_from_client))  # type: ignore[arg-type]
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
    known = KnownRegistrar

    def __init__(self, numbers: Numbers, lags: bool) -> None:
        super().__init__(numbers)
        self.lags = lags

    def settle(self, host: RegistrarHost) -> None:
        canonical.settle_registrar(host.core, self.lags)

    def make(self, how: None) -> RegistrarHost:
        config = RegistrarConfig("registrar", 1, handshakes=NO_LIMIT)
        host = RegistrarHost(config, OpenTokens({}, 0), 0, NOW)
        core = host.core
        for part in (core, core.admission, core.registrations):
            part.counters = Mute()
        return host

    def perform(self, host: RegistrarHost, event: Any, above: Any) -> Iterator[Any]:
        for effect in host.step(self._event(host.core, event), NOW):
            match effect:
                case Write(addresses=addresses, data=data):
                    frame = self.numbers.frame(data, codec.decode_from_server)
                    yield from (effects.Send(address, frame) for address in addresses)  # type: ignore[arg-type]
                case effects.Send(conn=Line(address=address), message=message):
                    frame = self.numbers.frame(codec.encode(message), codec.decode_from_server)
                    yield effects.Send(address, frame)  # type: ignore[arg-type]
                case effects.Close(conn=Line(address=address)):
                    yield effects.Close(address)
                case effects.SendLink(link=link, message=message):
                    yield effects.SendLink(link, self.numbers.to_shard(message))  # type: ignore[arg-type]
                case _:
                    yield effect

    def _event(self, core: Registrar, event: Any) -> Any:
        match event:
            case effects.FromConnection() | effects.FromLink():
                return _with_message(event, self.numbers.values)
            case effects.Opened(conn=int() as conn, bits=bits):
                return effects.Opened(Line(conn), bits)
            case effects.Lagging(conn=conn):
                return _line(core, conn).pause()
            case effects.Drained(conn=conn):
                return _line(core, conn).resume()
            case effects.Closed(conn=conn):
                _line(core, conn).end()
                return event
            case TimeUp(timer=timer, of=conn):
                _run_out(core, timer, conn)
                return effects.Tick()
            case _:
                return event


def _line(core: Registrar, conn: Hashable) -> Line:
    line = core.conns[conn].conn
    assert type(line) is Line
    return line


def _run_out(core: Registrar, timer: str, conn: int) -> None:
    """Which timer the next tick finds at its end; `work` is none."""
    if timer == "ack flush":
        core.row_writes.flush_at = NOW
    elif timer in ("ping", "linger", "silence"):
        core.ping_at = NOW
        if timer == "linger":
            core.interests.lingering = dict.fromkeys(core.interests.lingering, NOW)
        elif timer == "silence":
            core.interests.links[0].leased_at = LONG_AGO
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


class KnownShard:
    __slots__ = (
        *("announces", "caught_up", "epoch", "generation", "links", "opening"),
        *("patient", "retries"),
    )

    def __init__(self, host: ShardHost) -> None:
        matcher = host.matcher
        self.announces = bool(matcher.announcing and matcher.caught_up)
        self.caught_up = matcher.caught_up
        self.generation = matcher.generations.get(APP, 0)
        self.retries = matcher.retry_at is not None
        self.patient = host.read_later is not None
        self.epoch = matcher.epoch
        self.links = frozenset(matcher.links)
        self.opening = {id: opening[1].client for id, opening in host.rows.opening.items()}


class ShardMachines(Machines[ShardHost, KnownShard]):
    settle = staticmethod(canonical.settle_shard)
    known = KnownShard

    def make(self, stored: effects.PutShard) -> ShardHost:
        host = ShardHost(MatcherConfig(0, 1), stored, boot=0, assigned=0, wall_us=0, now=NOW)
        host.matcher.counters = host.rows.counters = Mute()
        host.bridge_heard_at = LONG_AGO  # it started long ago, too
        return host

    def perform(self, host: ShardHost, event: Any, above: Any) -> Iterator[Any]:
        """`above`: the numbers of the matcher's requests and of sessions, those to come are. The
        newest session comes out last."""
        host.matcher.ids = max(host.matcher.ids, above[0])
        host.rows.sessions = above[1]
        yield from map(self._kept, host.step(self._event(host, event), NOW))
        yield host.rows.sessions

    def _event(self, host: ShardHost, event: Any) -> Any:
        match event:
            case effects.FromLink():
                return _with_message(event, self.numbers.values)
            case effects.Loaded(id=id, rows=tuple() as rows):
                return effects.Loaded(id, dict(rows))
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
                return effects.Tick()
            case _:
                return event

    def _kept(self, effect: Any) -> Any:
        match effect:
            case effects.SendLink(link=link, message=message):
                frame = codec.encode_link(message)
                return effects.SendLink(link, self.numbers.frame(frame, codec.decode_from_shard))  # type: ignore[arg-type]
            case Append(request=request, updates=updates):
                return Append(request, tuple(updates))
            case effects.Persist(id=id, writes=writes):
                return self.numbers.of(effects.Persist(id, tuple(writes)))
            case effects.LoadObjects(id=id, keys=keys):
                return self.numbers.of(effects.LoadObjects(id, tuple(keys)))
            case effects.LoadClient():
                return self.numbers.of(effect)
            case _:
                return effect
