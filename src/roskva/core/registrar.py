"""The registrar: what happens, who is told of it, and what they have acked.

Everything here is soft. Registrations are kept in rows at the client's shard (`rows.py`), versions
at the object's shard (`matcher.py`); a registrar joins the two for whoever is online and forgets
when the session ends. Any registrar can serve any client.

Its parts: `interest.py` is its lower edge, the objects it watches and the links to their shards;
`admission.py` lets sessions in, checks on them and lets them go; `registrations.py` is what they
want; `row_writes.py` writes the rows; `session.py` holds what all of them work on, and gathers what
a step has to say.

An update is one `Broadcast`: nothing is looked up or written down per session, because no session
has acked a version above the object's `max_acked`. In all other cases (a new epoch, a shard behind
its clients, a link that came back) the object has *arrived*, and the table of `freshness.py` is
applied to each of its sessions. Whoever was left out is found again by a *walk* over its
registrations; a session that lags keeps its place in its walk until it has drained.

Acks come one by one or many at once. Two cases matter for speed. Many ack the latest version of an
object, which they were told together: then what is the same for all is looked up once. Or what they
ack was overtaken, as telling goes before hearing: then what is due to them stays the same.

The duties, in order:

1. A session is granted after the row's owner has opened it, so the older one is fenced by then.
2. A registration is confirmed when its row is durable *and* the object's shard has answered over a
   link that is still up; the notification it is due goes with the confirmation.
3. A digest is sent only when no operation is under way: it stands for what is durable and compared.
4. Once per `scan_interval` every session is looked at, as a safety net: is it still there, is its
   row saved, is it told everything? That also repeats what was never acked, but not to sessions of
   channels that carry nothing twice or have no acks: these are told what was kept back from them.

Long work (arrivals, walks, checks, farewells) is cut into slices: `next_deadline` is 0 while some
is left.
"""

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

import msgspec

from roskva.core import freshness
from roskva.core.admission import SessionAdmission
from roskva.core.backoff import Rate
from roskva.core.effects import (
    Acked,
    Attached,
    Broadcast,
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
    KeptBack,
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
from roskva.core.freshness import NEVER, Due, Known, due
from roskva.core.identity import TokenKeys
from roskva.core.interest import Interests, LinkToShard
from roskva.core.registrations import Registrations
from roskva.core.row_writes import RowWrites
from roskva.core.session import TURN, Outbox, Session, SessionPhase, Watched
from roskva.errors import Fenced, LimitExceeded
from roskva.model import NO_VERSION, Key
from roskva.wire.links import (
    CurrentVersion,
    Pong,
    Push,
    Pushes,
    RowRefused,
    RowWritten,
    SessionOpened,
    Superseded,
    Versions,
    Welcome,
)
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    Hello,
    Notification,
    ServerDigest,
    ServerMessage,
)

WALK_BATCH: Final = 100
"""Notifications a walk sends to one session before the channel had a chance to say it lags."""

COUNTERS: Final = (
    *("broadcasts", "notified_again", "suppressed", "lagged"),
    *("acks", "stale_acks", "forged_acks", "syncs", "turned_away", "rejected_tokens", "fenced"),
    *("stale_messages", "expired", "revoked", "refreshed_tokens", "over_session_limit"),
    "over_share",
    *("links_opened", "old_owners"),
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
        self.interests = Interests(config, self.outbox, now)
        self.watched = self.interests.watched
        self.row_writes = RowWrites(self.interests, config.ack_flush)
        self.slow: set[Session] = set()
        """Those that lag."""
        self.arrived: deque[Watched] = deque()
        self.walks: deque[Session] = deque()
        self.admission = SessionAdmission(self, keys, wall_us / 1e6 - now)
        self.registrations = Registrations(self)
        self.sessions = self.admission.sessions
        self.ping_at = now + config.ping_interval

    def next_deadline(self) -> float:
        admission = self.admission
        if self.arrived or self.walks or admission.to_check or admission.leaving:
            return 0.0
        if self.interests.has_to_resend():
            return 0.0
        deadline = self.ping_at
        flush_at = self.row_writes.flush_at
        if flush_at is not None and flush_at < deadline:
            deadline = flush_at
        if admission.wheel and admission.wheel_turn + 1 < deadline:
            deadline = admission.wheel_turn + 1
        return deadline

    def step(self, event: Event, now: float) -> list[Effect]:
        self.now = self.interests.now = now
        self.interests.step += 1
        kind = type(event)
        if kind is Acked:
            self.take_acks(event)  # type: ignore[arg-type]
            if not self.outbox.sessions:
                return []  # as good as always; work in slices has its deadline
        elif kind is FromConnection:
            self._received(event)  # type: ignore[arg-type]
        elif kind is FromLink:
            self._from_link(event)  # type: ignore[arg-type]
        else:
            self._other(event)
        if self.admission.to_check:
            self.admission.check_some()
        if self.arrived or self.walks:
            self._work_on()
        if self.admission.leaving:
            self.admission.let_go_of_some()
        if self.outbox.sessions:
            self._send_out()
        return self.outbox.take()

    def _other(self, event: Event) -> None:
        match event:
            case Tick():
                self._tick()
            case Opened():
                self.admission.accept(event.conn, event.bits)
            case Attached():
                self.admission.attach(self.admission.accept(event.conn, b""), event)
            case Watching():
                self.admission.watch(self.admission.accept(event.conn, b""), event)
            case Closed(conn=conn):
                if event.expiry_s is not None and conn in self.conns:
                    self.conns[conn].expiry_s = event.expiry_s
                self.admission.end(self.conns.get(conn))
            case Lagging(conn=conn) if conn in self.conns:
                self.mark_lagging(self.conns[conn], event.since)
            case Drained(conn=conn) if conn in self.conns:
                self.mark_drained(self.conns[conn])
            case Dismissed(conn=conn) if conn in self.conns:
                self.admission.dismiss(self.conns[conn], event.not_before_ms)
            case Withdrawn(conn=conn) if conn in self.conns:
                self.registrations.withdraw(self.conns[conn], event.object)
            case KeptBack(conn=conn) if conn in self.conns:
                self._skip(self.conns[conn], event.object)
            case Lagging() | Drained() | Dismissed() | Withdrawn() | KeptBack():
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
            self.ack(session, ack.object, NO_VERSION if version is None else version, ack.epoch)
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
        if not self.interests.in_time(link):
            self.outbox.emit(DropLink(link.shard))
            return
        match event.message:
            case Pushes(pushes=pushes):
                for push in pushes:
                    self.take_push(link, push)
            case Versions(known=known):
                self.take_versions(link, known)
            case Pong() as pong:
                self.interests.answered(link, pong)
            case Welcome(owner=owner):
                self._welcomed(link, owner)
            case SessionOpened() as opened:
                self.admission.opened(link, opened)
            case RowWritten(request=request):
                self.registrations.row_written(link, request)
            case Superseded(client=client, session=number):
                self.admission.fence(client, number, Fenced.code)
            case RowRefused(client=client, session=number, code=LimitExceeded.code):
                self.registrations.refuse_share(client, number)
            case RowRefused(client=client, session=number, code=code):
                self.admission.fence(client, number, code)

    def _welcomed(self, link: LinkToShard, owner: int) -> None:
        if not self.interests.welcomed(link, owner):
            self.counters["old_owners"] += 1
            self.outbox.emit(DropLink(link.shard))

    # Telling, by object.

    def take_push(self, link: LinkToShard, push: Push) -> None:
        watched = self.watched.get(push.object)
        if watched is None:
            return
        before = watched.known if self.interests.is_current(watched) else None
        self.interests.set_known(link, watched, push)
        if before is None or before[1] != push.epoch or push.version <= watched.max_acked:
            self.arrived.append(watched)
            return
        without = self._authors(watched, push) if push.source else ()
        left_out = self.slow or without
        conns = self._conns_except(watched, without) if left_out else watched.audience()
        if conns:
            self.counters["broadcasts"] += 1
            message = ServerMessage(PROTOCOL, notifications=[_notification(watched)])
            self.outbox.emit(Broadcast(message, conns, watched.changed_in))

    def take_versions(self, link: LinkToShard, known: list[CurrentVersion]) -> None:
        for said in known:
            watched = self.watched.get(said.object)
            if watched is not None:
                self.interests.set_known(link, watched, said)
                self.arrived.append(watched)

    def _conns_except(self, watched: Watched, without: Collection[Session]) -> Sequence[Handle]:
        """All but these, and but those that lag."""
        return [
            session.conn
            for session in watched.sessions
            if not session.lagging and session not in without
        ]

    def _authors(self, watched: Watched, push: Push) -> list[Session]:
        """Sessions of the change's author that had acked all before it: they hold it already."""
        before = (push.previous, push.epoch)
        authors = [
            session
            for session, acked in watched.sessions.items()
            if session.application == push.source
            if acked == before
        ]
        assert watched.known is not None
        for session in authors:
            self.row_writes.set_acked(session, watched, watched.known)
            self.counters["suppressed"] += 1
        return authors

    def _notify_sessions(self, watched: Watched) -> int:
        """The table, for every session of the object."""
        known, key = watched.known, watched.key
        if known is None or not self.interests.is_current(watched):
            return 1
        owed_version: list[Session] = []
        owed_unknown: list[Session] = []
        watched.max_acked = NO_VERSION
        looked_up, told = NEVER, due(NEVER, known)
        for session, acked in watched.sessions.items():
            if acked[0] > watched.max_acked:
                watched.max_acked = acked[0]
            if session.unconfirmed and key in session.unconfirmed:
                self.registrations.confirm(session, key)
            elif acked is not known and session.phase is SessionPhase.OPEN and not session.lagging:
                if acked is not looked_up:  # they mostly hold the same
                    looked_up, told = acked, due(acked, known)
                if told is Due.VERSION:
                    owed_version.append(session)
                elif told is Due.UNKNOWN:
                    owed_unknown.append(session)
        self._send_to(watched, owed_version, _notification(watched))
        self._send_to(watched, owed_unknown, Notification(key, None, known[1]))
        return len(watched.sessions) + 1

    def _send_to(
        self, watched: Watched, sessions: list[Session], notification: Notification
    ) -> None:
        if len(sessions) == 1:
            self.outbox.to(sessions[0]).notifications.append(notification)
        elif sessions:
            self.counters["broadcasts"] += 1
            message = ServerMessage(PROTOCOL, notifications=[notification])
            conns = [session.conn for session in sessions]
            self.outbox.emit(Broadcast(message, conns, watched.changed_in))

    def _work_on(self) -> None:
        """A slice of what there is to tell."""
        budget = TURN
        while budget > 0 and self.arrived:
            budget -= self._notify_sessions(self.arrived.popleft())
        for _ in range(len(self.walks)):  # each once: the channel may have something to say
            if budget <= 0:
                return
            session = self.walks.popleft()
            budget -= self._continue_walk(session) if session.phase is SessionPhase.OPEN else 1

    # Telling, by session.

    def notify_if_due(self, session: Session, watched: Watched) -> bool:
        """Whether there was anything to tell."""
        assert watched.known is not None
        told = due(watched.sessions[session], watched.known)
        if told is Due.NOTHING:
            return False
        if session.lagging:
            self._skip(session, watched.key)
            return False
        if told is Due.VERSION:
            notification = _notification(watched)
        else:
            notification = Notification(watched.key, None, watched.known[1])
        self.outbox.to(session).notifications.append(notification)
        return True

    def start_walk(self, session: Session, since: int = 0, repeats: bool = False) -> None:
        """Over all registrations, telling what is due of what changed since."""
        if session.walk is None:
            session.walk = list(session.registered)
            session.walk_since, session.walk_repeats = since, repeats
            self.walks.append(session)

    def _continue_walk(self, session: Session) -> int:
        left, sent, looked = session.walk or [], 0, 0
        batch = 1 if session.paced else WALK_BATCH
        while left and sent < batch and looked < TURN and not session.lagging:
            looked += 1
            watched = self.watched.get(left.pop())
            if watched is not None and self._is_for(session, watched):
                sent += self.notify_if_due(session, watched)
        if session.walk_repeats:
            self.counters["notified_again"] += sent
        if session.lagging:
            return looked + 1  # it keeps its place
        if left:
            self.walks.append(session)
        else:
            session.walk = None
            self._walk_after_lag(session)
        return looked + 1

    def _is_for(self, session: Session, watched: Watched) -> bool:
        if watched.key not in session.registered or not self.interests.is_current(watched):
            return False
        skipped = session.skipped is not None and session.skipped.pop(watched.key, 1) is None
        return skipped or watched.changed_in >= session.walk_since

    def _skip(self, session: Session, key: Key) -> None:
        """The next walk tells it."""
        if key in session.registered:
            session.skipped = session.skipped or {}
            session.skipped[key] = None

    def mark_lagging(self, session: Session, since: int | None) -> None:
        self.counters["lagged"] += not session.lagging
        session.lagging = True
        self.slow.add(session)
        step = self.interests.step - 1 if since is None else since
        if session.lagged_in is None or step < session.lagged_in:
            session.lagged_in = step

    def mark_drained(self, session: Session) -> None:
        if not session.lagging:
            return
        session.lagging = False
        self.slow.discard(session)
        if session.phase is not SessionPhase.OPEN:
            return
        if session.walk is None:
            self._walk_after_lag(session)
        else:
            self.walks.append(session)

    def _walk_after_lag(self, session: Session) -> None:
        """For what it was left out of. What it was told before is on its way to it."""
        if session.lagged_in is not None and not session.lagging:
            since, session.lagged_in = session.lagged_in, None
            self.start_walk(session, since)

    # Acking.

    def take_acks(self, event: Acked) -> None:
        for (key, version, epoch), conns in event.acks.items():
            watched = self.watched.get(key)
            if watched is not None and watched.known is not None:
                latest, current = watched.known
                if epoch == current and NO_VERSION < version <= latest:
                    self._ack_for_many(watched, watched.known, version, conns)
                    continue
            for conn in conns:
                session = self.conns.get(conn)
                if session is not None and session.phase is SessionPhase.OPEN:
                    session.heard_at = self.now
                    self.ack(session, key, version, epoch)

    def _ack_for_many(
        self, watched: Watched, known: Known, version: int, conns: Sequence[Handle]
    ) -> None:
        key, epoch, held = watched.key, known[1], watched.sessions
        now, opened, mark_dirty = self.now, SessionPhase.OPEN, self.row_writes.mark_dirty
        latest = version == known[0]
        new = known if latest else (version, epoch)
        fresh = 0
        for session in map(self.conns.get, conns):
            if session is None or session.phase is not opened:
                continue
            session.heard_at = now
            acked = held.get(session)
            if acked is None or acked[0] >= version or not (latest or acked[1] == epoch):
                self.ack(session, key, version, epoch)
                continue
            fresh += 1
            held[session] = new
            if session.keep:
                mark_dirty(session, key)
        if fresh:
            if version > watched.max_acked:
                watched.max_acked = version
            self.counters["acks"] += fresh

    def ack(self, session: Session, key: Key, version: int, epoch: int) -> None:
        watched = session.registered.get(key)
        if watched is None or watched.known is None:
            self.counters["stale_acks"] += 1
            return
        acked, known = watched.sessions[session], watched.known
        if version == known[0] and epoch == known[1] and acked[0] <= version:
            new = known  # shared with the object and with every other session that is fresh
        elif freshness.is_forged(version, epoch, known):
            self.counters["forged_acks"] += 1
            return
        else:
            new = freshness.after_ack(acked, version, epoch, known)
        self.counters["acks"] += 1
        if new is not acked and new != acked:
            self.row_writes.set_acked(session, watched, new)
            if version == NO_VERSION and due(new, known) is Due.VERSION:
                self.notify_if_due(session, watched)

    # Time.

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
        self.admission.turn_wheel()

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


def _notification(watched: Watched) -> Notification:
    assert watched.known is not None
    return Notification(watched.key, watched.known[0], watched.known[1], watched.payload)
