"""Somebody else who reads a shard's feed, with rows of its own: as another cell does.

It lags, it crashes, and it comes back from an old copy of its rows. So it misses what the shard has
read, and the other way round, and both want an epoch for the same loss. Nobody is told anything by
it; but whenever it could speak, it must be in the epoch that the feed has begun there.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from roskva.core import effects
from roskva.core.matcher import Matcher, MatcherConfig, from_nothing
from roskva.errors import StorageUnavailable
from roskva.feed.base import Batch, Marker, Missing
from roskva.model import epoch_record
from roskva.simulation.oracle import Violation
from roskva.simulation.process import SimulatedProcess
from roskva.store import rows as layout
from roskva.store.memory import MemoryStore, Snapshot

if TYPE_CHECKING:
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.world import World

_LOOKS_AFTER = (0.5, 0.5, 0.5, 4.0, 30.0)
_CRASHES = 0.05
"""How often it crashes instead of looking."""
_IN_DOUBT_S = 2.0
"""It is told that its record could not be appended, whether or not it was."""


class FeedPeer(SimulatedProcess):
    def __init__(self, world: World, shard: ShardNode) -> None:
        super().__init__(world, f"peer-{shard.index}")
        self.shard = shard
        self.dice = Random(f"peer {world.tape.seed} {shard.index}")
        self.only_reads = self.dice.random() < 0.5
        """It cannot append, and waits for the shard to."""
        self.store = MemoryStore()
        self.snapshots: list[Snapshot] = []

    def start(self) -> None:
        self.begin()
        row = layout.shard_row(self.store.read(layout.SHARD_ROW))
        if row is None:
            row = from_nothing(self.shard.log.lineage, self._bits())
        config = MatcherConfig(self.shard.index, self.world.swarm.shards, flush_delay=0.5)
        self.machine = self.matcher = Matcher(config, row)
        self._look()

    def crash(self) -> None:
        self.end()
        if self.snapshots and self.dice.random() < 0.3:
            self.store.restore(self.dice.choice(self.snapshots))
            self.world.seen("peer came back from old rows")
        self.world.clock.after(5.0 * self.dice.random(), self.start)

    def counters(self) -> dict[str, int]:
        return self.matcher.counters

    def _look(self) -> None:
        healed = self.world.healed
        if not healed and self.dice.random() < _CRASHES:
            self.crash()
            return
        self.later(1.0 if healed else self.dice.choice(_LOOKS_AFTER), self._look)
        if self.shard.alive:
            end = self.shard.reader.end()
            self.step(effects.FeedEnd(self.shard.log.lineage, end, self._bits()))

    def step(self, event: effects.Event) -> None:
        super().step(event)
        if self.alive and self.matcher.caught_up:
            self.shard.epochs.check(self.name, self.matcher)

    def check_speaks(self) -> None:
        if not (self.matcher.caught_up or self.only_reads):
            raise Violation(f"{self.name} is silent, and nothing is wrong any more")

    def carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case effects.Persist():
                self.later(self.dice.random(), lambda: self._persist(effect))
            case effects.ReadFeed():
                self.later(0.01 * self.dice.random(), lambda: self._read_feed(effect))
            case effects.BeginEpoch(id=id, epoch=epoch, loss=loss):
                self.world.seen("peer wants an epoch")
                if self.shard.alive and not self.only_reads:
                    self.shard.append_for_peer(epoch_record(epoch, loss, self.wall_us()))
                self.later(_IN_DOUBT_S, lambda: self.step(effects.Failed(id)))

    def _persist(self, effect: effects.Persist) -> None:
        for batch in layout.batches(effect.writes):
            self.store.write(batch, sync=True)
        self.snapshots = [*self.snapshots[-3:], self.store.snapshot()]
        self.step(effects.Persisted(effect.id))

    def _read_feed(self, asked: effects.ReadFeed) -> None:
        if not self.shard.alive or asked.lineage != self.shard.log.lineage:
            return  # it asks again
        try:
            read = self.shard.reader.read(Marker(asked.lineage, asked.after), max_rows=20)
        except StorageUnavailable:
            return
        if isinstance(read, Batch):
            entries = read.entries()
            self.step(effects.Apply(asked.lineage, read.first, read.last, entries))
        elif isinstance(read, Missing):
            self.world.seen("peer missed something")
            self.step(effects.FeedMissing(asked.lineage, read.last, self._bits(), read.why))

    def _bits(self) -> int:
        return self.dice.getrandbits(64)
