"""A registrar of this process: what channels ask of it, and what it asks of access and settings."""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final

from roskva import errors, model
from roskva.answer import Answered, answer_of
from roskva.channels.base import Outcomes
from roskva.config import Config
from roskva.core import effects
from roskva.core.backoff import Rate
from roskva.core.identity import TokenKeys
from roskva.core.registrar import RegistrarConfig
from roskva.core.session import Session
from roskva.feed.commit import Handover
from roskva.host.delivery import Announcement, Delivery
from roskva.host.effects import Stopping
from roskva.host.observer import Observer
from roskva.host.registrar import RegistrarHost
from roskva.host.submissions import Holding
from roskva.server.access.authority import Authority, Later, Verdict
from roskva.server.admission import Admission
from roskva.server.executor import RegistrarExecutor
from roskva.server.pressure import Pressure
from roskva.server.space import DiskSpace
from roskva.wire.links import Registered
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    FromClient,
    Hello,
    Notification,
    ServerError,
    ServerMessage,
)

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
        space: DiskSpace,
        observer: Observer | None = None,
    ) -> None:
        limits, sessions = config.limits, config.sessions
        host = RegistrarHost(
            RegistrarConfig(
                name=name,
                shards=shards,
                handshakes=Rate(limits.handshakes_per_second, 1000),
                heartbeat=sessions.heartbeat_seconds,
                missed_heartbeats=sessions.missed_heartbeats,
                scan_interval=sessions.resend_seconds,
                ack_flush=sessions.ack_flush_seconds,
                max_registrations=limits.max_registrations,
                max_sessions=limits.max_sessions_per_principal,
                token_lifetime=config.node.token_hours * 3600.0,
            ),
            keys,
            time.time_ns() // 1000,
            time.monotonic(),
            observer,
            batch_ms=config.windows("registrar_batch_ms"),
            holding=Holding(limits.publish_patience_s, limits.held_updates, limits.held_bytes),
        )
        super().__init__(host, authority, broken, handover)
        self.host, self.core = host, host.core
        self._authority = authority
        self._admission = Admission(config, authority, space)
        self.pressure = Pressure(limits, lambda on: self.step(effects.Shedding(on)))
        self._keys = keys
        self._refused = {"shedding": 0, "disk": 0}
        """Updates, beside those that came too fast."""
        self.refused_reads = 0
        """While load is shed."""
        self._take_standing(keys)

    @property
    def ready(self) -> bool:
        """Every shard answers."""
        return len(self.host.welcomed) == len(self.links)

    @property
    def refused_updates(self) -> dict[str, int]:
        """By why."""
        admission = self._admission
        return {"rate": admission.too_fast, "bytes": admission.refused_bodies, **self._refused}

    # For channels.

    def received(self, conn: Delivery, principal: model.Principal, message: FromClient) -> None:
        if type(message) is ClientMessage and (message.operations or message.syncs):
            self._authorisation.received(conn, message)
        elif type(message) is Hello and (refused := self._refusal(conn, message)) is not None:
            error = ServerError(refused.code, str(refused))
            conn.connection.send(ServerMessage(PROTOCOL, error=error))
        else:
            self.step(effects.FromConnection(conn, message, principal=principal))

    def _refusal(self, conn: Delivery, hello: Hello) -> errors.Unauthorised | None:
        """Of an app that is not used over the channel of this connection."""
        claims = hello.token and self._keys.open(hello.token, int(time.time()))
        app = claims.app if claims else hello.app
        try:
            if app is not None:
                self.check_channel(app, conn.channel)
        except errors.Unauthorised as error:
            return error
        return None

    def check_channel(self, app: str, channel: str) -> None:
        channels = self._admission.config.app(app).channels
        if channel not in channels:
            raise errors.Unauthorised(
                f"the app {app} is not used over {channel} here: use {' or '.join(channels)}"
            )

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[model.Principal],
    ) -> None:
        """Where there are keys, it is them that count; else a certificate says at least who."""
        try:
            found = self._authority.identify(app, credential)
        except errors.RoskvaError as error:
            answered(error)
            return
        if not isinstance(found, model.Principal):
            self.run(_answer_later(found, answered))
        else:
            answered(
                model.Principal(certificate) if found is model.NOBODY and certificate else found
            )

    async def check_registering(
        self, principal: model.Principal, keys: Sequence[model.Key]
    ) -> None:
        if self.pressure.shedding:
            self.refused_reads += 1
            raise errors.Overloaded("this node has too much to do: try again later")
        found = self._authority.may_register(principal, keys)
        verdict = found if isinstance(found, Verdict) else await found
        if verdict.denied:
            raise errors.Unauthorised("these objects are not all allowed")
        if verdict.undecided:
            raise errors.Unavailable("the app's backend cannot be asked: try again later")

    def keeps_clients_s(self, app: str) -> float | None:
        return self._admission.config.keep(app).clients_s

    def assigns_versions(self, app: str) -> bool:
        return self._admission.config.app(app).versions == "assigned"

    def check_publishing(self, principal: model.Principal, body_bytes: int) -> None:
        self._admission.check(principal, body_bytes)

    def publish(
        self, principal: model.Principal, updates: Sequence[model.Update], answered: Outcomes
    ) -> None:
        if self.pressure.shedding:
            self._refused["shedding"] += len(updates)
            answered(errors.Overloaded("this node has too much to do: try again later"))
            return
        try:
            admitted = self._admission.admit_all(principal, updates)
        except errors.StorageUnavailable as error:
            self._refused["disk"] += len(updates)
            answered(error)
            return
        self._authorisation.publish(principal, admitted, answered)

    async def reset(self, principal: model.Principal, key: model.Key) -> None:
        admitted = self._admission.reset(principal, key)

        def submit(answered: Outcomes) -> None:
            self._authorisation.publish(principal, admitted, answered)

        (outcome,) = await answer_of(submit)
        if isinstance(outcome, errors.RoskvaError):
            raise outcome

    async def read(self, principal: model.Principal, key: model.Key) -> Notification:
        """What an object stands at, as a client that registers now would be told."""
        model.parse_key(key)
        await self.check_registering(principal, [key])
        reader = _OneReader()
        unread = Registered(key, model.NO_VERSION, model.NO_EPOCH)
        self.step(effects.Watching(reader, secrets.token_bytes(16), [unread], principal))
        try:
            return await asyncio.wait_for(reader.answer, _READ_TIMEOUT_S)
        except TimeoutError:
            raise errors.Unavailable("the shard of this object does not answer") from None
        finally:
            self.step(effects.Closed(reader))

    def sessions(self) -> dict[str, dict[str, int]]:
        """How many, by traffic and channel."""
        found: dict[str, dict[str, int]] = {"users": Counter(), "probe": Counter()}
        for conn, session in self.core.conns.items():
            found[traffic_of(session)][conn.channel] += 1  # type: ignore[attr-defined]
        return found

    def online(self) -> dict[bytes, bool]:
        """The clients with a session here, and whether each is known for a slow reader."""
        return {session.client: session.lagging for session in self.core.sessions.values()}

    def reload(self, config: Config, keys: TokenKeys) -> None:
        """The authority has: sessions that do not hold any more are closed."""
        self._admission.config = config
        self.host.batching.batch_ms = config.windows("registrar_batch_ms")
        before = list(self.core.sessions.items())
        self._take_standing(keys)
        for named, session in before:
            if named not in self.core.sessions:
                self.host.observer.ended(session, errors.TokenRejected.code)
            elif self._is_elsewhere(session):
                self.step(effects.Dismissed(session.conn, 0))

    def _is_elsewhere(self, session: Session) -> bool:
        """Its app is not used over its channel any more."""
        app = session.app or session.principal.app
        try:
            if app:
                self.check_channel(app, session.conn.channel)  # type: ignore[attr-defined]
        except errors.Unauthorised:
            return True
        return False

    def _take_standing(self, keys: TokenKeys) -> None:
        self._keys = keys
        self.host.guarded = self._authority.guarded
        self.step(effects.Reloaded(keys, self._authority.standing))

    def recheck(self) -> None:
        self.step(effects.Recheck())

    def dismiss(self, not_before_ms: Callable[[], int]) -> None:
        """Send everybody away; their acks are on their way to the rows when this returns."""
        for conn in list(self.core.conns):
            self.step(effects.Dismissed(conn, not_before_ms()))
        for task in self._tasks:
            task.cancel()
        self._authorisation.give_up()
        self.step(Stopping())


async def _answer_later(found: Later[model.Principal], answered: Answered[model.Principal]) -> None:
    try:
        principal = await found
    except errors.RoskvaError as error:
        answered(error)
    else:
        answered(principal)


def traffic_of(session: Session) -> str:
    """By the app that it may use; where there are no keys, by what it says of itself."""
    named = session.app or session.principal.app
    if named is None and session.application.startswith(model.PROBE_APP):
        return "probe"
    app = named or next(iter(session.registered), "").partition("/")[0]
    return "probe" if app in model.PROBE_APPS else "users"


class _OneReader(Delivery):
    """Wants to be told once."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = self
        self.answer: asyncio.Future[Notification] = asyncio.get_running_loop().create_future()

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        """Whoever reads is no session that is told: nothing of it counts as handed over."""
        if self.answer.done():
            return ()
        if message.notifications:
            self.answer.set_result(message.notifications[0])
        elif message.error is not None:
            self.answer.set_exception(errors.error_of(message.error.code, message.error.text))
        return ()

    def notify(self, announcement: Announcement) -> effects.Lagging | None:
        self.send(announcement.message)
        return None

    def close(self) -> None:
        pass
