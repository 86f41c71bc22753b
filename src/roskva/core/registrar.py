"""The registrar: sessions, and what they are registered for.

Everything here is soft. Registrations are kept in rows at the client's shard (`rows.py`), versions
at the object's shard (`matcher.py`); a registrar joins the two for whoever is online and forgets
when the session ends. Any registrar can serve any client.

Its parts: `interest.py` is its lower edge, the objects it watches and the links to their shards;
`admitting.py` lets sessions in and out; `registering.py` is what they want, `telling.py` what they
are due, `acking.py` what has reached them; `saving.py` writes the rows; `outgoing.py` gathers what
a step has to say. Here is what joins the parts: events, time, and work in slices.

The duties, in order:

1. A session is granted after the row's owner has opened it, so the older one is fenced by then.
2. A registration is confirmed when its row is durable *and* the object's shard has answered over a
   link that is still up; the notification it is due goes with the confirmation.
3. A digest is sent only when no operation is under way: it stands for what is durable and compared.
4. Once per `scan_interval` every session is looked at, as a safety net: is it still there, is its
   row saved, is it told everything? That also repeats what was never acked.

Long work is cut into slices: `next_deadline` is 0 while some is left.
"""

from collections import deque
from itertools import islice
from typing import Final

import msgspec

from roskva.core.acking import Acking
from roskva.core.admitting import Admitting
from roskva.core.backoff import Rate
from roskva.core.effects import (
    Acked,
    Attached,
    Close,
    Closed,
    Dismissed,
    Drained,
    DropLink,
    Effect,
    Event,
    FromLink,
    Handle,
    Lagging,
    LinkDown,
    LinkUp,
    Opened,
    Received,
    Recheck,
    Reloaded,
    Send,
    Shedding,
    Tick,
    Watching,
    Withdrawn,
)
from roskva.core.interest import Interests
from roskva.core.outgoing import Outbox
from roskva.core.registering import Registering
from roskva.core.saving import Saving
from roskva.core.session import Phase, Session
from roskva.core.telling import TURN, Telling
from roskva.core.token import TokenKeys
from roskva.errors import Fenced, Unavailable
from roskva.model import NO_VERSION
from roskva.wire.links import (
    Pong,
    Pushes,
    RowRefused,
    RowWritten,
    SessionOpened,
    Superseded,
    Versions,
)
from roskva.wire.messages import ClientMessage, Failure, Hello, ServerDigest

COUNTERS: Final = (
    *("broadcasts", "notified", "acks", "stale_acks", "forged_acks", "suppressed", "lagged"),
    *("syncs", "turned_away", "rejected_tokens", "fenced", "stale_messages", "expired"),
    *("revoked", "refreshed_tokens", "over_session_limit", "links_opened", "scans"),
)


class RegistrarConfig(msgspec.Struct, frozen=True):
    """Times are in seconds."""

    name: str
    shards: int
    cell: str = "local"
    handshake_timeout: float = 10.0
    heartbeat: float = 1200.0
    missed_heartbeats: int = 4
    scan_interval: float = 60.0
    ack_flush: float = 2.0
    linger: float = 60.0
    ping_interval: float = 1.0
    link_timeout: float = 3.0
    sync_timeout: float = 5.0
    token_lifetime: float = 90 * 86400.0
    handshakes: Rate = Rate(1000, 1000)
    shedding_wait: float = 2.0
    """Nobody comes back earlier that was turned away because of load."""
    max_registrations: int = 100_000
    max_sessions: int = 1000
    """Of one principal; nobody in particular may have any number."""


class Registrar:
    def __init__(self, config: RegistrarConfig, keys: TokenKeys, wall_us: int, now: float) -> None:
        self.config = config
        self.now = now
        self.counters = dict.fromkeys(COUNTERS, 0)
        self.interests = Interests(
            config.name, config.shards, config.linger, config.link_timeout, now
        )
        self.watched = self.interests.watched
        self.outbox = Outbox()
        self.saving = Saving(self.interests, self.outbox, config.ack_flush)
        self.telling = Telling(self.interests, self.outbox, self.saving, self.counters)
        shared = self.interests, self.outbox, self.saving, self.telling, self.counters
        self.admitting = Admitting(config, keys, wall_us / 1e6 - now, *shared)
        self.registering = Registering(*shared, config.max_registrations, config.sync_timeout)
        self.conns, self.sessions = self.admitting.conns, self.admitting.sessions
        self.acking = Acking(self.conns, self.interests, self.saving, self.telling, self.counters)
        self.visiting: deque[Session] = deque()
        self.ping_at = now + config.ping_interval
        self.wheel: dict[int, list[Session]] = {}
        self.wheel_turn = int(now)

    def next_deadline(self) -> float:
        if self.visiting or self.admitting.leaving:
            return 0.0
        if self.telling.pending() or self.interests.pending():
            return 0.0
        deadline = self.ping_at
        flush_at = self.saving.flush_at
        if flush_at is not None and flush_at < deadline:
            deadline = flush_at
        if self.wheel and self.wheel_turn + 1 < deadline:
            deadline = self.wheel_turn + 1
        return deadline

    def step(self, event: Event, now: float) -> list[Effect]:
        self.now = self.interests.now = now
        self.interests.step += 1
        kind = type(event)
        if kind is Acked:
            self.acking.acked(event)  # type: ignore[arg-type]
            if not self.outbox.sessions:
                return []  # as good as always; work in slices has its deadline
        elif kind is Received:
            self._received(event)  # type: ignore[arg-type]
        elif kind is FromLink:
            self._from_link(event)  # type: ignore[arg-type]
        else:
            self._other(event)
        if self.visiting:
            for _ in range(min(len(self.visiting), TURN)):
                self._visit(self.visiting.popleft())
        if self.telling.pending():
            self.telling.work()
        if self.admitting.leaving:
            self._leave(self.admitting.leaving[0])
        if self.outbox.sessions:
            self._send_out()
        return self.outbox.take()

    def _other(self, event: Event) -> None:
        match event:
            case Tick():
                self._tick()
            case Opened():
                self._accept(event.conn, event.bits)
            case Attached():
                self.admitting.attach(self._accept(event.conn, b""), event)
            case Watching():
                self.admitting.watch(self._accept(event.conn, b""), event)
            case Closed():
                self.admitting.end(self.conns.get(event.conn))
            case Lagging(conn=conn) if conn in self.conns:
                self.telling.lagging(self.conns[conn], event.since)
            case Drained(conn=conn) if conn in self.conns:
                self.telling.drained(self.conns[conn])
            case Dismissed(conn=conn) if conn in self.conns:
                self.admitting.dismiss(self.conns[conn], event.not_before_ms)
            case Withdrawn(conn=conn) if conn in self.conns:
                self.registering.withdraw(self.conns[conn], event.object)
            case Lagging() | Drained() | Dismissed() | Withdrawn():
                pass
            case Recheck():
                self.outbox.emit(*self.interests.ask_again())
                self.saving.write_again(self.sessions.values())
            case Reloaded():
                self.admitting.reload(event)
            case Shedding():
                self.admitting.shedding = event.on
            case LinkUp(link=int() as shard):
                self._link_up(shard)
            case LinkDown(link=int() as shard):
                self.interests.links[shard].broken()
            case _:
                raise TypeError(f"not for a registrar: {event!r}")

    # What clients say.

    def _accept(self, conn: Handle, bits: bytes) -> Session:
        session = self.admitting.accept(conn, bits)
        self._visit_later(session, self.config.handshake_timeout)
        return session

    def _received(self, event: Received) -> None:
        session = self.conns.get(event.conn)
        if session is None:
            return
        session.heard_at = self.now
        message = event.message
        if type(message) is Hello:
            self.admitting.hello(session, message, event.principal)
            return
        assert type(message) is ClientMessage
        if message.session != session.number or session.phase is not Phase.OPEN:
            self.counters["stale_messages"] += 1
            return
        if message.number < session.seen:
            # Overtaken by operations: an ack in it may be of what they have since taken back.
            self.counters["stale_messages"] += 1
            return
        for ack in message.acks:
            version = ack.version
            self.acking.ack(
                session, ack.object, NO_VERSION if version is None else version, ack.epoch
            )
        if message.operations or message.syncs:
            if not all(link.up for link in self.interests.links):
                self.outbox.to(session)  # it may take a while: say at least that we are here
            if message.number > session.seen:
                session.seen = message.number
                self.registering.operate(session, message, event)
        elif not message.acks:
            self.outbox.to(session).digest = True
        if message.digest is not None:
            self.registering.compare(session, message.digest)

    # What shards say.

    def _link_up(self, shard: int) -> None:
        link = self.interests.links[shard]
        self.counters["links_opened"] += 1
        self.outbox.emit(self.interests.open(shard))
        self.outbox.emit(*self.interests.messages())
        self.saving.link_up(link)
        for session in list(link.waiting):
            if session.phase is Phase.OPENING:
                self.admitting.open_again(session)
            else:
                self.saving.save_again(session)

    def _from_link(self, event: FromLink) -> None:
        assert isinstance(event.link, int)
        link = self.interests.links[event.link]
        if not link.up:
            return
        if not self.interests.hear(link):
            self.outbox.emit(DropLink(link.shard))
            return
        match event.message:
            case Pushes(pushes=pushes):
                for push in pushes:
                    self.telling.push(link, push)
            case Versions(known=known):
                self.telling.learn(link, known)
            case Pong() as pong:
                effect = self.interests.pong(link, pong)
                if effect is not None:
                    self.outbox.emit(effect)
            case SessionOpened() as opened:
                self.admitting.opened(link, opened)
            case RowWritten(request=request):
                self.registering.row_written(link, request)
            case Superseded(client=client, session=number):
                self.admitting.fence(client, number, Fenced.code)
            case RowRefused(client=client, session=number, code=code):
                self.admitting.fence(client, number, code)

    # Time, and work in slices.

    def _tick(self) -> None:
        if self.saving.flush_at is not None and self.now >= self.saving.flush_at:
            self.saving.flush()
        if self.now >= self.ping_at:
            self.ping_at = self.now + self.config.ping_interval
            self.interests.expire()
            self.outbox.emit(*self.interests.messages())
            self.outbox.emit(*self.interests.ping())
        elif self.interests.pending():
            self.outbox.emit(*self.interests.messages())
        while self.wheel_turn < int(self.now):
            self.wheel_turn += 1
            self.visiting.extend(self.wheel.pop(self.wheel_turn, ()))

    def _visit_later(self, session: Session, delay: float) -> None:
        turn = self.wheel_turn + max(1, round(delay))
        self.wheel.setdefault(turn, []).append(session)

    def _visit(self, session: Session) -> None:
        """Every session's regular check: is it there, is its row safe, is it told everything?"""
        if self.conns.get(session.conn) is not session:
            return
        if session.phase is Phase.OPEN:
            patience = self.config.heartbeat * self.config.missed_heartbeats
        else:
            patience = self.config.handshake_timeout / 2
        if self.now - session.heard_at > patience:
            self.counters["expired"] += 1
            out = self.outbox.to(session)
            out.close = True
            if session.phase is Phase.OPENING:
                out.error = Failure(Unavailable.code, "this client's shard does not answer")
            return
        if session.phase is Phase.OPEN:
            if session.unsaved:
                self.saving.save_again(session)
            self.admitting.refresh(session)
            if not session.lagging:  # else it is scanned when it has drained
                self.counters["scans"] += 1
                self.telling.walk(session)
        self._visit_later(session, self.config.scan_interval)

    def _leave(self, session: Session) -> None:
        """Let go of a slice of what a session that ended was registered for."""
        for key in list(islice(session.registered, TURN)):
            self.registering.unregister(session, key)
        if not session.registered:
            self.admitting.leaving.popleft()

    # Sending.

    def _send_out(self) -> None:
        out, self.outbox.sessions = self.outbox.sessions, {}
        for session, outgoing in out.items():
            if self.conns.get(session.conn) is not session:
                continue
            open_ = session.phase is Phase.OPEN
            digest = None
            if outgoing.digest and open_ and not session.unsaved and not session.unconfirmed:
                digest = ServerDigest(len(session.registered), session.hash_sum, session.seen)
            for message in outgoing.messages(session.number if open_ else None, digest):
                self.outbox.emit(Send(session.conn, message))
            if outgoing.close:
                self.outbox.emit(Close(session.conn))
                self.admitting.end(session)
