"""A state process in the simulation: the real host and feed over a store and a disk that break as
told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from roskva.core import effects
from roskva.core.collector import REST, CollectorConfig
from roskva.core.effects import Handle
from roskva.core.expiry import Keep, client_expires_at
from roskva.core.freshness import Acked
from roskva.core.matcher import MatcherConfig, from_nothing
from roskva.core.shares import SHARE_BY_DEFAULT, MaxShare
from roskva.errors import StorageUnavailable
from roskva.feed.base import Batch, Foreign, Idle, Marker, Missing
from roskva.feed.log import Log, LogConfig
from roskva.host.effects import Append, Appended, NotAppended, SetMarker
from roskva.host.observer import Observer, Way
from roskva.host.shard import HostEffect, HostEvent, ShardHost
from roskva.model import Key, Update
from roskva.simulation.disk import Fate, PowerCut, SimulatedDisk
from roskva.simulation.network import Link
from roskva.simulation.oracle import Epochs, Violation
from roskva.simulation.process import SimulatedProcess
from roskva.store import rows as layout
from roskva.store.memory import MemoryStore, Snapshot
from roskva.wire.links import FromShard, Pushes, ToShard, Versions

if TYPE_CHECKING:
    from roskva.simulation.world import World

FEED = "feed"
_PEER = 0
"""In place of a request of the host: it is not told of it."""
_REOPEN = 1.0
_SNAPSHOT_EVERY = 15.0
_PAGE_LOADS = 3
"""A page takes so many times as long to read as a row."""
_PAUSES = 15.0
"""What short pauses between rounds add to the time until a row is collected."""


class ShardWays(Observer):
    def __init__(self, world: World) -> None:
        self.world = world
        self.counts: Counter[Way] = Counter()
        """Updates that were news, by the way by which they came."""

    def applied(self, shard: int, way: Way, updates: int) -> None:
        self.counts[way] += updates
        self.world.seen(f"news came by the way: {way}")

    def reads_alone(self, shard: int, alone: bool) -> None:
        self.world.seen("gap left to the bridge again" if not alone else "gap closed alone")


class ShardNode(SimulatedProcess):
    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, f"shard-{index}")
        self.index = index
        self.disk = SimulatedDisk()
        self.store = MemoryStore()
        self.snapshots: list[Snapshot] = []
        self.slow_store = 0.0
        self.fast_path_loss = world.swarm.fast_path_loss
        self.rot = 0.0
        """How often what was committed is damaged before anybody has read it."""
        self.starts: list[float] = []
        self.epochs = Epochs()
        self.cut_off = 0
        """Before what was on its way to the disk when the power went: how far the feed was."""
        self.intact = True
        """No fault has taken anything from the feed."""
        self.durable_marker: effects.PutShard | None = None
        self.ways = ShardWays(world)
        self.owners = 0
        """So many owners had it, this one included. Counted apart from boots, which may go back
        here, with an old disk and a wrong clock under registrars that live on: of a node all comes
        back together."""
        self.links: dict[int, Link] = {}
        self.linked_at: dict[int, float] = {}
        self.others: dict[int, Callable[[FromShard], None]] = {}
        """Ends of links that are no registrar's, for as long as their question is open."""

    def start(self) -> None:
        self.begin()
        self.links, self.linked_at, self.others = {}, {}, {}
        self.told_to: dict[tuple[Key, int], set[Handle]] = {}
        self.io_free_at = 0.0
        self.to_commit: list[Append] = []
        dice = self.world.dice
        try:
            self.log = Log.open(
                self.disk,
                FEED,
                lineage=dice.getrandbits(62),
                now_us=self.wall_us(),
                config=LogConfig(segment_bytes=self.world.swarm.segment_bytes),
                takeover=True,
            )
            self.reader = self.log.reader()
            self._note_recovered()
            self._open_host()
        except (StorageUnavailable, PowerCut) as error:
            self.alive = False
            if isinstance(error, PowerCut):
                self.disk.crash("torn")
            self.world.clock.after(_REOPEN, self.start_again)
            return
        self.starts.append(self.world.clock.now)
        self.step(self._feed_end())
        self.later(self.world.swarm.feed_tick, self._feed_tick)
        self.later(_SNAPSHOT_EVERY, self._take_snapshot)
        self.set_timer()

    def _open_host(self) -> None:
        swarm, dice = self.world.swarm, self.world.dice
        cells = self.store.read(layout.SHARD_ROW)
        row = layout.shard_row(cells)
        if row is None:
            row = from_nothing(self.log.lineage, dice.getrandbits(64))
        boot = max(layout.boot_of(cells) + 1, self.wall_us() // 10**6)
        self.store.write([*layout.operations_of(row), layout.put_boot(boot)], sync=True)
        self.durable_marker = row
        config = MatcherConfig(
            self.index,
            swarm.shards,
            link_timeout=3 * swarm.ping_interval,
            read_timeout=2.0,
            flush_delay=swarm.flush_delay,
        )
        keep = Keep(swarm.client_keep or None, swarm.object_keep or None)
        self.collecting = CollectorConfig(
            page_rows=2,
            objects=True,
            first_delay=2.0,
            delay=0.3,
            idle_delay=0.6,
            pause=swarm.collect_pause,
            lost_grace=1.2 * swarm.scan_interval + 8.0,
            patience=10.0,
        )
        self.hands_over = True
        """Whether what is committed goes to the matcher at once."""
        self.machine = self.host = ShardHost(
            config,
            row,
            boot=boot,
            assigned=layout.assigned_of(cells),
            wall_us=self.wall_us(),
            now=self.now(),
            absent=layout.absent_of(cells),
            keep_of=lambda app: keep,
            collecting=self.collecting,
            max_share=MaxShare(swarm.max_clients) if swarm.max_clients else SHARE_BY_DEFAULT,
            fast_path=lambda app: self.hands_over,
            source_apps=self.world.source_apps,
            batch_ms=lambda app: swarm.batch_ms,
            observer=self.ways,
        )
        self.matcher, self.rows = self.host.matcher, self.host.rows
        self.owners += 1
        self.matcher.owner = self.owners

    def crash(self, fate: Fate = "lost") -> None:
        self.end()
        dice = self.world.dice
        self.store.crash(keep=dice.randrange(self.store.unsynced + 1))
        self.disk.crash(fate, dice.choice(("lost", "kept")))
        for link in list(self.links.values()):
            link.drop("shard")

    def restore(self, snapshot: Snapshot) -> None:
        self.store.restore(snapshot)
        self.world.restored_at = self.world.clock.now

    def heal(self) -> None:
        self.disk.heal()
        self.disk.cut_before_step = None
        self.store.failing_writes, self.store.refused_prefixes = 0, ()
        self.slow_store = self.fast_path_loss = self.rot = 0.0
        self.start_again()

    def started_by(self, moment: float) -> float:
        """When the life began that was the last to begin before."""
        return max((start for start in self.starts if start <= moment), default=0.0)

    # The host and what it asks for.

    def counters(self) -> dict[str, int]:
        return {**self.rows.counters, **self.matcher.counters}

    def step(self, event: HostEvent) -> None:
        super().step(event)
        if self.alive and self.matcher.caught_up:
            self.epochs.check(self.name, self.matcher)
        if self.intact and self.matcher.counters["epochs"]:
            raise Violation(f"{self.name} began a new epoch, and nothing was lost")

    def carry_out(self, effect: HostEffect) -> None:
        match effect:
            case Append():
                self._append(effect)
            case effects.Persist(writes=writes):
                if isinstance(writes[0], effects.PutAbsent):
                    self.epochs.known.add(writes[0].epoch)
                lost_at = self.rows.lost_at
                self._io(lambda: self._persist(effect, lost_at))
            case effects.LoadObjects() | effects.LoadClient() | effects.LoadPage():
                self._io(lambda: self._load(effect))
            case effects.SendLink(link=int() as id, message=message):
                if isinstance(message, Versions):
                    self.epochs.check_told(self.name, message.known)
                elif isinstance(message, Pushes):
                    self.epochs.check_told(self.name, message.pushes)
                if id in self.links:
                    self.links[id].send("registrar", message)
                elif id in self.others:
                    self.others.pop(id)(message)  # type: ignore[arg-type]
            case effects.DropLink(link=int() as id):
                if id in self.links:
                    self.links[id].drop("shard")
            case effects.ReadFeed():
                self.later(self._io_delay(), lambda: self._read_feed(effect))
            case SetMarker(lineage=lineage, offset=offset):
                self.later(self._io_delay(), lambda: self._set_marker(Marker(lineage, offset)))

    # The store: one thing after the other, late.

    def _io_delay(self) -> float:
        return self.world.dice.uniform(0.0005, 0.004) + self.slow_store * self.world.dice.random()

    def _io(self, do: Callable[[], None]) -> None:
        now = self.world.clock.now
        self.io_free_at = max(self.io_free_at, now) + self._io_delay()
        self.later(self.io_free_at - now, do)

    def _persist(self, effect: effects.Persist, lost_at: float) -> None:
        self._check_fencing(effect)
        self._check_collected(effect, lost_at)
        try:
            for batch in layout.batches(effect.writes):
                self.store.write(batch)
        except StorageUnavailable:
            self.world.seen("write failed")
            self.step(effects.Failed(effect.id))
            return
        self._io(lambda: self._sync(effect))

    def _sync(self, effect: effects.Persist) -> None:
        self.store.sync()
        if isinstance(effect.writes[-1], effects.PutShard):
            self.durable_marker = effect.writes[-1]
        self.step(effects.Persisted(effect.id))

    def _check_fencing(self, effect: effects.Persist) -> None:
        for write in effect.writes:
            if isinstance(write, effects.PutRegistered):
                with suppress(StorageUnavailable):
                    row = layout.client_row(self.store.read(layout.client_key(write.client)))
                    if row is not None and write.session < row.session:
                        raise Violation(f"session {write.session} wrote a row of {row.session}")

    def _check_collected(self, effect: effects.Persist, lost_at: float) -> None:
        """Of whoever is not there, and was not for long, as its row says by now. `lost_at`: as the
        shard had it when it decided."""
        for write in effect.writes:
            if isinstance(write, effects.DropObject):
                self.world.seen("object dropped")
                self.world.dropped.add(write.key)
        dropped = [write for write in effect.writes if isinstance(write, effects.DropClient)]
        if len(dropped) < len(effect.writes):
            return
        for client in [write.client for write in dropped]:
            self.world.seen("client collected")
            with suppress(StorageUnavailable):
                key = layout.client_key(client)
                cells = self.store.read(key)
                row = layout.scanned_client(key, cells) if cells else None
                if row is None or not row.created:
                    continue
                at = client_expires_at(row, self.rows.keep_of, self.rows.wall(lost_at))
                if at is None or at > self.rows.wall(self.now()):
                    raise Violation(f"a client was collected that was away until {row.seen_at}")
                if self._is_online(client):
                    raise Violation("a client was collected that is online")

    def collected_within(self) -> float:
        """From when a row expires: pauses, and a round of pages, each with its rest."""
        config = self.collecting
        page = (1 + REST) * _PAGE_LOADS * self.world.swarm.load_delay + config.idle_delay
        rows = sum(1 for _ in self.store.scan(layout.CLIENT))
        return _PAUSES + page * (rows / config.page_rows + 2)

    def check_expired(self, within: float) -> None:
        """When nobody is there any more: what should have been collected is gone."""
        start, end = layout.CLIENT, layout.OBJECT
        for key, cells in self.store.scan(start, end):
            row = layout.scanned_client(key, cells)
            lost_at = self.rows.wall(self.rows.lost_at + self.collecting.lost_grace)
            at = client_expires_at(row, self.rows.keep_of, lost_at)
            left = self.rows.wall(self.now() - within)
            if row.created and (at is None or at > left):
                continue
            own = row.seen_at + (row.expiry_s or 0) * 10**6
            in_time = not row.open and row.expiry_s is not None and at == own
            if in_time or self.collecting.pause < _PAUSES:
                raise Violation(f"{self.name} still has a client that left at {row.seen_at}")

    def _is_online(self, client: bytes) -> bool:
        """At a registrar that had the time to say so."""
        since = self.world.clock.now - self.collecting.lost_grace
        return any(
            session.client == client and session.created
            for id, link in self.links.items()
            if self.linked_at[id] < since
            for session in link.registrar.sessions()
        )

    def _load(self, effect: effects.LoadObjects | effects.LoadClient | effects.LoadPage) -> None:
        rows: dict[Key, effects.ObjectRow] | effects.ClientRow | effects.Page | None
        try:
            if isinstance(effect, effects.LoadObjects):
                cells = self.store.read_cells(layout.object_cells(effect.keys))
                rows = layout.object_rows(effect.keys, cells)
                delay = self.world.dice.random() * self.world.swarm.load_delay
            elif isinstance(effect, effects.LoadPage):
                rows = layout.read_page(self.store, effect, self.world.dice.getrandbits(64))
                delay = _PAGE_LOADS * self.world.dice.random() * self.world.swarm.load_delay
            else:
                rows = layout.client_row(self.store.read(layout.client_key(effect.client)))
                delay = self._io_delay()
        except StorageUnavailable:
            self.later(self._io_delay(), lambda: self.step(effects.Failed(effect.id)))
            return
        self.later(delay, lambda: self.step(effects.Loaded(effect.id, rows)))

    def acked(self, client: bytes) -> dict[Key, Acked]:
        row = layout.client_row(self.store.read(layout.client_key(client)))
        return {} if row is None else {r.object: (r.acked, r.epoch) for r in row.registered}

    def _take_snapshot(self) -> None:
        if not self.store.unsynced:
            self.snapshots.append(self.store.snapshot())
        self.later(_SNAPSHOT_EVERY, self._take_snapshot)

    # The feed: whoever asks while a group is on its way waits for the next.

    def append_for_peer(self, record: Update) -> None:
        self._append(Append(_PEER, [record]))

    def _append(self, effect: Append) -> None:
        if not self.to_commit:
            self.later(self._io_delay(), self._commit)
        self.to_commit.append(effect)

    def _commit(self) -> None:
        group, self.to_commit = self.to_commit, []
        requests = [append.request for append in group if append.request != _PEER]
        try:
            self.log.append([update for append in group for update in append.updates])
            committed = self.log.commit(self.wall_us())
        except StorageUnavailable as error:
            self.world.seen("publish refused for now")
            self.step(NotAppended(requests, error))
            return
        except PowerCut:
            self.world.seen("power cut in a commit")
            self.cut_off = self.log.last + 1
            self._lose_power()
            return
        assert committed is not None
        self.epochs.appended(self.log.lineage, committed.entries())
        self._note_stragglers(committed.entries())
        hands_over = self._hands_over()
        event = Appended(committed.first, committed.last, committed.entries(), requests)

        def hand_over() -> None:
            self.hands_over = hands_over
            if hands_over:
                self._note_told(event)
            self.step(event)

        # The thread that commits has other groups to finish first, and the loop other work.
        self.later(0.0, hand_over)

    def _note_recovered(self) -> None:
        """What was on its way may be in the feed."""
        cut_off, self.cut_off = self.cut_off, 0
        after = cut_off - 1
        while cut_off and isinstance(
            read := self.reader.read(Marker(self.log.lineage, after)), Batch
        ):
            self.epochs.appended(self.log.lineage, read.entries())
            after = read.last

    def _note_stragglers(self, entries: Sequence[tuple[int, Update]]) -> None:
        oracle = self.world.oracle
        for _, update in entries:
            stamp = oracle.stamp_of.get((update.object, update.version), 0)
            if not update.reset and stamp < oracle.acknowledged.get(update.object, 0):
                self.world.straggled.add(update.object)

    def _note_told(self, event: Appended) -> None:
        """To which links what is committed goes before its publishers are answered."""
        matcher = self.matcher
        swarm = self.world.swarm
        if not matcher.caught_up or event.first > matcher.applied + 1:
            return
        if swarm.batch_s:
            return  # they wait
        for _, update in event.entries:
            entry = matcher.objects.get(update.object)
            if entry is not None and not entry.load and entry.version() < update.version:
                self.told_to[update.object, update.version] = set(entry.links)

    def hand_over_as_usual(self) -> None:
        """A fault of the fast path ends; when all is well it loses nothing at all."""
        world = self.world
        self.fast_path_loss = 0.0 if world.healed else world.swarm.fast_path_loss

    def _hands_over(self) -> bool:
        world = self.world
        rots = self.rot > 0 and world.dice.random() < self.rot
        if rots:
            self._damage_newest()
        lost = not world.swarm.fast_path or world.dice.random() < self.fast_path_loss
        if lost:
            world.seen("fast path lost an update")
        return not (rots or lost)

    def _set_marker(self, marker: Marker) -> None:
        try:
            self.log.set_marker("matcher", marker)
        except StorageUnavailable:
            self.world.seen("marker not set")
        except PowerCut:
            self._lose_power()

    def _lose_power(self) -> None:
        self.crash("torn")
        self.world.clock.after(_REOPEN, self.start_again)

    def segments(self) -> list[str]:
        names = sorted(name for name in self.disk.list(FEED) if name.endswith(".log"))
        return [f"{FEED}/{name}" for name in names]

    def _damage_newest(self) -> None:
        """On a disk that has it all: see `_lose_history` in `faults.py`."""
        path = self.segments()[-1]
        try:
            self.disk.open(path).sync()
        except (OSError, PowerCut):
            return
        self.disk.flip(path, 8 * (self.disk.size(path) - 1 - self.world.dice.randrange(64)))
        self.world.seen("feed damaged unread")
        self.intact = False

    def _feed_end(self) -> effects.FeedEnd:
        return effects.FeedEnd(self.log.lineage, self.reader.end(), self.world.dice.getrandbits(64))

    def _feed_tick(self) -> None:
        self.later(self.world.swarm.feed_tick, self._feed_tick)
        try:
            with suppress(StorageUnavailable):  # a full disk is no reason not to read
                self.log.tidy(self.wall_us())
            end = self._feed_end()
            self.later(self._io_delay(), lambda: self.step(end))
        except StorageUnavailable:
            return
        except PowerCut:
            self._lose_power()

    def _read_feed(self, asked: effects.ReadFeed) -> None:
        try:
            read = self.reader.read(Marker(asked.lineage, asked.after), max_rows=3)
        except StorageUnavailable:
            return
        bits = self.world.dice.getrandbits(64)
        lineage = self.log.lineage
        match read:
            case Batch():
                rows = list(enumerate(read.updates(), read.base))
                self.step(effects.Apply(lineage, read.first, read.last, rows))
            case Idle():
                self.step(effects.FeedEnd(lineage, read.last, bits))
            case Missing():
                self.world.seen(f"feed missing by {read.why}")
                self.step(effects.FeedMissing(lineage, read.last, bits, read.why))
            case Foreign():
                self.world.seen("feed foreign")
                self.step(effects.FeedEnd(read.lineage, read.last, bits))

    # Links.

    def from_link(self, link: Link, message: ToShard) -> None:
        self.links[link.id] = link
        self.linked_at.setdefault(link.id, self.world.clock.now)
        self.step(effects.FromLink(link.id, message))

    def link_down(self, link: Link) -> None:
        if self.links.pop(link.id, None) is not None:
            self.later(0, lambda: self.step(effects.LinkDown(link.id)))

    def ask(self, message: ToShard, answered: Callable[[FromShard], None]) -> None:
        """Over a link of its own, that nobody is greeted on: the bridge, and whoever publishes
        without a registrar."""
        id = self.world.next_id()
        self.others[id] = answered
        self.step(effects.FromLink(id, message))
