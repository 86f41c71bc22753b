"""Telling sessions what they are due, by the table of `freshness.py`.

An update is one `Broadcast`: nothing is looked up or written down per session, because no session
has acked a version above the object's `max_acked`. In all other cases (a new epoch, a shard behind
its clients, a link that came back) the object has *arrived*, and the table is applied to each of
its sessions.

Whoever was left out is found again by a *walk* over its registrations. Arrivals and walks are done
in slices; a session that lags keeps its place in its walk until it has drained.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Final

from roskva.core.effects import Broadcast, Handle
from roskva.core.freshness import NEVER, Due, due
from roskva.core.interest import Interests, ShardLink
from roskva.core.outgoing import Outbox
from roskva.core.saving import Saving
from roskva.core.session import Phase, Session, Watched
from roskva.model import NO_VERSION, Key
from roskva.wire.links import Known as Said
from roskva.wire.links import Push
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

TURN: Final = 500
"""Registrations looked at before the loop gets its turn."""
WALK_BATCH: Final = 100
"""Notifications a walk sends to one session before the channel had a chance to say it lags."""


class Telling:
    confirm: Callable[[Session, Key], None]
    """Answers an operation that waited for its object, and tells with it. Set by `Registering`."""

    def __init__(
        self, interests: Interests, outbox: Outbox, saving: Saving, counters: dict[str, int]
    ) -> None:
        self.interests = interests
        self.outbox = outbox
        self.saving = saving
        self.counters = counters
        self.slow: set[Session] = set()
        """Those that lag."""
        self.arrived: deque[Watched] = deque()
        self.walks: deque[Session] = deque()

    def pending(self) -> bool:
        return bool(self.arrived or self.walks)

    def work(self) -> None:
        """One slice."""
        budget = TURN
        while budget > 0 and self.arrived:
            budget -= self._compare(self.arrived.popleft())
        for _ in range(len(self.walks)):  # each once: the channel may have something to say
            if budget <= 0:
                return
            session = self.walks.popleft()
            budget -= self._walk(session) if session.phase is Phase.OPEN else 1

    # Objects.

    def push(self, link: ShardLink, push: Push) -> None:
        watched = self.interests.watched.get(push.object)
        if watched is None:
            return
        before = watched.known if self.interests.holds(watched) else None
        self.interests.learn(link, watched, push)
        if before is None or before[1] != push.epoch or push.version <= watched.max_acked:
            self.arrived.append(watched)
            return
        without = self._authors(watched, push) if push.source else ()
        if watched.sessions:
            self.counters["broadcasts"] += 1
            left_out = self.slow or without
            conns = self._audience(watched, without) if left_out else watched.audience()
            message = ServerMessage(PROTOCOL, notifications=[_notification(watched)])
            self.outbox.emit(Broadcast(message, conns, watched.changed_in))

    def learn(self, link: ShardLink, known: list[Said]) -> None:
        for said in known:
            watched = self.interests.watched.get(said.object)
            if watched is not None:
                self.interests.learn(link, watched, said)
                self.arrived.append(watched)

    def _audience(self, watched: Watched, without: Collection[Session]) -> Sequence[Handle]:
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
            self.saving.set_acked(session, watched, watched.known)
            self.counters["suppressed"] += 1
        return authors

    def _compare(self, watched: Watched) -> int:
        """The table, for every session of the object."""
        known, key = watched.known, watched.key
        if known is None or not self.interests.holds(watched):
            return 1
        behind: list[Session] = []
        astray: list[Session] = []
        watched.max_acked = NO_VERSION
        looked_up, told = NEVER, due(NEVER, known)
        for session, acked in watched.sessions.items():
            if acked[0] > watched.max_acked:
                watched.max_acked = acked[0]
            if session.unconfirmed and key in session.unconfirmed:
                self.confirm(session, key)
            elif acked is not known and session.phase is Phase.OPEN and not session.lagging:
                if acked is not looked_up:  # they mostly hold the same
                    looked_up, told = acked, due(acked, known)
                if told is Due.VERSION:
                    behind.append(session)
                elif told is Due.UNKNOWN:
                    astray.append(session)
        self._tell(watched, behind, _notification(watched))
        self._tell(watched, astray, Notification(key, None, known[1]))
        return len(watched.sessions) + 1

    def _tell(self, watched: Watched, sessions: list[Session], notification: Notification) -> None:
        if len(sessions) == 1:
            self.outbox.to(sessions[0]).notifications.append(notification)
            self.counters["notified"] += 1
        elif sessions:
            self.counters["broadcasts"] += 1
            message = ServerMessage(PROTOCOL, notifications=[notification])
            conns = [session.conn for session in sessions]
            self.outbox.emit(Broadcast(message, conns, watched.changed_in))

    # Sessions.

    def tell_one(self, session: Session, watched: Watched) -> bool:
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

    def walk(self, session: Session, since: int = 0, repeats: bool = False) -> None:
        """Over all registrations, telling what is due of what changed since."""
        if session.walk is None:
            session.walk = list(session.registered)
            session.walk_since, session.walk_repeats = since, repeats
            self.walks.append(session)

    def _walk(self, session: Session) -> int:
        left, sent, looked = session.walk or [], 0, 0
        batch = 1 if session.paced else WALK_BATCH
        while left and sent < batch and looked < TURN and not session.lagging:
            looked += 1
            watched = self.interests.watched.get(left.pop())
            if watched is not None and self._is_for(session, watched):
                sent += self.tell_one(session, watched)
        if session.walk_repeats:
            self.counters["resent"] += sent
        if session.lagging:
            return looked + 1  # it keeps its place
        if left:
            self.walks.append(session)
        else:
            session.walk = None
            self._walk_after_lag(session)
        return looked + 1

    def _is_for(self, session: Session, watched: Watched) -> bool:
        if watched.key not in session.registered or not self.interests.holds(watched):
            return False
        if watched.changed_in >= session.walk_since:
            return True
        return session.skipped is not None and session.skipped.pop(watched.key, 1) is None

    def lagging(self, session: Session, since: int | None) -> None:
        session.lagging = True
        self.slow.add(session)
        step = self.interests.step - 1 if since is None else since
        if session.lagged_in is None or step < session.lagged_in:
            session.lagged_in = step
        self.counters["lagged"] += 1

    def drained(self, session: Session) -> None:
        if not session.lagging:
            return
        session.lagging = False
        self.slow.discard(session)
        if session.phase is not Phase.OPEN:
            return
        if session.walk is None:
            self._walk_after_lag(session)
        else:
            self.walks.append(session)

    def _walk_after_lag(self, session: Session) -> None:
        """For what it was left out of. What it was told before is on its way to it."""
        if session.lagged_in is not None and not session.lagging:
            since, session.lagged_in = session.lagged_in, None
            self.walk(session, since)


def _notification(watched: Watched) -> Notification:
    assert watched.known is not None
    return Notification(watched.key, watched.known[0], watched.known[1], watched.payload)
