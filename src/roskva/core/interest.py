"""The registrar's lower edge: which objects it watches, and its links to their shards.

Interest follows the sessions and lingers a while after the last one leaves. It is soft on both
sides: every ping carries its digest, and whoever disagrees gets all of it again.

**Leases.** What came over a link counts for `link_timeout`, from when the question was *asked* that
was answered last: the hello, then pings. When the answer came says nothing, for it may have been on
its way for long, and its shard may have lost everything to another owner since. Whatever else comes
over a link, updates too, makes no lease longer.

**Owners.** Each start of a shard's owner has a higher number. Once a registrar has heard of one, it
believes none below, however alive that may look: a machine that was suspended, and does not know
yet that another has taken over.
"""

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING

from roskva.core.digest import DigestSum, hash_of
from roskva.core.effects import DropLink, SendLink
from roskva.core.session import Outbox, Session, Watched
from roskva.model import Key, shard_of
from roskva.wire.links import (
    LINK_PROTOCOL,
    MAX_LINK_PARTS,
    CurrentVersion,
    Interest,
    LinkHello,
    Ping,
    Pong,
    Push,
)

if TYPE_CHECKING:
    from roskva.core.registrar import RegistrarConfig


class LinkToShard:
    """To one shard. `incarnation` numbers its openings; what an older one brought is void."""

    __slots__ = (
        *("adding", "digest", "dirty", "dropping", "incarnation", "leased_at"),
        *("owner", "pings", "requests", "resend", "shard", "up", "waiting"),
    )

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.up = False
        self.incarnation = 0
        self.leased_at = 0.0
        """When the question was asked that was answered last."""
        self.pings: deque[float] = deque()
        """When those were sent that are not answered. A link is ordered, and so are the answers."""
        self.owner = 0
        """The highest number of an owner that was heard of, over any incarnation."""
        self.digest = DigestSum()
        self.adding: list[Key] = []
        self.dropping: list[Key] = []
        self.resend: list[Key] = []
        self.requests: dict[int, tuple[Session, tuple[Key, ...]]] = {}
        """Row requests sent and not answered: of which session, for which registrations."""
        self.waiting: dict[Session, None] = {}
        """Sessions with a row request to repeat, should the link break."""
        self.dirty: dict[Session, None] = {}
        """Sessions with acks to write, as soon as the link is up: what their own `dirty` names, or
        everything if that is none."""

    def opened(self, objects: list[Key], now: float) -> None:
        self.up = True
        self.incarnation += 1
        self.leased_at = now
        self.pings.clear()
        self.adding, self.dropping = [], []
        self.resend = objects

    def broken(self) -> None:
        self.up = False
        self.resend = []
        self.requests.clear()


class Interests:
    def __init__(self, config: "RegistrarConfig", outbox: Outbox, now: float) -> None:
        self.config = config
        self.outbox = outbox
        self.link_timeout = config.link_timeout
        self.now = now
        self.step = 0
        self.watched: dict[Key, Watched] = {}
        self.lingering: dict[Key, float] = {}
        self.links = [LinkToShard(shard) for shard in range(config.shards)]

    def watch(self, key: Key) -> Watched:
        watched = self.watched.get(key)
        if watched is None:
            link = self.links[shard_of(key, len(self.links))]
            watched = self.watched[key] = Watched(key, hash_of(key), link.shard)
            link.digest.add(watched.hash)
            link.adding.append(key)
        else:
            self.lingering.pop(key, None)
        return watched

    def release(self, session: Session, watched: Watched) -> None:
        """A session leaves; the last one leaves the object lingering."""
        session.remove(watched)
        if not watched.sessions:
            self.lingering[watched.key] = self.now + self.config.linger

    def expire(self) -> None:
        """A slice: the rest goes at the next ping."""
        for key, until in list(islice(self.lingering.items(), MAX_LINK_PARTS)):
            if until > self.now:
                return
            del self.lingering[key]
            watched = self.watched.pop(key)
            link = self.links[watched.shard]
            link.digest.remove(watched.hash)
            link.dropping.append(key)

    def is_current(self, watched: Watched) -> bool:
        """What is known of an object is good only while the link that it came by is up.

        A process that was stopped for a while wakes with links that look up and may be long dead:
        so it is looked at each time, and not by a timer.
        """
        link = self.links[watched.shard]
        if not link.up or watched.incarnation != link.incarnation:
            return False
        return self.now < link.leased_at + self.link_timeout

    def in_time(self, link: LinkToShard) -> bool:
        """Something arrived; if that is too late, the link is as good as broken."""
        if self.now >= link.leased_at + self.link_timeout:
            link.broken()
            return False
        return True

    def welcomed(self, link: LinkToShard, owner: int) -> bool:
        """Whether this is the owner to believe, as far as we know."""
        if owner < link.owner:
            link.broken()
            return False
        link.owner = owner
        return True

    def set_known(self, link: LinkToShard, watched: Watched, said: CurrentVersion | Push) -> None:
        watched.known = (said.version, said.epoch)
        watched.payload = said.payload
        watched.changed_in = self.step
        watched.incarnation = link.incarnation

    # Links.

    def open(self, shard: int) -> None:
        link = self.links[shard]
        link.opened(self._objects_of(link), self.now)
        hello = LinkHello(LINK_PROTOCOL, self.config.name, shard, len(self.links))
        self.outbox.emit(SendLink(shard, hello))
        self.send_changes()

    def has_to_resend(self) -> bool:
        for link in self.links:  # noqa: SIM110  # asked after every step: `any` costs more
            if link.resend:
                return True
        return False

    def send_changes(self) -> None:
        """Interest that changed since the last call, and a slice of what is being sent again."""
        emit = self.outbox.emit
        for link in self.links:
            if not (link.adding or link.dropping or link.resend):
                continue
            adding, link.adding = link.adding, []
            dropping, link.dropping = link.dropping, []
            if not link.up:
                continue
            for i in range(0, max(len(adding), len(dropping)), MAX_LINK_PARTS):
                slice_ = slice(i, i + MAX_LINK_PARTS)
                emit(SendLink(link.shard, Interest(adding[slice_], dropping[slice_])))
            again, link.resend = link.resend[:MAX_LINK_PARTS], link.resend[MAX_LINK_PARTS:]
            again = [key for key in again if key in self.watched]
            if again:
                emit(SendLink(link.shard, Interest(again)))

    def ping(self) -> None:
        for link in self.links:
            if not link.up:
                continue
            if self.now >= link.leased_at + self.link_timeout:
                link.broken()
                self.outbox.emit(DropLink(link.shard))
            else:
                link.pings.append(self.now)
                ping = Ping(link.digest.count, link.digest.sum)
                self.outbox.emit(SendLink(link.shard, ping))

    def answered(self, link: LinkToShard, pong: Pong) -> None:
        if link.pings:
            link.leased_at = link.pings.popleft()
        if not pong.agree:
            self._begin_anew(link)

    def ask_again(self) -> None:
        """What everything stands at; the answers are compared with every session."""
        for link in self.links:
            if link.up:
                self._begin_anew(link)

    def _begin_anew(self, link: LinkToShard) -> None:
        if not link.resend:
            link.resend = self._objects_of(link)
            self.outbox.emit(SendLink(link.shard, Interest(replace=True)))

    def _objects_of(self, link: LinkToShard) -> list[Key]:
        return [key for key, watched in self.watched.items() if watched.shard == link.shard]
