"""One shard: its matcher and its client rows, over a feed and a store.

**The order of an update.** A publish is appended to the feed. When its group is durable, the group
is *applied*: the matcher takes it, and what it says to registrars leaves. Then the publishers are
*answered*. So whoever has been told yes reads what it has published, and clients do not wait for
the answers to a thousand publishers. What is applied is written to the store later: the feed has
it. The marker, up to where the feed may be cut off, follows what the store has (`Matcher`).

**Ways to the matcher.** The *fast path* hands over what was appended just now. An app may be left
off it: its updates are a gap then, which the bridge closes from outside (`Offer`), or we do, by
reading the feed. While a bridge is at work we give it time to close a gap first.

**Versions that the shard assigns** are the time in microseconds, and always above the last one. A
clock may stand an hour back after a restart, or on the node that takes over. So a limit is put on
disk ahead of what is assigned, and the next start begins above it.

Two machines and the assigned versions share one store: their requests to it are told apart by the
remainder of the number.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from roskva.core.effects import (
    Applied,
    Apply,
    Effect,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromLink,
    Handle,
    LinkDown,
    LoadClient,
    Loaded,
    LoadObjects,
    Persist,
    Persisted,
    PutAssigned,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.rows import Rows
from roskva.errors import RoskvaError, Unavailable
from roskva.host.effects import Append, Appended, NotAppended, SetMarker
from roskva.host.observer import Observer
from roskva.model import NO_VERSION, Update
from roskva.wire.links import (
    CloseSession,
    Forget,
    NotPublished,
    Offer,
    OpenSession,
    PublishUpdates,
    Pushes,
    Taken,
    UpdatesPublished,
    WriteRow,
    WriteRows,
)

ROW_MESSAGES: Final = (OpenSession, WriteRow, WriteRows, CloseSession, Forget)
SLICE: Final = 1000
"""Updates applied in one step of the matcher."""
_BRIDGE_GONE_S: Final = 10.0
BRIDGE_PATIENCE_S: Final = 2.0
_AHEAD_US: Final = 60 * 10**6
"""Of versions that may be assigned before a higher limit is on disk."""

_MATCHER, _ROWS, _ASSIGNED, _ASKERS = range(4)

HostEvent = Event | Appended | NotAppended
HostEffect = Effect | Append | SetMarker


def every_app(app: str) -> bool:
    """The fast path is for all."""
    return True


class ShardHost:
    def __init__(
        self,
        config: MatcherConfig,
        stored: PutShard,
        *,
        boot: int,
        assigned: int,
        wall_us: int,
        now: float,
        fast_path: Callable[[str], bool] = every_app,
        observer: Observer | None = None,
    ) -> None:
        """`boot` is above that of every earlier start, and every version assigned before is below
        `assigned`."""
        self.matcher = Matcher(config, stored)
        self.rows = Rows(boot, wall_us, now)
        self.assigned = AssignedVersions(assigned, wall_us - int(now * 1e6))
        self.observer = observer or Observer()
        self.fast_path = fast_path
        self.lineage = stored.lineage
        """Of the feed, once its end has been told."""
        self.feed_end = 0
        self.publishes: dict[int, tuple[Handle, int, list[int]]] = {}
        """What is being appended: whom to answer, under which request, with which versions."""
        self.requests = 0
        self.marked = 0
        self.bridge_heard_at = -math.inf
        self.read_later: tuple[float, ReadFeed] | None = None
        """When to read the feed by ourselves, unless the gap is closed by then."""
        self.read_up_to = 0
        """Before this offset we wait for the bridge no longer."""
        self._effects: list[HostEffect] = []

    def next_deadline(self) -> float | None:
        deadline = self.matcher.next_deadline()
        if self.read_later is not None and (deadline is None or self.read_later[0] < deadline):
            return self.read_later[0]
        return deadline

    def step(self, event: HostEvent, now: float) -> list[HostEffect]:
        kind = type(event)
        if kind is FromLink:
            self._from_link(event, now)  # type: ignore[arg-type]
        elif kind is Appended:
            self._appended(event, now)  # type: ignore[arg-type]
        else:
            self._other(event, now)
        effects, self._effects = self._effects, []
        return effects

    def _other(self, event: HostEvent, now: float) -> None:
        match event:
            case Tick():
                self._tick(now)
            case NotAppended(requests=requests, error=error):
                self._refuse(requests, error)
            case Persisted(id=id) | Loaded(id=id) | Failed(id=id):
                own_event = msgspec.structs.replace(event, id=id // _ASKERS)
                self._stored(id % _ASKERS, own_event, now)
            case FeedEnd():
                self._feed_ends(event, now)
            case Apply() | FeedMissing():
                self._match(event, now)
                if self.matcher.applied >= self.read_up_to:
                    self.read_up_to = 0
            case LinkDown():
                self._match(event, now)
                self._keep_rows(event, now)
            case _:
                raise TypeError(f"not for a shard: {event!r}")

    def _from_link(self, event: FromLink, now: float) -> None:
        message = event.message
        kind = type(message)
        if kind is PublishUpdates:
            self._publish(event.link, message, now)  # type: ignore[arg-type]
        elif kind is Offer:
            self._offered(event.link, message, now)  # type: ignore[arg-type]
        elif kind in ROW_MESSAGES:
            self._keep_rows(event, now)
        else:
            self._match(event, now)

    def _tick(self, now: float) -> None:
        if self.read_later is not None and now >= self.read_later[0]:
            (_, asked), self.read_later = self.read_later, None
            if self.matcher.applied == asked.after:  # else the gap is closed, or a part of it
                self.read_up_to = self.matcher.feed_last
                self._effects.append(asked)
        self._match(Tick(), now)

    # Publishing.

    def _publish(self, link: Handle, message: PublishUpdates, now: float) -> None:
        updates: Sequence[Update] = message.updates
        versions = [update.version for update in updates]
        if NO_VERSION in versions:
            taken = self.assigned.take(versions.count(NO_VERSION), now)
            if taken is None:
                self.assigned.waiting.append((link, message))
                self._raise_limit(now)
                return
            fresh = iter(taken)
            updates = [
                msgspec.structs.replace(update, version=next(fresh))
                if update.version == NO_VERSION
                else update
                for update in updates
            ]
            versions = [update.version for update in updates]
        self.requests += 1
        self.publishes[self.requests] = link, message.request, versions
        self._effects.append(Append(self.requests, updates))

    def _raise_limit(self, now: float) -> None:
        limit = self.assigned.raise_limit(now)
        if limit is not None:
            self._effects.append(Persist(_ASSIGNED, [PutAssigned(limit)]))

    def _limit_raised(self, event: Event, now: float) -> None:
        waiting = self.assigned.raised(durable=type(event) is Persisted)
        for link, message in waiting:
            if type(event) is Persisted:
                self._publish(link, message, now)
            else:
                self._answer_no(link, message.request, Unavailable("the store does not answer"))

    def _appended(self, event: Appended, now: float) -> None:
        self.feed_end = event.last
        self.observer.appended(event.entries)
        first = event.first
        for fast, run in _runs(event.entries, self.fast_path):
            if fast:
                self._apply(first, run, now)
            first = run[-1][0] + 1
        for request in event.requests:
            link, number, versions = self.publishes.pop(request)
            self._effects.append(SendLink(link, UpdatesPublished(number, versions)))

    def _feed_ends(self, event: FeedEnd, now: float) -> None:
        """It was looked at before we hear of it, and more may have been appended meanwhile."""
        if event.lineage != self.lineage or event.last > self.feed_end:
            self.lineage, self.feed_end = event.lineage, event.last
        self._match(FeedEnd(event.lineage, self.feed_end, event.bits), now)
        self._move_marker()

    def _apply(self, first: int, entries: Sequence[tuple[int, Update]], now: float) -> None:
        for i in range(0, len(entries), SLICE):
            part = entries[i : i + SLICE]
            self._match(Apply(self.lineage, first, part[-1][0], part), now)
            first = part[-1][0] + 1

    def _refuse(self, requests: Iterable[int], error: RoskvaError) -> None:
        for request in requests:
            link, number, _ = self.publishes.pop(request)
            self._answer_no(link, number, error)

    def _answer_no(self, link: Handle, request: int, error: RoskvaError) -> None:
        self._effects.append(SendLink(link, NotPublished(request, error.code, str(error))))

    # The bridge.

    def _offered(self, link: Handle, offer: Offer, now: float) -> None:
        """A range of the feed from outside: answered when it is durable."""
        self.bridge_heard_at = now
        if not offer.updates:
            matcher = self.matcher
            answer = Taken(offer.request, matcher.lineage, matcher.durable)
            self._effects.append(SendLink(link, answer))
            return
        self.observer.offered(offer.updates)
        request = link, offer.request
        apply = Apply(offer.lineage, offer.first, offer.last, offer.updates, request)
        self._match(apply, now)

    # The machines, and what they ask for.

    def _match(self, event: Event, now: float) -> None:
        for effect in self.matcher.step(event, now):
            kind = type(effect)
            if kind is SendLink:
                if type(effect.message) is Pushes:  # type: ignore[union-attr]
                    self.observer.matched(effect.message.pushes)  # type: ignore[union-attr]
                self._effects.append(effect)
            elif kind is ReadFeed:
                self._read_feed(effect, now)  # type: ignore[arg-type]
            elif kind is Applied:
                link, request = effect.request  # type: ignore[union-attr, misc]
                taken = Taken(request, effect.lineage, effect.offset)  # type: ignore[union-attr]
                self._effects.append(SendLink(link, taken))
            else:
                self._ask(effect, _MATCHER)

    def _keep_rows(self, event: Event, now: float) -> None:
        for effect in self.rows.step(event, now):
            self._ask(effect, _ROWS)

    def _ask(self, effect: Effect, asker: int) -> None:
        match effect:
            case Persist(id=id) | LoadObjects(id=id) | LoadClient(id=id):
                effect = msgspec.structs.replace(effect, id=id * _ASKERS + asker)
        self._effects.append(effect)

    def _stored(self, asker: int, event: Event, now: float) -> None:
        if asker == _MATCHER:
            self._match(event, now)
        elif asker == _ROWS:
            self._keep_rows(event, now)
        else:
            self._limit_raised(event, now)

    def _read_feed(self, asked: ReadFeed, now: float) -> None:
        """A bridge that is at work closes gaps as well; but nobody else helps us to catch up. Asked
        again for the same, the patience runs on. When it is over, the gap is read to its end."""
        bridged = self.matcher.caught_up and now < self.bridge_heard_at + _BRIDGE_GONE_S
        if bridged and asked.after >= self.read_up_to:
            if self.read_later is None or self.read_later[1] != asked:
                self.read_later = now + BRIDGE_PATIENCE_S, asked
        else:
            self.read_later = None
            self._effects.append(asked)

    def _move_marker(self) -> None:
        durable = self.matcher.durable
        if durable != self.marked and self.matcher.lineage == self.lineage:
            self.marked = durable
            self._effects.append(SetMarker(self.lineage, durable))


class AssignedVersions:
    def __init__(self, limit: int, wall_us: int) -> None:
        """`limit`: found on disk. `wall_us`: what the wall's clock shows when ours begins."""
        self.wall_us = wall_us
        self.last = limit
        self.limit = limit
        self.raising: int | None = None
        self.waiting: deque[tuple[Handle, PublishUpdates]] = deque()
        """For a higher limit."""

    def take(self, count: int, now: float) -> range | None:
        """So many versions; None if the limit has to be raised first, or others wait for that."""
        first = self._first(now)
        if self.waiting or first + count > self.limit:
            return None
        self.last = first + count - 1
        return range(first, first + count)

    def raise_limit(self, now: float) -> int | None:
        """To what; None: it is being raised already."""
        if self.raising is not None:
            return None
        wanted = sum(len(message.updates) for _, message in self.waiting)
        self.raising = self._first(now) + wanted + _AHEAD_US
        return self.raising

    def raised(self, durable: bool) -> list[tuple[Handle, PublishUpdates]]:
        """Whoever waited for it."""
        assert self.raising is not None
        if durable:
            self.limit = self.raising
        self.raising = None
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting

    def _first(self, now: float) -> int:
        return max(self.wall_us + int(now * 1e6), self.last + 1)


def _runs(
    entries: Sequence[tuple[int, Update]], fast_path: Callable[[str], bool]
) -> list[tuple[bool, Sequence[tuple[int, Update]]]]:
    """Neighbours that are all on the fast path, or all not."""
    apps = {update.object.partition("/")[0] for _, update in entries}
    if all(map(fast_path, apps)):
        return [(True, entries)]

    def is_fast(entry: tuple[int, Update]) -> bool:
        return fast_path(entry[1].object.partition("/")[0])

    return [(fast, list(run)) for fast, run in groupby(entries, is_fast)]
