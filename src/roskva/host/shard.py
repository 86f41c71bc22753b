"""One shard: its matcher and its client rows, over a feed and a store.

**The order of an update.** A publish is appended to the feed. When its group is durable, the group
is *applied*: the matcher takes it, and what it says to registrars leaves. Then the publishers are
*answered*. So whoever has been told yes reads what it has published, and clients do not wait for
the answers to a thousand publishers. What is applied is written to the store later: the feed has
it. The marker, up to where the feed may be cut off, follows what the store has (`Matcher`).

**Ways to the matcher.** The *fast path* hands over what was appended just now. An app may be left
off it: its updates are a gap then, which the bridge closes from outside (`Offer`), or we do, by
reading the feed. Every gap is left to a bridge that is alive: heard in the last 10 seconds, or
perhaps about to be, because we have just started. One
that asks where we stand and brings nothing is no better than none: what it has not brought after
10 seconds we read, and go on reading until it brings something, or for a minute. So what is in the
feed is applied within 20 seconds, whatever a bridge does. The observer is told by which way news
came, and whenever we begin or cease to read for lack of a bridge.

**A bridge need not look.** It asks to be told of a gap (`AwaitGap`), hears of it as soon as
something is left to it, and asks again, from where it has been. While the fast path brings all, it
hears nothing, and has nothing to do.

**Versions that the shard assigns** are the time in microseconds, and always above the last one. A
clock may stand an hour back after a restart, or on the node that takes over. So a limit is put on
disk ahead of what is assigned, and the next start begins above it.

**The reset of an app** is published like an update, and answered when it is durable. Whoever asks
for it says which generation is next, so that it can ask all shards for the same one, and again:
what the feed has is not appended twice.

**The app of a change source** is reset under the source's ordinals, and its versions carry them. A
version of an ordinal below the last that was begun is refused for good: a flow that is late would
tell as the newest what may not be in the database any more.

**A new epoch** is a record in the feed. A matcher that has lost something asks for one, and is told
if it could not be appended. Publishing goes on meanwhile, into the same feed.

**What nobody needs** is looked for a page of the store at a time, by the collector, and dropped by
the two machines that own the rows.

Two machines, the assigned versions and the collector share one store: their requests to it are told
apart by the remainder of the number.
"""

import math
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from itertools import groupby
from typing import Final

import msgspec

from roskva.core.collector import BY_DEFAULT, Collector, CollectorConfig
from roskva.core.effects import (
    Applied,
    Apply,
    BeginEpoch,
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
    LoadPage,
    Page,
    Persist,
    Persisted,
    PutAssigned,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.expiry import KeepOf, keep_by_default
from roskva.core.matcher import Matcher, MatcherConfig, parts
from roskva.core.rows import Rows
from roskva.core.shares import SHARE_BY_DEFAULT, MaxShare
from roskva.errors import LimitExceeded, RoskvaError, Unavailable
from roskva.host.batching import Batching, BatchMs
from roskva.host.effects import Append, Appended, NotAppended, SetMarker
from roskva.host.observer import Observer, Way
from roskva.model import (
    MAX_RESET_APPS,
    NO_EPOCH,
    NO_GENERATION,
    NO_VERSION,
    Update,
    app_key,
    app_of,
    epoch_record,
    ordinal_of,
)
from roskva.wire.links import (
    MAX_PUSHES,
    AwaitGap,
    CloseSession,
    Forget,
    Gap,
    LinkHello,
    NotPublished,
    Offer,
    OpenSession,
    PublishUpdates,
    Push,
    Pushes,
    ResetApp,
    Taken,
    UpdatesPublished,
    Versions,
    WriteRow,
    WriteRows,
)

ROW_MESSAGES: Final = (OpenSession, WriteRow, WriteRows, CloseSession, Forget)
SLICE: Final = 1000
"""Updates applied in one step of the matcher."""
BACKLOG: Final = 64
"""Updates being published at once with which a shard counts as behind."""
_BRIDGE_GONE_S: Final = 10.0
"""A bridge that was not heard for so long is none."""
_GAP_PATIENCE_S: Final = 10.0
"""So long a gap is left to a bridge that is alive."""
_DOUBTED_S: Final = 60.0
"""A bridge that has failed us is given another gap after that, if it has brought nothing since."""
GAP_CLOSED_S: Final = 2 * _GAP_PATIENCE_S
"""At the latest, by the bridge or without it: a gap may grow while the bridge closes it, and what
it has grown by then is waited for once more."""
_AHEAD_US: Final = 60 * 10**6
"""Of versions that may be assigned before a higher limit is on disk."""

_MATCHER, _ROWS, _ASSIGNED, _COLLECTOR, _ASKERS = range(5)

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
        absent: int = NO_EPOCH,
        fast_path: Callable[[str], bool] = every_app,
        source_apps: Container[str] = (),
        batch_ms: BatchMs | None = None,
        keep_of: KeepOf = keep_by_default,
        collecting: CollectorConfig = BY_DEFAULT,
        max_share: MaxShare = SHARE_BY_DEFAULT,
        observer: Observer | None = None,
    ) -> None:
        """`boot` is above that of every earlier start, and every version assigned before is below
        `assigned`. `absent`: the epoch of objects without a row, as it was found on disk.
        `source_apps`: those that have a change source."""
        self.matcher = Matcher(config, stored, absent, keep_of, boot)
        self.rows = Rows(boot, wall_us, now, keep_of, collecting.lost_grace, max_share)
        self.collector = Collector(collecting, self.rows, now)
        self.assigned = AssignedVersions(assigned, wall_us - int(now * 1e6))
        self.observer = observer or Observer()
        self.fast_path = fast_path
        self.source_apps = source_apps
        self.batching = Batching(batch_ms)
        self.lineage = stored.lineage
        """Of the feed, once its end has been told."""
        self.feed_end = 0
        self.publishes: dict[int, tuple[Handle, int, list[int]]] = {}
        """What is being appended: whom to answer, under which request, with which versions."""
        self.beginning: dict[int, int] = {}
        """Records of epochs that are being appended: which request of the matcher's each is."""
        self.resetting: dict[int, str] = {}
        """The apps whose resets are being appended, by request."""
        self.generations: dict[str, int] = {}
        """Of apps reset since the start, as the feed has them; the matcher may be behind."""
        self.requests = 0
        self.marked = 0
        self.bridge_heard_at = now
        self.bridge_failed_at = -math.inf
        """When it had not brought what was left to it, if it has brought nothing since."""
        self.read_later: tuple[float, int] | None = None
        """When to read the feed by ourselves, unless it is applied up to this offset by then."""
        self.read_up_to = 0
        """Before this offset we wait for the bridge no longer."""
        self.reads_alone = False
        """Gaps are closed by us: there is no bridge to leave them to."""
        self.gap_awaited: dict[Handle, AwaitGap] = {}
        """By links of bridges."""
        self.accounted = 0
        """What is up to here was applied, left to the bridge, or noticed to be missing."""
        self._effects: list[HostEffect] = []

    def next_deadline(self) -> float:
        deadline = self.matcher.next_deadline()
        collect_at = self.collector.next_deadline()
        if deadline is None or collect_at < deadline:
            deadline = collect_at
        if self.read_later is not None and (deadline is None or self.read_later[0] < deadline):
            deadline = self.read_later[0]
        if self.batching.windows:
            closes_at = self.batching.next_deadline()
            return closes_at if deadline is None else min(closes_at, deadline)
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
                self._refuse(requests, error, now)
            case Persisted(id=id) | Loaded(id=id) | Failed(id=id):
                own_event = msgspec.structs.replace(event, id=id // _ASKERS)
                self._stored(id % _ASKERS, own_event, now)
            case FeedEnd():
                self._feed_ends(event, now)
            case Apply():
                self._match(event, now, "own" if self.matcher.caught_up else "start")
                if self.matcher.applied >= self.read_up_to:
                    self.read_up_to = 0
            case FeedMissing():
                self._match(event, now)
            case LinkDown(link=link):
                self.batching.take(link)
                self.gap_awaited.pop(link, None)
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
        elif kind is AwaitGap:
            self._heard_bridge(now)
            self.gap_awaited[event.link] = message  # type: ignore[assignment]
            self._tell_of_gap()
        elif kind is ResetApp:
            self._reset_app(event.link, message, now)  # type: ignore[arg-type]
        elif kind in ROW_MESSAGES:
            self._keep_rows(event, now)
        else:
            if kind is LinkHello:
                self.rows.note_sessions_unknown(now)
            self._match(event, now)

    def _tick(self, now: float) -> None:
        for link, pushes in self.batching.closed(now):
            self._push(link, pushes)
        matcher = self.matcher
        overdue = self.read_later is not None and now >= self.read_later[0]
        if self.read_later is not None and overdue:
            _, to_bring = self.read_later
            self.read_later = None
            if matcher.applied < min(to_bring, matcher.feed_last):
                self.bridge_failed_at = now
                self.read_up_to = matcher.feed_last
        self._match(Tick(), now)
        asks = any(type(effect) is ReadFeed for effect in self._effects)
        if overdue and not asks and matcher.applied < matcher.feed_last:
            self._read_feed(ReadFeed(matcher.lineage, matcher.applied), now)
        for effect in self.collector.tick(now):
            self.rows.watch_page()
            self.matcher.watch_page()
            self._ask(effect, _COLLECTOR)

    # Publishing.

    def _publish(self, link: Handle, message: PublishUpdates, now: float) -> None:
        updates: Sequence[Update] = message.updates
        if not self.matcher.caught_up and any(map(self._is_of_source, updates)):
            # What the feed has may be a reset that makes them late.
            error = Unavailable("the shard has not read its feed yet")
            self._answer_no(link, message.request, error)
            return
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
        if self.source_apps:
            versions = [NO_VERSION if self._is_late(u) else u.version for u in updates]
            updates = [u for u, v in zip(updates, versions, strict=True) if v != NO_VERSION]
            if not updates:
                self._effects.append(SendLink(link, UpdatesPublished(message.request, versions)))
                return
        self.requests += 1
        self.publishes[self.requests] = link, message.request, versions
        self._effects.append(Append(self.requests, updates))

    def _is_of_source(self, update: Update) -> bool:
        return app_of(update.object) in self.source_apps

    def _is_late(self, update: Update) -> bool:
        """Resets that are being appended count: what comes now stands behind them."""
        if not self._is_of_source(update):
            return False
        app, ordinal = app_of(update.object), ordinal_of(update.version)
        appending = (r for r, resetting in self.resetting.items() if resetting == app)
        return ordinal < self.generation_of(app) or any(
            ordinal < self.publishes[reset][2][0] for reset in appending
        )

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
            self._account(first, run[-1][0])
            if fast:
                self._apply(first, run, now)
            first = run[-1][0] + 1
        self._tell_of_gap()
        for request in event.requests:
            if self.beginning.pop(request, None) is not None:
                continue  # it is read back
            link, number, versions = self.publishes.pop(request)
            if request in self.resetting:
                app = self.resetting.pop(request)
                self.generations[app] = max(versions[0], self.generation_of(app))
            self._effects.append(SendLink(link, UpdatesPublished(number, versions)))

    def _feed_ends(self, event: FeedEnd, now: float) -> None:
        """It was looked at before we hear of it, and more may have been appended meanwhile."""
        if event.lineage != self.lineage:
            self.read_later, self.read_up_to, self.accounted = None, 0, event.last
        self._account(event.last + 1, event.last)
        if event.lineage != self.lineage or event.last > self.feed_end:
            self.lineage, self.feed_end = event.lineage, event.last
        self._match(FeedEnd(event.lineage, self.feed_end, event.bits), now)
        self._move_marker()

    def _apply(self, first: int, entries: Sequence[tuple[int, Update]], now: float) -> None:
        for i in range(0, len(entries), SLICE):
            part = entries[i : i + SLICE]
            self._match(Apply(self.lineage, first, part[-1][0], part), now, "fast")
            first = part[-1][0] + 1

    def _refuse(self, requests: Iterable[int], error: RoskvaError, now: float) -> None:
        for request in requests:
            if (asked := self.beginning.pop(request, None)) is not None:
                self._match(Failed(asked), now)
                continue
            link, number, _ = self.publishes.pop(request)
            self.resetting.pop(request, None)
            self._answer_no(link, number, error)

    def _answer_no(self, link: Handle, request: int, error: RoskvaError) -> None:
        self._effects.append(SendLink(link, NotPublished(request, error.code, str(error))))

    # Resetting an app.

    def generation_of(self, app: str) -> int:
        """As the feed has it: of what it held at the start, once the matcher has caught up."""
        known = self.matcher.generations.get(app, NO_GENERATION)
        return max(known, self.generations.get(app, NO_GENERATION))

    def _reset_app(self, link: Handle, message: ResetApp, now: float) -> None:
        app, known = message.app, self.generation_of(message.app)
        error: RoskvaError
        if not self.matcher.caught_up:
            error = Unavailable("the shard has not read its feed yet")
            self._answer_no(link, message.request, error)
        elif message.generation <= known:
            self._effects.append(SendLink(link, UpdatesPublished(message.request, [known])))
        elif not known and len(self.matcher.generations) >= MAX_RESET_APPS:
            error = LimitExceeded(f"{MAX_RESET_APPS} other apps were reset: a shard keeps no more")
            self._answer_no(link, message.request, error)
        else:
            wall_us = self._wall_us(now)
            record = Update(app_key(app), message.generation, published_at=wall_us, reset=True)
            self.requests += 1
            self.resetting[self.requests] = app
            self.publishes[self.requests] = link, message.request, [message.generation]
            self._effects.append(Append(self.requests, [record]))

    # The epoch.

    def _begin_epoch(self, asked: BeginEpoch, now: float) -> None:
        record = epoch_record(asked.epoch, asked.loss, self._wall_us(now))
        self.requests += 1
        self.beginning[self.requests] = asked.id
        self._effects.append(Append(self.requests, [record]))

    def _wall_us(self, now: float) -> int:
        return self.assigned.wall_us + int(now * 1e6)

    # The bridge.

    def _offered(self, link: Handle, offer: Offer, now: float) -> None:
        """A range of the feed from outside: answered when it is durable."""
        if offer.updates:
            self.bridge_failed_at = -math.inf
        self._heard_bridge(now)
        if not offer.updates:
            matcher = self.matcher
            answer = Taken(offer.request, matcher.lineage, matcher.applied)
            self._effects.append(SendLink(link, answer))
            return
        self.observer.offered(offer.updates)
        request = link, offer.request
        apply = Apply(offer.lineage, offer.first, offer.last, offer.updates, request)
        self._match(apply, now, "bridge")

    def _heard_bridge(self, now: float) -> None:
        self.bridge_heard_at = now
        if self.reads_alone:
            self._note_bridge(now)

    def _tell_of_gap(self) -> None:
        """Whoever waits for one; also while we read alone, so that a bridge can show that it is
        back."""
        applied, last = self.matcher.applied, self.feed_end
        if not self.gap_awaited or applied >= last or not self.matcher.caught_up:
            return
        for link, asked in list(self.gap_awaited.items()):
            if asked.lineage != self.lineage or asked.after < last:
                del self.gap_awaited[link]
                gap = Gap(asked.request, asked.shard, applied, last)
                self._effects.append(SendLink(link, gap))

    def _account(self, first: int, last: int) -> None:
        """`first … last` comes, or is left to the bridge. Is something missing before it that was
        neither? Until we have caught up we read what there is."""
        known = max(self.matcher.applied, self.accounted)
        if first > known + 1 and self.matcher.caught_up:
            self.observer.missed(self.matcher.config.shard)
        self.accounted = max(known, last)

    # The machines, and what they ask for.

    def _match(self, event: Event, now: float, way: Way | None = None) -> None:
        """`way`: by which news came, if it is a range of the feed."""
        counters = self.matcher.counters
        before = counters["applied"]
        effects = self.matcher.step(event, now)
        if way is not None and (newer := counters["applied"] - before):
            self.observer.applied(self.matcher.config.shard, way, newer)
        for effect in effects:
            kind = type(effect)
            if kind is SendLink:
                self._say(effect, now)  # type: ignore[arg-type]
            elif kind is ReadFeed:
                self._read_feed(effect, now)  # type: ignore[arg-type]
            elif kind is BeginEpoch:
                self._begin_epoch(effect, now)  # type: ignore[arg-type]
            elif kind is Applied:
                link, request = effect.request  # type: ignore[union-attr, misc]
                taken = Taken(request, effect.lineage, effect.offset)  # type: ignore[union-attr]
                self._effects.append(SendLink(link, taken))
            else:
                self._ask(effect, _MATCHER)

    def _say(self, effect: SendLink, now: float) -> None:
        message, link = effect.message, effect.link
        kind = type(message)
        if kind is Pushes:
            pushes: Sequence[Push] = message.pushes  # type: ignore[union-attr]
            if self.batching.batch_ms is not None:
                under_way = sum(len(versions) for _, _, versions in self.publishes.values())
                self._push(link, self.batching.hold(link, pushes, now, under_way >= BACKLOG))
                return
            self.observer.matched(pushes)
        elif kind is Versions and self.batching.windows:
            self._push(link, self.batching.take(link))
        self._effects.append(effect)

    def _push(self, link: Handle, pushes: Sequence[Push]) -> None:
        for part in parts(pushes, MAX_PUSHES):
            self.observer.matched(part)
            self._effects.append(SendLink(link, Pushes(part)))

    def _keep_rows(self, event: Event, now: float) -> None:
        for effect in self.rows.step(event, now):
            self._ask(effect, _ROWS)

    def _ask(self, effect: Effect, asker: int) -> None:
        match effect:
            case Persist(id=id) | LoadObjects(id=id) | LoadClient(id=id) | LoadPage(id=id):
                effect = msgspec.structs.replace(effect, id=id * _ASKERS + asker)
        self._effects.append(effect)

    def _stored(self, asker: int, event: Event, now: float) -> None:
        if asker == _MATCHER:
            self._match(event, now)
        elif asker == _ROWS:
            self._keep_rows(event, now)
        elif asker == _ASSIGNED:
            self._limit_raised(event, now)
        else:
            self._collect(event, now)
        if self.collector.waits and not self.rows.collecting and not self.matcher.dropping:
            self.collector.done(now)

    def _collect(self, event: Event, now: float) -> None:
        assert isinstance(event, Loaded | Failed)
        if not self.collector.asked_for(event.id):
            return
        page = event.rows if isinstance(event, Loaded) else None
        assert page is None or isinstance(page, Page)
        if page is not None:
            self._keep_rows(page, now)
            for effect in self.matcher.collect(page, self.rows.wall(now)):
                self._ask(effect, _MATCHER)
        self.collector.read(page)

    def _read_feed(self, asked: ReadFeed, now: float) -> None:
        """A bridge that is alive closes gaps; but nobody else helps us to catch up. What it has not
        closed in time is read to its end, whoever brings the rest of it."""
        matcher = self.matcher
        if matcher.caught_up:
            self._note_bridge(now)
        if matcher.caught_up and not self.reads_alone and asked.after >= self.read_up_to:
            if self.read_later is None or asked.after >= self.read_later[1]:
                self.read_later = now + _GAP_PATIENCE_S, matcher.feed_last
            self._tell_of_gap()
        else:
            self.read_later = None
            self._effects.append(asked)

    def _note_bridge(self, now: float) -> None:
        gone = now >= self.bridge_heard_at + _BRIDGE_GONE_S
        alone = gone or now < self.bridge_failed_at + _DOUBTED_S
        if alone != self.reads_alone:
            self.reads_alone = alone
            self.observer.reads_alone(self.matcher.config.shard, alone)

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
