"""The matcher of one shard: the latest version of every object, and who wants to hear of it.

**Applying.** `Apply` hands over a range of the feed, whether it comes from the fast path, from
catch-up or from the bridge. Offsets at or below `applied` are known and skipped. A range that
starts at `applied` + 1 or before is merged, object by object, by the higher version, and `applied`
moves to its end. A range that starts beyond leaves a gap: its versions are merged, for a newer
version is never wrong, but `applied` stays, and the feed is read from there. So whatever came early
comes again in its order. A reset that came early has voided what comes then from before it.

**Durability.** Versions and the marker that covers them are persisted in one batch, one batch at a
time; what is applied meanwhile joins the next. Nothing waits for it as a rule, for the feed holds
the update: so it is done a little later, when those who are to be told have been told. Where an
`Apply` is to be answered when the marker on disk has passed it, it is done at once.

**Loss.** When the range after `applied` cannot be had (retention, damage, another lineage, a feed
that ends before `applied`), a new epoch has to begin, for everybody who reads this feed. What was
known before is a lower bound from then on, and *unknown* to everybody, until an object's next
update: among what was lost may be a version that nobody was told. So an epoch is a **record** in
the feed, and names its cause: up to where something is lost. Whoever notices a loss *falls silent*.
It drops its links, so that registrars hold nothing of it for current, and says nothing over new
ones; it goes on reading, and if there is no record for its loss up to the feed's end, it has one
appended (`BeginEpoch`) and goes on when it has read it back. A record counts in its order only,
and only if it answers for more than was answered for before (`excused`): of two for one loss the
first. So all who speak are in the same epoch wherever they have read the same.

What comes after the loss is complete. So it is taken under the epoch that is *proposed*, and is
known as soon as that begins; if another's record was first, it is a lower bound like the rest.
The shard's row says whether its epoch is proposed only: whoever starts from it is silent, too. So
is a shard that starts from nothing: the first record of a feed is its first epoch.

**Reset of an app.** A record of its own in the feed brings the next *generation* of the app; one
that is not above what is known changes nothing, so it may come twice. What was applied under an
older one is void: objects keep the generation of their version, in memory and on disk, and it is
compared when they are touched. So nothing has to be gone through but what registrars are told, a
slice at a time. It counts in its order only: beyond a gap it is left out, and comes again.

**Starting.** A matcher first catches up with what the feed held when it started. Until then it
records interest and says nothing: what it has on disk may be older than what clients were told.

**Interest.** Only objects that some registrar wants are kept in memory. Interest is recorded first,
then the row is loaded; updates that arrive meanwhile are merged into what the load brings, and rows
not yet flushed lie over it.

**Absence.** An object without a row stands at no version, in an epoch of its own. As long as none
was ever dropped it is the shard's. Rows are dropped of objects that nobody online cares about and
nobody has updated for long (`expiry.py`), a `Page` at a time, and each time that epoch is drawn
anew: so whoever acked anything of such an object, in whichever epoch, is told *unknown*, once, and
its next version is compared with what was acked before.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar

import msgspec

from roskva.core.digest import DigestSum, hash_of
from roskva.core.effects import (
    Applied,
    Apply,
    BeginEpoch,
    DropLink,
    DropObject,
    Effect,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromLink,
    Handle,
    LinkDown,
    Loaded,
    LoadObjects,
    ObjectRow,
    Page,
    Persist,
    Persisted,
    PutAbsent,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.expiry import KeepOf, keep_by_default, object_expires_at
from roskva.core.objects import ObjectEntry, Unflushed
from roskva.model import (
    NO_EPOCH,
    NO_GENERATION,
    NO_VERSION,
    WHOLE_SHARD,
    Key,
    Loss,
    Update,
    app_of,
    is_app,
    mark_under,
    object_epoch,
    shard_epoch,
)
from roskva.wire.links import (
    DIGEST_KIND,
    LINK_PROTOCOL,
    MAX_LINK_PARTS,
    MAX_PUSHES,
    CurrentVersion,
    Interest,
    LinkHello,
    LinkRefused,
    Ping,
    Pong,
    Push,
    Pushes,
    Versions,
    Welcome,
)

S = TypeVar("S", CurrentVersion, Push)


class MatcherConfig(msgspec.Struct, frozen=True):
    shard: int
    shards: int
    link_timeout: float = 3.0
    """Silence that closes a link, in seconds."""
    read_timeout: float = 5.0
    """A read of the feed not answered by then is asked for again."""
    retry_delay: float = 0.2
    """Before a load or a write that failed is tried again."""
    flush_delay: float = 0.0
    """Before versions are persisted that nobody waits for."""
    flush_updates: int = 1000
    """With so many, they are persisted without delay."""


def from_nothing(lineage: int, bits: int) -> PutShard:
    """What a shard starts from that has no row. `bits`: random, to propose an epoch with."""
    loss = Loss(lineage, _START, "begun")
    return PutShard(shard_epoch(bits), lineage, _START, loss=loss)


class WatchingRegistrar:
    __slots__ = ("digest", "heard_at", "objects")

    def __init__(self, now: float) -> None:
        self.objects: dict[Key, None] = {}
        self.digest = DigestSum()
        self.heard_at = now


COUNTERS: Final = ("applied", "old", "pushes", "early", "epochs", "dropped")
_START: Final = 0
"""Of a feed: nothing of it was seen."""
_REQUESTED: Final = -1
_ANSWER_ROOM: Final = 1 << 20
"""Bytes of payload in one message; a link frame holds a few times that."""


class Matcher:
    def __init__(
        self,
        config: MatcherConfig,
        stored: PutShard,
        absent: int = NO_EPOCH,
        keep_of: KeepOf = keep_by_default,
        owner: int = 0,
    ) -> None:
        """`absent`: the epoch of objects without a row, if it is not the shard's. `owner`: above
        that of every earlier owner of this shard; registrars believe none below."""
        self.config = config
        self.owner = owner
        self.keep_of = keep_of
        self.epoch = stored.epoch
        self.absent = absent
        self.written: list[Unflushed] | None = None
        """What went to disk since the page was asked for that is being read."""
        self.dropping: dict[int, int] = {}
        """How many objects, by what drops them."""
        self.lineage = stored.lineage
        self.applied = stored.applied
        self.generations = dict(stored.generations)
        """Of the apps that were reset."""
        self.excused, self.loss = stored.excused, stored.loss
        self.asked = 0
        """For the record of an epoch: the number of the request."""
        self.durable = stored.applied
        self.objects: dict[Key, ObjectEntry] = {}
        self.links: dict[Handle, WatchingRegistrar] = {}
        self.unflushed = Unflushed()
        self.shard_row_due = False
        self.flush_at: float | None = None
        self.flushing: Unflushed | None = None
        self.flush_id = 0
        self.flush_covers, self.flush_epoch = stored.applied, stored.epoch
        self.retry_at: float | None = None
        self.unanswered: list[tuple[Handle, int]] = []
        self.reading_since: float | None = None
        self.feed_last = stored.applied
        self.catch_up_to: int | None = None
        self.resets_ahead: dict[Key, int] = {}
        """Offsets beyond `applied` of resets that were merged already."""
        self.caught_up = False
        self.failed_loads: list[Key] = []
        self.announcing: dict[Key, None] = {}
        self.announced_apps: set[str] = set()
        """If there are any, of `announcing` only their objects."""
        self.ids = 0
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._effects: list[Effect] = []

    def next_deadline(self) -> float | None:
        deadlines = []
        if self.announcing and self.caught_up:
            return 0.0
        if self.links:
            heard_at = min(link.heard_at for link in self.links.values())
            deadlines.append(heard_at + self.config.link_timeout)
        if self.retry_at is not None:
            deadlines.append(self.retry_at)
        elif self.flush_at is not None and self.flushing is None:
            deadlines.append(self.flush_at)
        if self.reading_since is not None:
            deadlines.append(self.reading_since + self.config.read_timeout)
        return min(deadlines) if deadlines else None

    def step(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Apply():
                self._apply(event, now)
            case FromLink():
                self._from_link(event, now)
            case Persisted():
                self._persisted(event.id)
            case Loaded():
                self._loaded(event)
            case Failed():
                self._failed(event.id, now)
            case FeedEnd():
                self._feed_end(event, now)
            case FeedMissing():
                self._feed_missing(event, now)
            case LinkDown():
                self._link_down(event.link)
            case Tick():
                self._tick(now)
            case _:
                raise TypeError(f"not for a matcher: {event!r}")
        if not self.caught_up:
            self._check_caught_up()
        self._flush(now)
        effects, self._effects = self._effects, []
        return effects

    # The feed.

    def _apply(self, batch: Apply, now: float) -> None:
        if batch.lineage != self.lineage:
            self._answer_with_position(batch.request)
            return
        in_order = batch.first <= self.applied + 1
        if batch.last > self.applied:
            self._merge(batch, in_order)
        if in_order:
            self._advance(max(self.applied, batch.last))
            self._answer_when_durable(batch.request, batch.last)
            self.reading_since = None
            if self.applied < self.feed_last:
                self._read_feed(now)
        else:
            self.counters["early"] += 1
            self.feed_last = max(self.feed_last, batch.last)
            self._answer_with_position(batch.request)
            if self.reading_since is None:
                self._read_feed(now)

    def _advance(self, applied: int) -> None:
        self.applied = applied
        if self.resets_ahead:
            ahead = self.resets_ahead.items()
            self.resets_ahead = {key: offset for key, offset in ahead if offset > applied}

    def _merge(self, batch: Apply, in_order: bool) -> None:
        applied, objects, unflushed = self.applied, self.objects, self.unflushed
        resets_ahead = self.resets_ahead
        changed: dict[Key, ObjectEntry] = {}
        came = newer = 0
        for offset, update in batch.updates:
            if offset <= applied:
                continue
            came += 1
            key = update.object
            if resets_ahead and offset <= resets_ahead.get(key, 0):
                continue
            if key == WHOLE_SHARD:
                came -= 1
                if in_order:
                    self._begin_epoch(update)
                continue
            if update.reset and is_app(key):
                newer += in_order and self._reset_app(app_of(key), update.version)
                came -= not in_order  # it comes again, in its turn
                continue
            entry = objects.get(key)
            if update.reset:
                if not in_order:
                    resets_ahead[key] = offset
                newer += 1
                unflushed.forget(key, update.version)
                if entry is not None:
                    entry.forget(update.version)
                    changed[key] = entry
                continue
            generation = self.generation_of(key)
            if entry is not None:
                if not entry.merge(update, self.epoch, generation):
                    continue
                changed[key] = entry
            if unflushed.merge(update, self.epoch, generation):
                newer += 1
        self.counters["applied"] += newer
        self.counters["old"] += came - newer
        if self.caught_up:
            self._tell(changed, in_order)

    def _reset_app(self, app: str, generation: int) -> bool:
        if generation <= self.generations.get(app, NO_GENERATION):
            return False
        self.generations[app] = generation
        self.shard_row_due = True
        if not self.announcing:
            self.announced_apps = {app}
        elif self.announced_apps:
            self.announced_apps.add(app)
        self.announcing = dict.fromkeys(self.objects)
        return True

    def generation_of(self, key: Key) -> int:
        generations = self.generations
        return generations.get(app_of(key), NO_GENERATION) if generations else NO_GENERATION

    def _tell(self, changed: dict[Key, ObjectEntry], in_order: bool) -> None:
        pushes: dict[Handle, list[Push]] = {}
        resets: dict[Handle, list[CurrentVersion]] = {}
        for key, entry in changed.items():
            if entry.load:
                continue
            self.counters["pushes"] += 1
            if entry.update is None or not self._stands(key, entry):
                for link in entry.links:
                    resets.setdefault(link, []).append(self.known(key, entry))
            else:
                push = self._push(key, entry, entry.update, in_order)
                for link in entry.links:
                    pushes.setdefault(link, []).append(push)
        for link, told in pushes.items():
            for part in parts(told, MAX_PUSHES):
                self._effects.append(SendLink(link, Pushes(part)))
        self._answer(resets)

    def _push(self, key: Key, entry: ObjectEntry, update: Update, in_order: bool) -> Push:
        # After a gap `previous` may not be the version just before: its author may have missed one
        # that we missed too, so nobody is left out.
        source = update.source if in_order else None
        epoch = object_epoch(self.epoch, mark_under(entry.mark, entry.generation))
        return Push(
            key,
            update.version,
            epoch,
            update.payload,
            entry.previous,
            source,
            update.published_at,
        )

    def _feed_end(self, feed: FeedEnd, now: float) -> None:
        if feed.lineage != self.lineage:
            self._lose(Loss(feed.lineage, _START, "recreated"), feed.bits)
        elif self.applied > feed.last:
            self._lose(Loss(feed.lineage, feed.last, "truncated"), feed.bits)
        self.feed_last = feed.last
        if self.catch_up_to is None or self.catch_up_to > feed.last:
            self.catch_up_to = feed.last
        if self.applied == feed.last:
            self.reading_since = None
        elif self.reading_since is None:
            self._read_feed(now)

    def _feed_missing(self, missing: FeedMissing, now: float) -> None:
        self.reading_since = None
        if missing.lineage == self.lineage and missing.last > self.applied:
            self._lose(Loss(missing.lineage, missing.last, missing.why), missing.bits)
            self.catch_up_to = self.feed_last
        if self.applied < self.feed_last:
            self._read_feed(now)

    def _read_feed(self, now: float) -> None:
        self.reading_since = now
        self._effects.append(ReadFeed(self.lineage, self.applied))

    def _lose(self, loss: Loss, bits: int) -> None:
        """We stand behind what is lost. An epoch is proposed, and none begins."""
        self.durable = min(self.durable, loss.last) if loss.lineage == self.lineage else loss.last
        self.epoch, self.absent = shard_epoch(bits), NO_EPOCH
        if loss.lineage != self.lineage or loss.last < self.applied:
            # What stands at their offsets now is something else, and so are records of epochs.
            self.resets_ahead = {}
            self.excused = min(self.excused, loss.last - 1)
        self.lineage, self.loss, self.asked = loss.lineage, loss, 0
        self._advance(loss.last)
        self.shard_row_due = True
        self.counters["epochs"] += 1
        # A lineage has offsets of its own: whoever waits for one of the old must ask again.
        for request, _ in self.unanswered:
            self._answer_with_position(request)
        self.unanswered.clear()
        self.catch_up_to = None
        self._fall_silent()

    def _fall_silent(self) -> None:
        """What registrars were told over a link they trust while it is up."""
        if self.caught_up:
            self.caught_up = False
            for handle in list(self.links):
                self._link_down(handle)
                self._effects.append(DropLink(handle))

    def _begin_epoch(self, record: Update) -> None:
        before = self._row()
        after = before.after(record)
        if after == before:
            return
        self.excused, self.shard_row_due = after.excused, True
        if after.loss is None:
            self.counters["epochs"] += self.loss is None
            self.epoch, self.absent = after.epoch, NO_EPOCH
            self.loss, self.asked = None, 0
            self._announce_all()

    def _row(self, generations: tuple[tuple[str, int], ...] = ()) -> PutShard:
        marker = self.epoch, self.lineage, self.applied
        return PutShard(*marker, generations, self.excused, self.loss)

    def _check_caught_up(self) -> None:
        if self.catch_up_to is None or self.applied < self.catch_up_to:
            return
        if self.loss is None:
            self.caught_up = True
            self._announce_all()
        elif not self.asked and self.retry_at is None:
            self.asked = self._next_id()
            self._effects.append(BeginEpoch(self.asked, self.epoch, self.loss))

    # Durability.

    def _flush(self, now: float) -> None:
        if self.flushing is not None or self.retry_at is not None:
            return
        pending = self.unflushed
        dirty = pending.updates or pending.marks or self.shard_row_due
        if not dirty and self.durable == self.applied:
            return
        if self.flush_at is None:
            self.flush_at = now + self.config.flush_delay
        urgent = self.shard_row_due or self.unanswered
        if not urgent and now < self.flush_at and len(pending.updates) < self.config.flush_updates:
            return
        self.flushing, self.unflushed = pending, Unflushed()
        generations = tuple(self.generations.items()) if self.shard_row_due else ()
        if self.written is not None:
            self.written.append(pending)
        self.shard_row_due, self.flush_at = False, None
        self.flush_covers, self.flush_epoch = self.applied, self.epoch
        self.flush_id = self._next_id()
        writes = pending.writes()
        writes.append(self._row(generations))
        self._effects.append(Persist(self.flush_id, writes))

    def _persisted(self, id: int) -> None:
        self.counters["dropped"] += self.dropping.pop(id, 0)
        if id != self.flush_id or self.flushing is None:
            return
        self.flushing = None
        if self.flush_epoch != self.epoch:
            return  # what it covers was counted in a history that is over
        self.durable = self.flush_covers
        waiting = self.unanswered
        self.unanswered = [item for item in waiting if item[1] > self.durable]
        for request, last in waiting:
            if last <= self.durable:
                self._effects.append(Applied(request, self.lineage, self.durable))

    def _failed(self, id: int, now: float) -> None:
        if self.dropping.pop(id, 0):
            return  # the next round finds them again
        if id == self.flush_id and self.flushing is not None:
            self.flushing.absorb(self.unflushed)
            self.unflushed, self.flushing = self.flushing, None
            self.shard_row_due = True
        if id == self.asked:
            self.asked = 0
        self.failed_loads.extend(key for key, entry in self.objects.items() if entry.load == id)
        self.retry_at = now + self.config.retry_delay

    def _answer_when_durable(self, request: Handle, last: int) -> None:
        if request is None:
            return
        if last <= self.durable:
            self._answer_with_position(request)
        else:
            self.unanswered.append((request, last))

    def _answer_with_position(self, request: Handle) -> None:
        if request is not None:
            self._effects.append(Applied(request, self.lineage, min(self.durable, self.applied)))

    # Interest.

    def _from_link(self, event: FromLink, now: float) -> None:
        message = event.message
        if type(message) is LinkHello:
            self._link_hello(event.link, message, now)
            return
        link = self.links.get(event.link)
        if link is None:
            return
        link.heard_at = now
        if type(message) is Interest:
            self._interest(event.link, link, message)
        elif type(message) is Ping:
            agree = (message.count, message.sum) == (link.digest.count, link.digest.sum)
            self._effects.append(SendLink(event.link, Pong(agree)))

    def _link_hello(self, handle: Handle, hello: LinkHello, now: float) -> None:
        ours = (self.config.shard, self.config.shards, DIGEST_KIND)
        theirs = (hello.shard, hello.shards, hello.digest_kind)
        if hello.protocol.split(".")[0] != LINK_PROTOCOL.split(".")[0]:
            text = f"link protocol {hello.protocol}, this shard speaks {LINK_PROTOCOL}"
        elif theirs != ours:
            text = f"registrar expects shard, shards, digest {theirs}, this shard is {ours}"
        else:
            self.links[handle] = WatchingRegistrar(now)
            self._effects.append(SendLink(handle, Welcome(self.config.shard, self.owner)))
            return
        self._effects.append(SendLink(handle, LinkRefused("wrong_link", text)))
        self._effects.append(DropLink(handle))

    def _interest(self, handle: Handle, link: WatchingRegistrar, message: Interest) -> None:
        if message.replace:
            self._drop_interest(handle, link, list(link.objects))
        self._drop_interest(handle, link, message.drop)
        present: list[CurrentVersion] = []
        missing: list[Key] = []
        for key in message.add:
            if key not in link.objects:
                link.objects[key] = None
                link.digest.add(hash_of(key))
            entry = self.objects.get(key)
            if entry is None:
                entry = self._new_entry(key)
                missing.append(key)
            elif self.caught_up and not entry.load:
                present.append(self.known(key, entry))
            entry.links[handle] = None
        self._answer({handle: present})
        self._load(missing)

    def _new_entry(self, key: Key) -> ObjectEntry:
        entry = self.objects[key] = ObjectEntry()
        entry.load = _REQUESTED
        if self.flushing is not None:
            self.flushing.lay_over(entry, key)
        self.unflushed.lay_over(entry, key)
        return entry

    def _load(self, keys: list[Key]) -> None:
        if keys:
            id = self._next_id()
            for key in keys:
                self.objects[key].load = id
            self._effects.append(LoadObjects(id, keys))

    def _loaded(self, event: Loaded) -> None:
        assert isinstance(event.rows, dict)
        answers: dict[Handle, list[CurrentVersion]] = {}
        for key, row in event.rows.items():
            entry = self.objects.get(key)
            if entry is None or entry.load != event.id:
                continue  # the interest went, or came back and has a load of its own
            entry.load = 0
            self.announcing.pop(key, None)
            self._merge_row(key, entry, row)
            for link in entry.links if self.caught_up else ():
                answers.setdefault(link, []).append(self.known(key, entry))
        self._answer(answers)

    def _answer(self, answers: dict[Handle, list[CurrentVersion]]) -> None:
        for link, known in answers.items():
            for part in parts(known, MAX_LINK_PARTS):
                self._effects.append(SendLink(link, Versions(part)))

    def _merge_row(self, key: Key, entry: ObjectEntry, row: ObjectRow) -> None:
        if entry.replaced:
            return
        entry.mark = row.mark
        if (row.generation, row.version) > (entry.generation, entry.version()):
            entry.update = Update(key, row.version, row.source, row.payload, row.published_at)
            entry.epoch, entry.generation = row.epoch, row.generation

    def known(self, key: Key, entry: ObjectEntry) -> CurrentVersion:
        epoch = self.epoch_of(key, entry)
        if entry.update is None or not self._stands(key, entry):
            return CurrentVersion(key, NO_VERSION, epoch)
        return CurrentVersion(key, entry.version(), epoch, entry.update.payload)

    def _stands(self, key: Key, entry: ObjectEntry) -> bool:
        """A version from before this epoch is not told: a later one may be among what was lost."""
        return entry.epoch == self.epoch and entry.generation == self.generation_of(key)

    def epoch_of(self, key: Key, entry: ObjectEntry) -> int:
        absent = entry.update is None and self.absent
        return object_epoch(absent or self.epoch, mark_under(entry.mark, self.generation_of(key)))

    def _drop_interest(self, handle: Handle, link: WatchingRegistrar, keys: list[Key]) -> None:
        for key in keys:
            if key not in link.objects:
                continue
            del link.objects[key]
            link.digest.remove(hash_of(key))
            entry = self.objects[key]
            del entry.links[handle]
            if not entry.links:
                del self.objects[key]

    # Objects that nobody needs.

    def watch_page(self) -> None:
        """A page is about to be read."""
        self.written = [] if self.flushing is None else [self.flushing]

    def collect(self, page: Page, wall_us: int) -> list[Effect]:
        written, self.written = self.written or [], None
        written.append(self.unflushed)
        if self.flushing is not None:
            written.append(self.flushing)
        gone = []
        for key, row in page.objects:
            at = object_expires_at(key, row.published_at, self.keep_of)
            if at is None or at > wall_us or row.version == NO_VERSION or key in self.objects:
                continue
            if not any(key in some.updates or key in some.marks for some in written):
                gone.append(key)
        if not gone or not self.caught_up:
            return []
        self.absent = shard_epoch(page.bits)
        id = self._next_id()
        self.dropping[id] = len(gone)
        return [Persist(id, [PutAbsent(self.absent, self.epoch), *map(DropObject, gone)])]

    # Links and time.

    def _link_down(self, handle: Handle) -> None:
        link = self.links.pop(handle, None)
        if link is not None:
            self._drop_interest(handle, link, list(link.objects))

    def _tick(self, now: float) -> None:
        self._announce()
        for handle, link in list(self.links.items()):
            if now >= link.heard_at + self.config.link_timeout:
                self._link_down(handle)
                self._effects.append(DropLink(handle))
        if self.retry_at is not None and now >= self.retry_at:
            self.retry_at = None
            wanted, self.failed_loads = self.failed_loads, []
            self._load([key for key in wanted if key in self.objects])
        timeout = self.config.read_timeout
        if self.reading_since is not None and now >= self.reading_since + timeout:
            self._read_feed(now)

    def _announce_all(self) -> None:
        self.announcing = dict.fromkeys(self.objects)
        self.announced_apps = set()

    def _announce(self) -> None:
        """Tell what everything stands at, a slice at a time."""
        if not self.caught_up:
            return
        keys = list(islice(self.announcing, MAX_LINK_PARTS))
        answers: dict[Handle, list[CurrentVersion]] = {}
        for key in keys:
            del self.announcing[key]
            if self.announced_apps and app_of(key) not in self.announced_apps:
                continue
            entry = self.objects.get(key)
            if entry is None or entry.load:
                continue
            for link in entry.links:
                answers.setdefault(link, []).append(self.known(key, entry))
        self._answer(answers)

    def _next_id(self) -> int:
        self.ids += 1
        return self.ids


def parts(said: Sequence[S], most: int) -> Iterator[list[S]]:
    """As many messages as it takes."""
    part: list[S] = []
    room = _ANSWER_ROOM
    for one in said:
        part.append(one)
        if one.payload:
            room -= len(one.payload)
        if room < 0 or len(part) == most:
            yield part
            part, room = [], _ANSWER_ROOM
    if part:
        yield part
