"""The registrar at work: between the channels, where clients are, and the ports to the shards."""

import asyncio
import logging
import resource
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from roskva.answer import answer_of
from roskva.channels.base import Connection, Frame, Outcomes
from roskva.config import Config
from roskva.core.backoff import Rate
from roskva.core.effects import (
    Broadcast,
    Close,
    Closed,
    Dismissed,
    DropLink,
    Effect,
    Event,
    FromConnection,
    FromLink,
    LinkDown,
    LinkUp,
    Recheck,
    Reloaded,
    Send,
    SendLink,
    Shedding,
    Watching,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.session import Session
from roskva.errors import (
    Fenced,
    Overloaded,
    RoskvaError,
    TokenRejected,
    TooFast,
    Unauthorised,
    Unavailable,
    error_of,
)
from roskva.handover import Handover
from roskva.metrics import NotificationCounts
from roskva.model import (
    NO_EPOCH,
    NO_VERSION,
    NOBODY,
    PROBE_APP,
    PROBE_APPS,
    Key,
    Principal,
    Update,
    parse_key,
    shard_of,
)
from roskva.server.access.base import Authority, Later, Verdict
from roskva.server.admin.sessions import Notes
from roskva.server.admission import Admission
from roskva.server.fanout import Fanout
from roskva.server.guarding import Guard
from roskva.server.ports import Port
from roskva.server.pressure import Pressure
from roskva.server.rates import PublishRates
from roskva.server.registering import Registering
from roskva.server.stepper import Stepper
from roskva.wire.links import FromShard, Registered, RowRefused, Superseded, Welcome
from roskva.wire.messages import ClientId, ClientMessage, FromClient, Notification, ServerMessage

_log = logging.getLogger(__name__)
_READ_TIMEOUT_S: Final = 5.0
_NOTED: Final = (Welcome, Superseded, RowRefused)


class NodeFront:
    """The `Front` of every channel of this process, and the `Registrar` of every port."""

    def __init__(
        self,
        name: str,
        shards: int,
        config: Config,
        authority: Authority,
        keys: TokenKeys,
        broken: Callable[[Exception], None],
        handover: Handover,
    ) -> None:
        self.handover = handover
        limits = config.limits
        self.core = Registrar(
            RegistrarConfig(
                name=name,
                shards=shards,
                handshakes=Rate(limits.handshakes_per_second, 1000),
                max_registrations=limits.max_registrations,
                max_sessions=limits.max_sessions_per_principal,
                token_lifetime=config.node.token_hours * 3600.0,
            ),
            keys,
            time.time_ns() // 1000,
            time.monotonic(),
        )
        self.ports: list[Port] = []
        """One per shard, in order; whoever builds the node adds them before anything starts."""
        self.up: set[int] = set()
        """Shards that have welcomed us over the link that is up: one that hangs can be reached."""
        self.notes = Notes(name)
        self.notifications = NotificationCounts()
        self._config = config
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_connections = limits.connections(open_files)
        self._authority = authority
        self._admission = Admission(config, authority)
        self._rates = PublishRates(limits)
        self.pressure = Pressure(limits, lambda on: self.step(Shedding(on)))
        self.counters = {"shed_publishes": 0, "shed_reads": 0, "too_fast": 0}
        self._first: list[Callable[[], None]] = []
        self._stepper = Stepper(
            *(self.core, self._carry_out, self.core.next_deadline, broken, self._call_first)
        )
        self._fanout = Fanout(self._stepper.work)
        self._tasks: set[asyncio.Task[None]] = set()
        self._registering = Registering(self.core, authority, self.step, self.run)
        self._guard = Guard(self.core, authority, self.step, self.run)
        self._guarded = bool(authority.guarded)
        self.step(Reloaded(keys, authority.standing))

    @property
    def full(self) -> bool:
        return len(self.core.conns) >= self._max_connections

    @property
    def ready(self) -> bool:
        return len(self.up) == len(self.ports)

    # For channels.

    def step(self, event: Event) -> None:
        self._stepper.step(event)

    def call_first(self, call: Callable[[], None]) -> None:
        self._first.append(call)

    def _call_first(self) -> None:
        for call in self._first:
            call()

    def received(self, conn: Connection, principal: Principal, message: FromClient) -> None:
        if type(message) is ClientMessage and (message.operations or message.syncs):
            self._registering.received(conn, message)
        else:
            self._stepper.step(FromConnection(conn, message, principal=principal))

    def identify(
        self, app: str | None, credential: str | None, certificate: str | None = None
    ) -> Principal | Later[Principal]:
        """Where there are keys, it is them that count; else a certificate says at least who."""
        found = self._authority.identify(app, credential)
        return Principal(certificate) if found is NOBODY and certificate else found

    async def check_registering(self, principal: Principal, keys: Sequence[Key]) -> None:
        if self.pressure.shedding:
            self.counters["shed_reads"] += 1
            raise Overloaded("this node has too much to do: try again later")
        found = self._authority.may_register(principal, keys)
        verdict = found if isinstance(found, Verdict) else await found
        if verdict.denied:
            raise Unauthorised("these objects are not all allowed")
        if verdict.undecided:
            raise Unavailable("the app's backend cannot be asked: try again later")

    def run(self, work: Later[None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            _log.error("what ran in the background failed", exc_info=error)

    def assigns_versions(self, app: str) -> bool:
        return self._config.app(app).versions == "assigned"

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        if self.pressure.shedding:
            self.counters["shed_publishes"] += len(updates)
            answered(Overloaded("this node has too much to do: try again later"))
            return
        admitted = self._within_rate(principal, self._admission.admit_all(principal, list(updates)))
        by_shard: dict[int, list[int]] = {}
        shards = len(self.ports)
        for i, update in enumerate(admitted):
            if isinstance(update, Update):
                by_shard.setdefault(shard_of(update.object, shards), []).append(i)
        published = _Published(admitted, len(by_shard), answered)
        for shard, places in by_shard.items():
            part = [update for i in places if isinstance(update := admitted[i], Update)]
            self.ports[shard].publish(part, partial(published.settle, places))

    def _within_rate(
        self, principal: Principal, admitted: list[Update | RoskvaError]
    ) -> list[Update | RoskvaError]:
        """The first of them, as far as it goes."""
        wanted = sum(isinstance(update, Update) for update in admitted)
        left = self._rates.take(principal, wanted)
        if left == wanted:
            return admitted
        self.counters["too_fast"] += wanted - left
        kept: list[Update | RoskvaError] = []
        for update in admitted:
            if isinstance(update, Update):
                left -= 1
                if left < 0:
                    kept.append(TooFast("more updates per second than allowed: slow down"))
                    continue
            kept.append(update)
        return kept

    async def reset(self, principal: Principal, key: Key) -> None:
        outcome = self._within_rate(principal, [self._admission.reset(principal, key)])[0]
        if isinstance(outcome, RoskvaError):
            raise outcome
        await answer_of(partial(self.ports[self._shard_of(key)].publish, [outcome]))

    async def read(self, principal: Principal, key: Key) -> Notification:
        """What an object stands at, as a client that registers now would be told."""
        parse_key(key)
        await self.check_registering(principal, [key])
        reader = _OneReader()
        unread = Registered(key, NO_VERSION, NO_EPOCH)
        self.step(Watching(reader, secrets.token_bytes(16), [unread], principal))
        try:
            return await asyncio.wait_for(reader.answer, _READ_TIMEOUT_S)
        except TimeoutError:
            raise Unavailable("the shard of this object does not answer") from None
        finally:
            self.step(Closed(reader))

    def _shard_of(self, key: Key) -> int:
        return shard_of(key, len(self.ports))

    # For ports.

    def link_up(self, shard: int) -> None:
        self._stepper.step(LinkUp(shard))

    def from_link(self, shard: int, message: FromShard) -> None:
        if type(message) in _NOTED:
            self._note(shard, message)
        self._stepper.step(FromLink(shard, message))

    def link_down(self, shard: int) -> None:
        self.up.discard(shard)
        self._stepper.step(LinkDown(shard))

    def _note(self, shard: int, message: FromShard) -> None:
        match message:
            case Welcome():
                self.up.add(shard)
            case Superseded(client=client, session=number):
                self._note_end(client, number, Fenced.code)
            case RowRefused(client=client, session=number, code=code):
                self._note_end(client, number, code)

    def _note_end(self, client: ClientId, number: int, code: str) -> None:
        session = self.core.sessions.get((client, number))
        if session is not None:
            self.notes.ended(session, code)

    # What the core asks for.

    def _carry_out(self, effect: Effect) -> None:
        kind = type(effect)
        if kind is Broadcast:
            if self._guarded:
                effect = self._guard.broadcast(effect)  # type: ignore[arg-type]
            self._fanout.broadcast(effect)  # type: ignore[arg-type]
            self.notifications.count(effect.message.notifications, len(effect.conns))  # type: ignore[union-attr]
            return
        match effect:
            case Send(conn=Connection() as conn, message=message):
                if message.statuses and (session := self.core.conns.get(conn)) is not None:
                    self.notes.answered(session, message.statuses)
                if self._guarded:
                    message = self._guard.send(effect)
                conn.send(message)
                self.notifications.count(message.notifications)
            case SendLink(link=int() as shard, message=message):
                self.ports[shard].send(message)  # type: ignore[arg-type]
            case Close(conn=Connection() as conn):
                conn.close()
            case DropLink(link=int() as shard):
                self.ports[shard].drop()

    def sessions(self) -> dict[str, dict[str, int]]:
        """How many, by traffic and channel."""
        found: dict[str, dict[str, int]] = {"users": Counter(), "probe": Counter()}
        for conn, session in self.core.conns.items():
            if isinstance(conn, Connection):
                found[traffic_of(session)][conn.channel] += 1
        return found

    def online(self) -> list[bytes]:
        """The clients with a session here."""
        return [session.client for session in self.core.sessions.values()]

    def reload(self, config: Config, authority: Authority, keys: TokenKeys) -> None:
        """Sessions that do not hold any more are closed."""
        self._config, self._authority = config, authority
        self._admission = Admission(config, authority)
        self._registering.authority = self._guard.authority = authority
        self._guarded = bool(authority.guarded)
        before = list(self.core.sessions.items())
        self.step(Reloaded(keys, authority.standing))
        for named, session in before:
            if named not in self.core.sessions:
                self.notes.ended(session, TokenRejected.code)

    def recheck(self) -> None:
        self._stepper.step(Recheck())

    def dismiss(self, not_before_ms: Callable[[], int]) -> None:
        """Send everybody away; their acks are on their way to the rows when this returns."""
        for conn in list(self.core.conns):
            self.step(Dismissed(conn, not_before_ms()))
        for task in self._tasks:
            task.cancel()


def traffic_of(session: Session) -> str:
    """By the app that it may use; where there are no keys, by what it says of itself."""
    named = session.app or session.principal.app
    if named is None and session.application.startswith(PROBE_APP):
        return "probe"
    app = named or next(iter(session.registered), "").partition("/")[0]
    return "probe" if app in PROBE_APPS else "users"


class _Published:
    """What becomes of the updates of one request, as its shards answer."""

    __slots__ = ("_answered", "_left", "_so_far")

    def __init__(
        self, admitted: list[Update | RoskvaError], shards: int, answered: Outcomes
    ) -> None:
        self._so_far = [NO_VERSION if isinstance(one, Update) else one for one in admitted]
        self._left = shards
        self._answered = answered
        if not shards:
            answered(self._so_far)

    def settle(self, places: list[int], outcome: list[int] | RoskvaError) -> None:
        for i, place in enumerate(places):
            self._so_far[place] = outcome if isinstance(outcome, RoskvaError) else outcome[i]
        self._left -= 1
        if not self._left:
            self._answered(self._so_far)


class _OneReader(Connection):
    """Wants to be told once."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Notification] = asyncio.get_running_loop().create_future()

    def send(self, message: ServerMessage) -> None:
        if self.answer.done():
            return
        if message.notifications:
            self.answer.set_result(message.notifications[0])
        elif message.error is not None:
            self.answer.set_exception(error_of(message.error.code, message.error.text))

    def broadcast(self, frame: Frame) -> None:
        self.send(frame.message)

    def close(self) -> None:
        pass
