"""What clients say has reached them, one by one or many at once.

Two cases matter for speed. Many ack the latest version of an object, which they were told together:
then what is the same for all is looked up once. Or what they ack was overtaken, as telling goes
before hearing: then what is due to them stays the same.
"""

from collections.abc import Mapping, Sequence

from roskva.core import freshness
from roskva.core.effects import Acked, Handle
from roskva.core.freshness import Due, Known, due
from roskva.core.interest import Interests
from roskva.core.saving import Saving
from roskva.core.session import Phase, Session, Watched
from roskva.core.telling import Telling
from roskva.model import NO_VERSION, Key


class Acking:
    def __init__(
        self,
        conns: Mapping[Handle, Session],
        interests: Interests,
        saving: Saving,
        telling: Telling,
        counters: dict[str, int],
    ) -> None:
        self.conns = conns
        self.interests = interests
        self.saving = saving
        self.telling = telling
        self.counters = counters

    def acked(self, event: Acked) -> None:
        for (key, version, epoch), conns in event.acks.items():
            watched = self.interests.watched.get(key)
            if watched is not None and watched.known is not None:
                latest, current = watched.known
                if epoch == current and NO_VERSION < version <= latest:
                    self._together(watched, watched.known, version, conns)
                    continue
            for conn in conns:
                session = self.conns.get(conn)
                if session is not None and session.phase is Phase.OPEN:
                    session.heard_at = self.interests.now
                    self.ack(session, key, version, epoch)

    def _together(
        self, watched: Watched, known: Known, version: int, conns: Sequence[Handle]
    ) -> None:
        key, epoch, held = watched.key, known[1], watched.sessions
        now, opened, soil = self.interests.now, Phase.OPEN, self.saving.soil
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
                soil(session, key)
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
            self.saving.set_acked(session, watched, new)
            if version == NO_VERSION and due(new, known) is Due.VERSION:
                self.telling.tell_one(session, watched)
