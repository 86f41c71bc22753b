"""The registrar at work: between the channels, where clients are, and the ports to the shards."""

import asyncio
import resource
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from roskva.channels.base import Connection, Frame, Principal
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
    FromLink,
    LinkDown,
    LinkUp,
    Received,
    Recheck,
    Send,
    SendLink,
    Watching,
)
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.core.token import TokenKeys
from roskva.errors import RoskvaError, Unavailable
from roskva.model import NO_EPOCH, NO_VERSION, Key, Update, parse_key, shard_of
from roskva.server.admission import Admission
from roskva.server.auth import Authority
from roskva.server.fanout import Fanout
from roskva.server.ports import Port
from roskva.server.stepper import Stepper
from roskva.wire.links import FromShard, Registered
from roskva.wire.messages import ClientMessage, FromClient, Notification, ServerMessage

_READ_TIMEOUT_S: Final = 5.0
_NOTHING_DENIED: Final[frozenset[Key]] = frozenset()


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
    ) -> None:
        limits = config.limits
        self.core = Registrar(
            RegistrarConfig(
                name=name,
                shards=shards,
                handshakes=Rate(limits.handshakes_per_second, 1000),
                max_registrations=limits.max_registrations,
            ),
            keys,
            time.time_ns() // 1000,
            time.monotonic(),
        )
        self.ports: list[Port] = []
        """One per shard, in order; whoever builds the node adds them before anything starts."""
        self.up: set[int] = set()
        """Shards whose links are up."""
        self._config = config
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_connections = limits.connections(open_files)
        self._authority = authority
        self._admission = Admission(config, authority)
        self._fanout = Fanout(broken)
        self._stepper = Stepper(self.core, self._carry_out, self.core.next_deadline, broken)

    @property
    def full(self) -> bool:
        return len(self.core.conns) >= self._max_connections

    @property
    def ready(self) -> bool:
        return len(self.up) == len(self.ports)

    # For channels.

    def step(self, event: Event) -> None:
        self._stepper.step(event)

    def received(self, conn: Connection, principal: Principal, message: FromClient) -> None:
        denied = _NOTHING_DENIED
        if type(message) is ClientMessage and (message.operations or message.syncs):
            denied = self._denied(principal, message)
        self._stepper.step(Received(conn, message, denied))

    def _denied(self, principal: Principal, message: ClientMessage) -> frozenset[Key]:
        wanted = {operation.object for operation in message.operations if operation.register}
        wanted.update(key for sync in message.syncs for key in sync.objects)
        may = self._authority.may_register
        return frozenset(key for key in wanted if not may(principal, key))

    def identify(self, app: str | None, user: str | None, secret: bytes | None) -> Principal:
        return self._authority.identify(app, user, secret)

    def may_register(self, principal: Principal, key: Key) -> bool:
        return self._authority.may_register(principal, key)

    def assigns_versions(self, app: str) -> bool:
        return self._config.app(app).versions == "assigned"

    async def publish(
        self, principal: Principal, updates: Sequence[Update]
    ) -> list[int | RoskvaError]:
        admitted = self._admission.admit_all(principal, list(updates))
        by_shard: dict[int, list[int]] = {}
        for i, update in enumerate(admitted):
            if isinstance(update, Update):
                by_shard.setdefault(self._shard_of(update.object), []).append(i)
        outcome: list[int | RoskvaError] = [
            NO_VERSION if isinstance(update, Update) else update for update in admitted
        ]

        async def publish(shard: int, places: list[int]) -> None:
            part = [update for i in places if isinstance(update := admitted[i], Update)]
            try:
                versions: Sequence[int | RoskvaError] = await self.ports[shard].publish(part)
            except RoskvaError as error:
                versions = [error] * len(places)
            for i, version in zip(places, versions, strict=True):
                outcome[i] = version

        if len(by_shard) == 1:
            await publish(*next(iter(by_shard.items())))
        else:
            await asyncio.gather(*(publish(*part) for part in by_shard.items()))
        return outcome

    async def reset(self, principal: Principal, key: Key) -> None:
        await self.ports[self._shard_of(key)].publish([self._admission.reset(principal, key)])

    async def read(self, key: Key) -> Notification:
        """What an object stands at, as a client that registers now would be told."""
        parse_key(key)
        reader = _OneReader()
        unread = Registered(key, NO_VERSION, NO_EPOCH)
        self.step(Watching(reader, secrets.token_bytes(16), [unread]))
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
        self.up.add(shard)
        self._stepper.step(LinkUp(shard))

    def from_link(self, shard: int, message: FromShard) -> None:
        self._stepper.step(FromLink(shard, message))

    def link_down(self, shard: int) -> None:
        self.up.discard(shard)
        self._stepper.step(LinkDown(shard))

    # What the core asks for.

    def _carry_out(self, effect: Effect) -> None:
        kind = type(effect)
        if kind is Broadcast:
            self._fanout.broadcast(effect)  # type: ignore[arg-type]
            return
        match effect:
            case Send(conn=Connection() as conn, message=message):
                conn.send(message)
            case SendLink(link=int() as shard, message=message):
                self.ports[shard].send(message)  # type: ignore[arg-type]
            case Close(conn=Connection() as conn):
                conn.close()
            case DropLink(link=int() as shard):
                self.ports[shard].drop()

    def sessions(self) -> dict[str, int]:
        """How many, by channel."""
        conns = self.core.conns
        return Counter(conn.channel for conn in conns if isinstance(conn, Connection))

    def online(self) -> list[bytes]:
        """The clients with a session here."""
        return [session.client for session in self.core.sessions.values()]

    def recheck(self) -> None:
        self._stepper.step(Recheck())

    def dismiss(self, not_before_ms: Callable[[], int]) -> None:
        """Send everybody away; their acks are on their way to the rows when this returns."""
        for conn in list(self.core.conns):
            self.step(Dismissed(conn, not_before_ms()))


class _OneReader(Connection):
    """Wants to be told once."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[Notification] = asyncio.get_running_loop().create_future()

    def send(self, message: ServerMessage) -> None:
        if message.notifications and not self.answer.done():
            self.answer.set_result(message.notifications[0])

    def broadcast(self, frame: Frame) -> None:
        self.send(frame.message)

    def close(self) -> None:
        pass
