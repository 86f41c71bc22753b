"""What sessions are told by the table of `freshness.py`, and what they have acked.

An update is one `Broadcast`: nothing is looked up or written down per session, because no session
has acked a version above the object's `max_acked`. In all other cases (a new epoch, a shard behind
its clients, a link that came back) the object has *arrived*, and the table is applied to each of
its sessions.

Whoever was left out is found again by a *walk* over its registrations. Arrivals and walks are done
in slices; a session that lags keeps its place in its walk until it has drained.

Acks come one by one or many at once. Two cases matter for speed. Many ack the latest version of an
object, which they were told together: then what is the same for all is looked up once. Or what they
ack was overtaken, as telling goes before hearing: then what is due to them stays the same.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from roskva.core import freshness
from roskva.core.effects import Acked, Broadcast, Handle
from roskva.core.freshness import NEVER, Due, Known, due
from roskva.core.interest import Interests, ShardLink
from roskva.core.row_writes import RowWrites
from roskva.core.session import Session, SessionPhase, Watched
from roskva.model import NO_VERSION, Key
from roskva.wire.links import CurrentVersion, Push
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

TURN: Final = 500
"""Registrations looked at before the loop gets its turn."""
WALK_BATCH: Final = 100
"""Notifications a walk sends to one session before the channel had a chance to say it lags."""


class Notifications:
    confirm: Callable[[Session, Key], None]
    """Answers an operation that waited for its object. Set by `Registrations`."""

    def __init__(
        self,
        conns: dict[Handle, Session],
        interests: Interests,
        row_writes: RowWrites,
        counters: dict[str, int],
    ) -> None:
        self.conns = conns
        self.interests = interests
        self.outbox = interests.outbox
        self.row_writes = row_writes
        self.counters = counters
        self.slow: set[Session] = set()
        """Those that lag."""
        self.arrived: deque[Watched] = deque()
        self.walks: deque[Session] = deque()

    def pending(self) -> bool:
        return bool(self.arrived or self.walks)

    def work_on(self) -> None:
        """One slice."""
        budget = TURN
        while budget > 0 and self.arrived:
            budget -= self._notify_sessions(self.arrived.popleft())
        for _ in range(len(self.walks)):  # each once: the channel may have something to say
            if budget <= 0:
                return
            session = self.walks.popleft()
            budget -= self._continue_walk(session) if session.phase is SessionPhase.OPEN else 1

    # Objects.

    def take_push(self, link: ShardLink, push: Push) -> None:
        watched = self.interests.watched.get(push.object)
        if watched is None:
            return
        before = watched.known if self.interests.is_current(watched) else None
        self.interests.set_known(link, watched, push)
        if before is None or before[1] != push.epoch or push.version <= watched.max_acked:
            self.arrived.append(watched)
            return
        without = self._authors(watched, push) if push.source else ()
        if watched.sessions:
            self.counters["broadcasts"] += 1
            left_out = self.slow or without
            conns = self._conns_except(watched, without) if left_out else watched.audience()
            message = ServerMessage(PROTOCOL, notifications=[_notification(watched)])
            self.outbox.emit(Broadcast(message, conns, watched.changed_in))

    def take_versions(self, link: ShardLink, known: list[CurrentVersion]) -> None:
        for said in known:
            watched = self.interests.watched.get(said.object)
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
                self.confirm(session, key)
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
            self.counters["notified"] += 1
        elif sessions:
            self.counters["broadcasts"] += 1
            message = ServerMessage(PROTOCOL, notifications=[notification])
            conns = [session.conn for session in sessions]
            self.outbox.emit(Broadcast(message, conns, watched.changed_in))

    # Sessions.

    def notify_if_due(self, session: Session, watched: Watched) -> bool:
        """Whether there was anything to tell."""
        assert watched.known is not None
        told = due(watched.sessions[session], watched.known)
        if told is Due.NOTHING:
            return False
        if session.lagging:
            session.skipped = session.skipped or {}
            session.skipped[watched.key] = None
            return False
        if told is Due.VERSION:
            notification = _notification(watched)
        else:
            notification = Notification(watched.key, None, watched.known[1])
        self.outbox.to(session).notifications.append(notification)
        self.counters["notified"] += 1
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
            watched = self.interests.watched.get(left.pop())
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
        if watched.changed_in >= session.walk_since:
            return True
        return session.skipped is not None and session.skipped.pop(watched.key, 1) is None

    def mark_lagging(self, session: Session, since: int | None) -> None:
        session.lagging = True
        self.slow.add(session)
        step = self.interests.step - 1 if since is None else since
        if session.lagged_in is None or step < session.lagged_in:
            session.lagged_in = step
        self.counters["lagged"] += 1

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

    # Acks.

    def take_acks(self, event: Acked) -> None:
        for (key, version, epoch), conns in event.acks.items():
            watched = self.interests.watched.get(key)
            if watched is not None and watched.known is not None:
                latest, current = watched.known
                if epoch == current and NO_VERSION < version <= latest:
                    self._ack_for_many(watched, watched.known, version, conns)
                    continue
            for conn in conns:
                session = self.conns.get(conn)
                if session is not None and session.phase is SessionPhase.OPEN:
                    session.heard_at = self.interests.now
                    self.ack(session, key, version, epoch)

    def _ack_for_many(
        self, watched: Watched, known: Known, version: int, conns: Sequence[Handle]
    ) -> None:
        key, epoch, held = watched.key, known[1], watched.sessions
        now, opened, mark_dirty = self.interests.now, SessionPhase.OPEN, self.row_writes.mark_dirty
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


def _notification(watched: Watched) -> Notification:
    assert watched.known is not None
    return Notification(watched.key, watched.known[0], watched.known[1], watched.payload)
