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
    CloseConnection,
    Connected,
    Deliver,
    Disconnected,
    Effect,
    Event,
    FromServer,
    Notify,
    NotifyUnknown,
    OpenConnection,
    Register,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    SaveIdentity,
    Tick,
    Transmit,
    Unregister,
)
from roskva.core.identity import Claims, TokenKeys
from roskva.simulation.exploration.canonical import (
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
)
from roskva.simulation.exploration.state import APP, CLOSE, index_of, key_of
from roskva.wire import codec
from roskva.wire.links import FromShard, ToShard
from roskva.wire.messages import ClientMessage, FromClient, ServerMessage

C = TypeVar("C")
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


class Machines(Generic[C]):
    """All states of one kind of machine that were ever met."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.facts: list[Any] = []
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
            self.facts.append(self.facts_of(core))
        return number

    def perform(self, core: C, event: Words) -> list[Words]:
        raise NotImplementedError

    def settle(self, core: C) -> None:
        raise NotImplementedError

    def facts_of(self, core: C) -> Any:
        """What the cluster and the judge want to know of a state."""
        raise NotImplementedError


class ClientFacts:
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


class Clients(Machines[ClientMachine]):
    facts: list[ClientFacts]

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

    def settle(self, core: ClientMachine) -> None:
        settle_client(core)

    def facts_of(self, core: ClientMachine) -> ClientFacts:
        return ClientFacts(core)

    def in_flight(self, frames: list[int], facts: ClientFacts) -> int:
        """How far the numbers of messages under way are above that of the last operation."""
        above = 0
        for frame in frames:
            message = self.frames.messages[frame]
            if type(message) is ClientMessage and message.session == facts.session:
                above = max(above, message.number - facts.last_operation)
        return above
