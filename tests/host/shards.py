"""A shard's host, asked by hand."""

from collections import Counter
from typing import TypeVar

from roskva.core.effects import FeedEnd, FromLink, PutShard, SendLink
from roskva.core.matcher import MatcherConfig
from roskva.host.effects import Append, Appended
from roskva.host.observer import Observer, Way
from roskva.host.shard import HostEffect, ShardHost
from roskva.model import NO_VERSION, Update, shard_epoch
from roskva.wire.links import (
    LINK_PROTOCOL,
    Interest,
    LinkHello,
    PublishUpdates,
    ToShard,
)

T = TypeVar("T")
LINEAGE, LINK, NOW = 7, 1, 1000.0
AN_HOUR_US = 3600 * 10**6
WALL_US = 10**15


class Ways(Observer):
    """By which way news came, and whether a bridge was missed."""

    def __init__(self) -> None:
        self.counts: Counter[Way] = Counter()
        self.alone: list[bool] = []
        self.gaps = 0

    def applied(self, shard: int, way: Way, updates: int) -> None:
        self.counts[way] += updates

    def missed(self, shard: int) -> None:
        self.gaps += 1

    def reads_alone(self, shard: int, alone: bool) -> None:
        self.alone.append(alone)


class Asked:
    """What it asked for stays in `effects` until a test takes it."""

    def __init__(
        self,
        assigned: int = 0,
        slow: frozenset[str] = frozenset(),
        end: int = 0,
        source_apps: frozenset[str] = frozenset(),
    ) -> None:
        """`end`: of the feed that it finds."""
        self.ways = Ways()
        self.host = ShardHost(
            MatcherConfig(0, 1),
            PutShard(shard_epoch(1), LINEAGE, 0),
            boot=1,
            assigned=assigned,
            wall_us=WALL_US,
            now=NOW,
            fast_path=lambda app: app not in slow,
            source_apps=source_apps,
            observer=self.ways,
        )
        self.now = NOW
        self.end = end
        self.effects: list[HostEffect] = []
        self.step(FeedEnd(LINEAGE, end, 1))
        self.say(LinkHello(LINK_PROTOCOL, "registrar", 0, 1))

    def step(self, event: object) -> list[HostEffect]:
        effects = self.host.step(event, self.now)  # type: ignore[arg-type]
        self.effects += effects
        return effects

    def say(self, message: ToShard, link: int = LINK) -> list[HostEffect]:
        return self.step(FromLink(link, message))

    def take(self, kind: type[T]) -> list[T]:
        found: list[T] = [effect for effect in self.effects if isinstance(effect, kind)]
        self.effects = [effect for effect in self.effects if not isinstance(effect, kind)]
        return found

    def watch(self, *keys: str) -> None:
        self.say(Interest(add=list(keys)))

    def publish(self, request: int, *updates: Update) -> None:
        self.say(PublishUpdates(request, list(updates)))

    def commit(self) -> list[HostEffect]:
        """Everything that was asked for until now, as one group."""
        appends = self.take(Append)
        updates = [update for append in appends for update in append.updates]
        entries = list(enumerate(updates, self.end + 1))
        first, self.end = self.end + 1, self.end + len(updates)
        requests = [append.request for append in appends]
        return self.step(Appended(first, self.end, entries, requests))


def sent(effects: list[HostEffect]) -> list[object]:
    return [effect.message for effect in effects if isinstance(effect, SendLink)]


def kinds(effects: list[HostEffect]) -> list[str]:
    return [type(message).__name__ for message in sent(effects)]


def unversioned(name: str) -> Update:
    return Update(f"app/{name}", NO_VERSION)
