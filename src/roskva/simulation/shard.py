"""A state process in the simulation: the real matcher, rows and feed over a store and a disk that
break as told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from roskva.core.effects import (
    Applied,
    Apply,
    ClientRow,
    DropLink,
    Effect,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromLink,
    LinkDown,
    LoadClient,
    Loaded,
    LoadObjects,
    ObjectRow,
    Persist,
    Persisted,
    PutRegistered,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.freshness import Acked
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.rows import Rows
from roskva.errors import StorageUnavailable
from roskva.feed.base import START, Batch, Foreign, Idle, Marker, Missing
from roskva.feed.log import Log, LogConfig
from roskva.model import Key, Update, shard_epoch
from roskva.simulation.disk import Fate, PowerCut, SimulatedDisk
from roskva.simulation.network import Link
from roskva.simulation.node import Node
from roskva.simulation.oracle import Violation
from roskva.store import rows as layout
from roskva.store.memory import MemoryStore, Snapshot
from roskva.wire.links import CloseSession, OpenSession, ToShard, WriteRow, WriteRows

if TYPE_CHECKING:
    from roskva.simulation.world import World

FEED = "feed"
_REOPEN = 1.0
_SNAPSHOT_EVERY = 15.0
_ROW_MESSAGES = (OpenSession, WriteRow, WriteRows, CloseSession)


class ShardNode(Node):
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
        self.intact = True
        """No fault has taken anything from the feed."""
        self.durable_marker: PutShard | None = None
        self.links: dict[int, Link] = {}

    def start(self) -> None:
        self.begin()
        self.links = {}
        self.io_free_at = 0.0
        self.to_commit: list[tuple[Update, Callable[[], None]]] = []
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
            self._open_store()
        except StorageUnavailable:
            self.alive = False
            self.world.clock.after(_REOPEN, self.start_again)
            return
        except PowerCut:
            self.alive = False
            self.disk.crash("torn")
            self.world.clock.after(_REOPEN, self.start_again)
            return
        self.starts.append(self.world.clock.now)
        self.step_matcher(self._feed_end())
        self.later(self.world.swarm.feed_tick, self._feed_tick)
        self.later(_SNAPSHOT_EVERY, self._take_snapshot)
        self.set_timer()

    def _open_store(self) -> None:
        swarm, dice = self.world.swarm, self.world.dice
        cells = self.store.read(layout.SHARD_ROW)
        row = layout.shard_row(cells)
        if row is None:
            row = PutShard(shard_epoch(dice.getrandbits(64)), self.log.lineage, START)
        boot = max(layout.boot_of(cells) + 1, self.wall_us() // 10**6)
        self.store.write([*layout.operations_of(row), layout.put_boot(boot)], sync=True)
        self.durable_marker = row
        timeout = 3 * swarm.ping_interval
        config = MatcherConfig(
            self.index,
            swarm.shards,
            link_timeout=timeout,
            read_timeout=2.0,
            flush_delay=swarm.flush_delay,
        )
        self.matcher = Matcher(config, row)
        self.handed: set[int] = set()
        """Offsets that it had not applied yet."""
        self.rows = Rows(boot, self.wall_us(), self.now())

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

    # The machines and what they ask for.

    def counters(self) -> dict[str, int]:
        return {**self.rows.counters, **self.matcher.counters}

    def deadline(self) -> float | None:
        return self.matcher.next_deadline()

    def tick(self) -> None:
        self.step_matcher(Tick())

    def step_matcher(self, event: Event) -> None:
        if isinstance(event, Apply) and event.lineage == self.matcher.lineage:
            self.handed.update(o for o, _ in event.updates if o > self.matcher.applied)
        for effect in self.matcher.step(event, self.now()):
            self.carry_out(effect, self.step_matcher)
        self.set_timer()

    def step_rows(self, event: Event) -> None:
        for effect in self.rows.step(event, self.now()):
            self.carry_out(effect, self.step_rows)

    def carry_out(self, effect: Effect, answer: Callable[[Event], None]) -> None:
        match effect:
            case Persist():
                self._io(lambda: self._persist(effect, answer))
            case LoadObjects():
                self._io(lambda: self._load_objects(effect, answer))
            case LoadClient():
                self._io(lambda: self._load_client(effect, answer))
            case SendLink(link=id, message=message):
                if id in self.links:
                    self.links[id].to_registrar(message)  # type: ignore[arg-type]
            case DropLink(link=id):
                if id in self.links:
                    self.links[id].drop("shard")
            case ReadFeed():
                self.later(self._io_delay(), lambda: self._read_feed(effect))
            case Applied(request=request, lineage=lineage, offset=offset):
                self.world.bridge.answered(self, request, lineage, offset)

    # The store: one thing after the other, late.

    def _io_delay(self) -> float:
        return self.world.dice.uniform(0.0005, 0.004) + self.slow_store * self.world.dice.random()

    def _io(self, do: Callable[[], None]) -> None:
        now = self.world.clock.now
        self.io_free_at = max(self.io_free_at, now) + self._io_delay()
        self.later(self.io_free_at - now, do)

    def _persist(self, effect: Persist, answer: Callable[[Event], None]) -> None:
        self._check_fencing(effect)
        try:
            for batch in layout.batches(effect.writes):
                self.store.write(batch)
        except StorageUnavailable:
            self.world.seen("write failed")
            answer(Failed(effect.id))
            return
        self._io(lambda: self._sync(effect, answer))

    def _sync(self, effect: Persist, answer: Callable[[Event], None]) -> None:
        try:
            self.store.sync()
        except StorageUnavailable:
            answer(Failed(effect.id))
            return
        if isinstance(effect.writes[-1], PutShard):
            self.durable_marker = effect.writes[-1]
        answer(Persisted(effect.id))

    def _check_fencing(self, effect: Persist) -> None:
        for write in effect.writes:
            if isinstance(write, PutRegistered):
                row = self._client_row(write.client)
                if row is not None and write.session < row.session:
                    raise Violation(f"session {write.session} wrote a row of {row.session}")

    def _client_row(self, client: bytes) -> ClientRow | None:
        try:
            return layout.client_row(self.store.read(layout.client_key(client)))
        except StorageUnavailable:
            return None

    def _load_objects(self, effect: LoadObjects, answer: Callable[[Event], None]) -> None:
        try:
            cells = self.store.read_cells(layout.object_cells(effect.keys))
        except StorageUnavailable:
            self.later(self._io_delay(), lambda: answer(Failed(effect.id)))
            return
        rows: dict[Key, ObjectRow] = layout.object_rows(effect.keys, cells)
        delay = self.world.dice.random() * self.world.swarm.load_delay
        self.later(delay, lambda: answer(Loaded(effect.id, rows)))

    def _load_client(self, effect: LoadClient, answer: Callable[[Event], None]) -> None:
        try:
            row = layout.client_row(self.store.read(layout.client_key(effect.client)))
        except StorageUnavailable:
            self.later(self._io_delay(), lambda: answer(Failed(effect.id)))
            return
        self.later(self._io_delay(), lambda: answer(Loaded(effect.id, row)))

    def acked(self, client: bytes) -> dict[Key, Acked]:
        row = layout.client_row(self.store.read(layout.client_key(client)))
        return {} if row is None else {r.object: (r.acked, r.epoch) for r in row.registered}

    def _take_snapshot(self) -> None:
        if not self.store.unsynced:
            self.snapshots.append(self.store.snapshot())
        self.later(_SNAPSHOT_EVERY, self._take_snapshot)

    # The feed.

    def publish(self, update: Update, acknowledge: Callable[[], None]) -> None:
        if not self.to_commit:
            self.later(self._io_delay(), self._commit)
        self.to_commit.append((update, acknowledge))

    def _commit(self) -> None:
        group, self.to_commit = self.to_commit, []
        try:
            self.log.append([update for update, _ in group])
            committed = self.log.commit(self.wall_us())
        except StorageUnavailable:
            self.world.seen("publish refused for now")
            return
        except PowerCut:
            self.world.seen("power cut in a commit")
            self.crash("torn")
            self.world.clock.after(_REOPEN, self.start_again)
            return
        assert committed is not None
        for _, acknowledge in group:
            acknowledge()
        if self.rot and self.world.dice.random() < self.rot:
            self._damage_newest()
            return
        if not self.world.swarm.fast_path or self.world.dice.random() < self.fast_path_loss:
            self.world.seen("fast path lost an update")
            return
        rows = [(committed.base + i, update) for i, update in enumerate(committed.updates)]
        self.step_matcher(Apply(self.log.lineage, committed.first, committed.last, rows))

    def segments(self) -> list[str]:
        names = sorted(name for name in self.disk.list(FEED) if name.endswith(".log"))
        return [f"{FEED}/{name}" for name in names]

    def _damage_newest(self) -> None:
        """On a disk that has it all: see `_lose_history` in faults.py."""
        path = self.segments()[-1]
        try:
            self.disk.open(path).sync()
        except (OSError, PowerCut):
            return
        self.disk.flip(path, 8 * (self.disk.size(path) - 1 - self.world.dice.randrange(64)))
        self.world.seen("feed damaged unread")
        self.intact = False

    def _feed_end(self) -> FeedEnd:
        return FeedEnd(self.log.lineage, self.reader.end(), self.world.dice.getrandbits(64))

    def _feed_tick(self) -> None:
        self.later(self.world.swarm.feed_tick, self._feed_tick)
        try:
            with suppress(StorageUnavailable):  # a full disk is no reason not to read
                self.log.tidy(self.wall_us())
            self.step_matcher(self._feed_end())
        except StorageUnavailable:
            return
        except PowerCut:
            self.crash("torn")
            self.world.clock.after(_REOPEN, self.start_again)

    def _read_feed(self, asked: ReadFeed) -> None:
        try:
            read = self.reader.read(Marker(asked.lineage, asked.after), max_rows=3)
        except StorageUnavailable:
            return
        bits = self.world.dice.getrandbits(64)
        lineage = self.log.lineage
        match read:
            case Batch():
                rows = [(read.base + i, update) for i, update in enumerate(read.updates())]
                self.step_matcher(Apply(lineage, read.first, read.last, rows))
            case Idle():
                self.step_matcher(FeedEnd(lineage, read.last, bits))
            case Missing():
                self.world.seen(f"feed missing by {read.why}")
                self.step_matcher(FeedMissing(lineage, read.last, bits))
            case Foreign():
                self.world.seen("feed foreign")
                self.step_matcher(FeedEnd(read.lineage, read.last, bits))

    # Links.

    def from_link(self, link: Link, message: ToShard) -> None:
        self.links[link.id] = link
        if isinstance(message, _ROW_MESSAGES):
            self.step_rows(FromLink(link.id, message))
        else:
            self.step_matcher(FromLink(link.id, message))

    def link_down(self, link: Link) -> None:
        if self.links.pop(link.id, None) is not None:
            self.later(0, lambda: self._link_down(link.id))

    def _link_down(self, id: int) -> None:
        self.step_matcher(LinkDown(id))
        self.step_rows(LinkDown(id))
