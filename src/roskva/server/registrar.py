"""A registrar of this process: what channels ask of it, and what it asks of access and settings."""

import asyncio
import logging
import resource
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from roskva.answer import Answered, answer_of
from roskva.channels.base import Outcomes
from roskva.config import Config
from roskva.core.backoff import Rate
from roskva.core.effects import (
    Closed,
    Dismissed,
    FromConnection,
    Lagging,
    Recheck,
    Reloaded,
    Shedding,
    Watching,
)
from roskva.core.identity import TokenKeys
from roskva.core.registrar import RegistrarConfig
from roskva.core.session import Session
from roskva.errors import (
    Overloaded,
    RoskvaError,
    TokenRejected,
    Unauthorised,
    Unavailable,
    error_of,
)
from roskva.feed.commit import Handover
from roskva.host.delivery import Announcement, Delivery
from roskva.host.effects import Submitted
from roskva.host.observer import Observer
from roskva.host.registrar import RegistrarHost
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
)
from roskva.server.access.authority import Authority, Later, Verdict
from roskva.server.admission import Admission
from roskva.server.executor import RegistrarExecutor
from roskva.server.pressure import Pressure
from roskva.wire.links import Registered
from roskva.wire.messages import ClientMessage, FromClient, Notification, ServerMessage

_log = logging.getLogger(__name__)
_READ_TIMEOUT_S: Final = 5.0


class RegistrarServer(RegistrarExecutor):
    """The `Gateway` of every channel of this process."""

    def __init__(
        self,
        name: str,
        shards: int,
        config: Config,
        authority: Authority,
        keys: TokenKeys,
        broken: Callable[[Exception], None],
        handover: Handover,
        observer: Observer | None = None,
    ) -> None:
        limits = config.limits
        host = RegistrarHost(
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
            observer,
        )
        super().__init__(host, authority, broken, handover)
        self.host, self.core = host, host.core
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._max_connections = limits.connections(open_files)
        self._authority = authority
        self._admission = Admission(config, authority)
        self.pressure = Pressure(limits, lambda on: self.step(Shedding(on)))
        self._shed = {"shed_publishes": 0, "shed_reads": 0}
        self._take_standing(keys)

    @property
    def full(self) -> bool:
        return len(self.core.conns) >= self._max_connections

    @property
    def ready(self) -> bool:
        """Every shard answers."""
        return len(self.host.welcomed) == len(self.links)

    @property
    def counters(self) -> dict[str, int]:
        return {**self._shed, "too_fast": self._admission.too_fast}

    # For channels.

    def received(self, conn: Delivery, principal: Principal, message: FromClient) -> None:
        if type(message) is ClientMessage and (message.operations or message.syncs):
            self._authorisation.received(conn, message)
        else:
            self.step(FromConnection(conn, message, principal=principal))

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        """Where there are keys, it is them that count; else a certificate says at least who."""
        try:
            found = self._authority.identify(app, credential)
        except RoskvaError as error:
            answered(error)
            return
        if not isinstance(found, Principal):
            self.run(_answer_later(found, answered))
        else:
            answered(Principal(certificate) if found is NOBODY and certificate else found)

    async def check_registering(self, principal: Principal, keys: Sequence[Key]) -> None:
        if self.pressure.shedding:
            self._shed["shed_reads"] += 1
            raise Overloaded("this node has too much to do: try again later")
        found = self._authority.may_register(principal, keys)
        verdict = found if isinstance(found, Verdict) else await found
        if verdict.denied:
            raise Unauthorised("these objects are not all allowed")
        if verdict.undecided:
            raise Unavailable("the app's backend cannot be asked: try again later")

    def assigns_versions(self, app: str) -> bool:
        return self._admission.config.app(app).versions == "assigned"

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        if self.pressure.shedding:
            self._shed["shed_publishes"] += len(updates)
            answered(Overloaded("this node has too much to do: try again later"))
            return
        admitted = self._admission.admit_all(principal, updates)
        self.step(Submitted(answered, admitted))

    async def reset(self, principal: Principal, key: Key) -> None:
        admitted = self._admission.reset(principal, key)

        def submit(answered: Outcomes) -> None:
            self.step(Submitted(answered, admitted))

        (outcome,) = await answer_of(submit)
        if isinstance(outcome, RoskvaError):
            raise outcome

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

    def sessions(self) -> dict[str, dict[str, int]]:
        """How many, by traffic and channel."""
        found: dict[str, dict[str, int]] = {"users": Counter(), "probe": Counter()}
        for conn, session in self.core.conns.items():
            found[traffic_of(session)][conn.channel] += 1  # type: ignore[attr-defined]
        return found

    def online(self) -> list[bytes]:
        """The clients with a session here."""
        return [session.client for session in self.core.sessions.values()]

    def reload(self, config: Config, keys: TokenKeys) -> None:
        """The authority has: sessions that do not hold any more are closed."""
        self._admission.config = config
        before = list(self.core.sessions.items())
        self._take_standing(keys)
        for named, session in before:
            if named not in self.core.sessions:
                self.host.observer.ended(session, TokenRejected.code)

    def _take_standing(self, keys: TokenKeys) -> None:
        self.host.guarded = self._authority.guarded
        self.step(Reloaded(keys, self._authority.standing))

    def recheck(self) -> None:
        self.step(Recheck())

    def dismiss(self, not_before_ms: Callable[[], int]) -> None:
        """Send everybody away; their acks are on their way to the rows when this returns."""
        for conn in list(self.core.conns):
            self.step(Dismissed(conn, not_before_ms()))
        for task in self._tasks:
            task.cancel()


async def _answer_later(found: Later[Principal], answered: Answered[Principal]) -> None:
    try:
        principal = await found
    except RoskvaError as error:
        answered(error)
    else:
        answered(principal)


def traffic_of(session: Session) -> str:
    """By the app that it may use; where there are no keys, by what it says of itself."""
    named = session.app or session.principal.app
    if named is None and session.application.startswith(PROBE_APP):
        return "probe"
    app = named or next(iter(session.registered), "").partition("/")[0]
    return "probe" if app in PROBE_APPS else "users"


class _OneReader(Delivery):
    """Wants to be told once."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = self
        self.answer: asyncio.Future[Notification] = asyncio.get_running_loop().create_future()

    def send(self, message: ServerMessage) -> None:
        if self.answer.done():
            return
        if message.notifications:
            self.answer.set_result(message.notifications[0])
        elif message.error is not None:
            self.answer.set_exception(error_of(message.error.code, message.error.text))

    def notify(self, announcement: Announcement) -> Lagging | None:
        self.send(announcement.message)
        return None

    def close(self) -> None:
        pass
