"""The registrar: sessions, and what they are registered for.

Everything here is soft. Registrations are kept in rows at the client's shard (`rows.py`), versions
at the object's shard (`matcher.py`); a registrar joins the two for whoever is online and forgets
when the session ends. Any registrar can serve any client.

Its parts: `interest.py` is its lower edge, the objects it watches and the links to their shards;
`admission.py` lets sessions in and out; `registrations.py` is what they want, `notifications.py`
what they are told and have acked; `row_writes.py` writes the rows; `session.py` holds what all of
them work on, and gathers what a step has to say. Here is what joins the parts: events, time, and
work in slices.

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

from roskva.core.admission import SessionAdmission
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
    FromConnection,
    FromLink,
    Handle,
    Lagging,
    LinkDown,
    LinkUp,
    Opened,
    Recheck,
    Reloaded,
    Send,
    Shedding,
    Tick,
    Watching,
    Withdrawn,
)
from roskva.core.identity import TokenKeys
from roskva.core.interest import Interests
from roskva.core.notifications import TURN, Notifications
from roskva.core.registrations import Registrations
from roskva.core.row_writes import RowWrites
from roskva.core.session import Outbox, Session, SessionPhase
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
from roskva.wire.messages import ClientMessage, Hello, ServerDigest, ServerError

COUNTERS: Final = (
    *("broadcasts", "notified", "notified_again", "suppressed", "lagged"),
    *("acks", "stale_acks", "forged_acks", "syncs", "turned_away", "rejected_tokens", "fenced"),
    *("stale_messages", "expired", "revoked", "refreshed_tokens", "over_session_limit"),
    "links_opened",
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
        self.conns: dict[Handle, Session] = {}
        self.outbox = Outbox()
        self.interests = Interests(
            *(self.outbox, config.name, config.shards, config.linger, config.link_timeout, now)
        )
        self.watched = self.interests.watched
        self.row_writes = RowWrites(self.interests, config.ack_flush)
        self.notifications = Notifications(
            self.conns, self.interests, self.row_writes, self.counters
        )
        self.admission = SessionAdmission(config, keys, wall_us / 1e6 - now, self.notifications)
        self.registrations = Registrations(config, self.notifications)
        self.sessions = self.admission.sessions
        self.to_check: deque[Session] = deque()
        self.ping_at = now + config.ping_interval
        self.wheel: dict[int, list[Session]] = {}
        self.wheel_turn = int(now)

    def next_deadline(self) -> float:
        if self.to_check or self.admission.leaving:
            return 0.0
        if self.notifications.pending() or self.interests.has_to_resend():
            return 0.0
        deadline = self.ping_at
        flush_at = self.row_writes.flush_at
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
            self.notifications.take_acks(event)  # type: ignore[arg-type]
            if not self.outbox.sessions:
                return []  # as good as always; work in slices has its deadline
        elif kind is FromConnection:
            self._received(event)  # type: ignore[arg-type]
        elif kind is FromLink:
            self._from_link(event)  # type: ignore[arg-type]
        else:
            self._other(event)
        if self.to_check:
            for _ in range(min(len(self.to_check), TURN)):
                self._check(self.to_check.popleft())
        if self.notifications.pending():
            self.notifications.work_on()
        if self.admission.leaving:
            self._leave(self.admission.leaving[0])
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
                self.admission.attach(self._accept(event.conn, b""), event)
            case Watching():
                self.admission.watch(self._accept(event.conn, b""), event)
            case Closed():
                self.admission.end(self.conns.get(event.conn))
            case Lagging(conn=conn) if conn in self.conns:
                self.notifications.mark_lagging(self.conns[conn], event.since)
            case Drained(conn=conn) if conn in self.conns:
                self.notifications.mark_drained(self.conns[conn])
            case Dismissed(conn=conn) if conn in self.conns:
                self.admission.dismiss(self.conns[conn], event.not_before_ms)
            case Withdrawn(conn=conn) if conn in self.conns:
                self.registrations.withdraw(self.conns[conn], event.object)
            case Lagging() | Drained() | Dismissed() | Withdrawn():
                pass
            case Recheck():
                self.interests.ask_again()
                self.row_writes.rewrite_all(self.sessions.values())
            case Reloaded():
                self.admission.reload(event)
            case Shedding():
                self.admission.shedding = event.on
            case LinkUp(link=int() as shard):
                self._link_up(shard)
            case LinkDown(link=int() as shard):
                self.interests.links[shard].broken()
            case _:
                raise TypeError(f"not for a registrar: {event!r}")

    # What clients say.

    def _accept(self, conn: Handle, bits: bytes) -> Session:
        session = self.admission.accept(conn, bits)
        self._check_later(session, self.config.handshake_timeout)
        return session

    def _received(self, event: FromConnection) -> None:
        session = self.conns.get(event.conn)
        if session is None:
            return
        session.heard_at = self.now
        message = event.message
        if type(message) is Hello:
            self.admission.hello(session, message, event.principal)
            return
        assert type(message) is ClientMessage
        if message.session != session.number or session.phase is not SessionPhase.OPEN:
            self.counters["stale_messages"] += 1
            return
        if message.number < session.seen:
            # Overtaken by operations: an ack in it may be of what they have since taken back.
            self.counters["stale_messages"] += 1
            return
        for ack in message.acks:
            version = ack.version
            self.notifications.ack(
                session, ack.object, NO_VERSION if version is None else version, ack.epoch
            )
        if message.operations or message.syncs:
            if not all(link.up for link in self.interests.links):
                self.outbox.to(session)  # it may take a while: say at least that we are here
            if message.number > session.seen:
                session.seen = message.number
                self.registrations.apply_operations(session, message, event)
        elif not message.acks:
            self.outbox.to(session).digest = True
        if message.digest is not None:
            self.registrations.compare_digests(session, message.digest)

    # What shards say.

    def _link_up(self, shard: int) -> None:
        link = self.interests.links[shard]
        self.counters["links_opened"] += 1
        self.interests.open(shard)
        self.row_writes.link_up(link)
        for session in list(link.waiting):
            if session.phase is SessionPhase.OPENING:
                self.admission.open_again(session)
            else:
                self.row_writes.repeat_writes(session)

    def _from_link(self, event: FromLink) -> None:
        assert isinstance(event.link, int)
        link = self.interests.links[event.link]
        if not link.up:
            return
        if not self.interests.note_heard(link):
            self.outbox.emit(DropLink(link.shard))
            return
        match event.message:
            case Pushes(pushes=pushes):
                for push in pushes:
                    self.notifications.take_push(link, push)
            case Versions(known=known):
                self.notifications.take_versions(link, known)
            case Pong() as pong:
                self.interests.compare_digests(link, pong)
            case SessionOpened() as opened:
                self.admission.opened(link, opened)
            case RowWritten(request=request):
                self.registrations.row_written(link, request)
            case Superseded(client=client, session=number):
                self.admission.fence(client, number, Fenced.code)
            case RowRefused(client=client, session=number, code=code):
                self.admission.fence(client, number, code)

    # Time, and work in slices.

    def _tick(self) -> None:
        if self.row_writes.flush_at is not None and self.now >= self.row_writes.flush_at:
            self.row_writes.flush()
        if self.now >= self.ping_at:
            self.ping_at = self.now + self.config.ping_interval
            self.interests.expire()
            self.interests.send_changes()
            self.interests.ping()
        elif self.interests.has_to_resend():
            self.interests.send_changes()
        while self.wheel_turn < int(self.now):
            self.wheel_turn += 1
            self.to_check.extend(self.wheel.pop(self.wheel_turn, ()))

    def _check_later(self, session: Session, delay: float) -> None:
        turn = self.wheel_turn + max(1, round(delay))
        self.wheel.setdefault(turn, []).append(session)

    def _check(self, session: Session) -> None:
        """Every session's regular check: is it there, is its row safe, is it told everything?"""
        if self.conns.get(session.conn) is not session:
            return
        if session.phase is SessionPhase.OPEN:
            patience = self.config.heartbeat * self.config.missed_heartbeats
        else:
            patience = self.config.handshake_timeout / 2
        if self.now - session.heard_at > patience:
            self.counters["expired"] += 1
            out = self.outbox.to(session)
            out.close = True
            if session.phase is SessionPhase.OPENING:
                out.error = ServerError(Unavailable.code, "this client's shard does not answer")
            return
        if session.phase is SessionPhase.OPEN:
            if session.unsaved:
                self.row_writes.repeat_writes(session)
            self.admission.refresh(session)
            if not session.lagging:  # else it is scanned when it has drained
                self.notifications.start_walk(session, repeats=True)
        self._check_later(session, self.config.scan_interval)

    def _leave(self, session: Session) -> None:
        """Let go of a slice of what a session that ended was registered for."""
        for key in list(islice(session.registered, TURN)):
            self.registrations.unregister(session, key)
        if not session.registered:
            self.admission.leaving.popleft()

    # Sending.

    def _send_out(self) -> None:
        out, self.outbox.sessions = self.outbox.sessions, {}
        for session, outgoing in out.items():
            if self.conns.get(session.conn) is not session:
                continue
            open_ = session.phase is SessionPhase.OPEN
            digest = None
            if outgoing.digest and open_ and not session.unsaved and not session.unconfirmed:
                digest = ServerDigest(len(session.registered), session.hash_sum, session.seen)
            for message in outgoing.messages(session.number if open_ else None, digest):
                self.outbox.emit(Send(session.conn, message))
            if outgoing.close:
                self.outbox.emit(Close(session.conn))
                self.admission.end(session)
