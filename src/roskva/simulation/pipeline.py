"""Publishers and the bridge in the simulation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roskva.core.objects import coalesce
from roskva.errors import RoskvaError
from roskva.feed.base import START, Batch, Idle, Marker
from roskva.feed.reader import LogReader
from roskva.model import NO_MARK, Key, Update, reset_mark
from roskva.simulation.oracle import Violation
from roskva.wire.links import AwaitGap, FromShard, Gap, NotPublished, Offer, PublishUpdates, Taken

if TYPE_CHECKING:
    from roskva.simulation.clients import ClientNode
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.world import World

_RETRY = 2.0
STRAGGLERS = 65.0
FORGED = 10**15
_ERA = 10**9
_ERAS = 100
_BURST = 0.6


class ObjectPublisher:
    """The backend of one object: changes it, and publishes until it is told yes."""

    def __init__(self, world: World, key: Key, last_change: float) -> None:
        self.world = world
        self.key = key
        self.last_change = last_change
        self.version = _ERAS * _ERA
        self.in_flight = 0
        self.resetting = False
        self.silent_until = 0.0
        """A reset that was tried several times may come once more until then."""
        self.forged = 0
        """How often: no version stands for two changes."""
        self.stopped = False

    def run(self) -> None:
        world, swarm = self.world, self.world.swarm
        if self.stopped:
            return
        now, delay = world.clock.now, world.dice.expovariate(1 / swarm.publish_interval)
        if swarm.bursts and world.dice.random() < swarm.bursts:
            world.clock.after(_BURST * world.dice.random(), self.run)
        elif now < self.last_change:
            world.clock.after(min(delay, self.last_change - now), self.run)
        if not self.busy_resetting and not (self.in_flight and swarm.ordered):
            self.change()

    @property
    def busy_resetting(self) -> bool:
        return self.resetting or self.world.clock.now < self.silent_until

    def is_idle(self) -> bool:
        return not (self.in_flight or self.busy_resetting or self.stopped)

    def change_if_idle(
        self, author: ClientNode | None = None, for_the_last_time: bool = False
    ) -> None:
        if self.is_idle():
            self.change(author)
            if for_the_last_time:
                self.last_change = 0.0

    def change(self, author: ClientNode | None = None) -> None:
        world, oracle = self.world, self.world.oracle
        self.version += world.dice.choice((1, 1, 1, 7))
        stamp = oracle.change(self.key, self.version)
        # A source may be named only when all before it is published: see docs/protocol.md.
        if author is None and not self.in_flight:
            author = world.pick_author(self.key)
        source = None if author is None or self.in_flight else author.writes(self.key, stamp)
        self._publish(self._update(self.version, source), stamp)

    def _update(self, version: int, source: str | None = None) -> Update:
        """Dated by its shard's clock, whatever that shows."""
        at = self.world.shard_of(self.key).wall_us()
        return Update(self.key, version, source, published_at=at)

    def change_once(self, registrar: RegistrarNode, deadline: float) -> None:
        """Through this registrar, and once: whoever holds it must not lose it. A backend that is
        told to try later, or nothing, before the deadline would have seen that a shard was away."""
        world, done = self.world, list[object]()
        self.version += 1
        stamp = world.oracle.change(self.key, self.version)
        update = self._update(self.version)

        def answered(outcome: object) -> None:
            done.append(outcome)
            if not isinstance(outcome, RoskvaError):
                world.acknowledged_updates.append(update)
                world.oracle.published(world.clock.now, self.key, stamp)

        def judge() -> None:
            if not done or isinstance(done[0], RoskvaError):
                raise Violation(f"a publish of {self.key} was held for a shard, and got {done}")

        registrar.submit(update, answered)
        world.clock.after(deadline, judge)

    def forge(self) -> bool:
        """Whoever forges has it reset."""
        if self.busy_resetting or self.in_flight:
            return False
        self.resetting = True
        self.forged += 1
        forged = self.forged * FORGED + self.version
        stamp = self.world.oracle.change(self.key, forged)
        self._publish(self._update(forged), stamp)
        return True

    def go_back(self) -> None:
        """In time: all versions to come are below those before, and again none stands for two."""
        self.version = (self.version // _ERA - 1) * _ERA

    def reset_later(self) -> None:
        """Not before copies on slow paths are there: after the reset it would be forged again."""
        self.world.clock.after(STRAGGLERS, self.reset_when_idle)

    def reset_again(self) -> None:
        """A reset that was lost with its part of the feed has to be repeated by the operator."""
        if self.forged and not self.resetting:
            self.resetting = True
            self._reset(self.world.oracle.stamp[self.key], 0.0)  # nothing changed at the backend

    def reset(self) -> None:
        self._reset(self.world.oracle.change(self.key, None), 0.0)

    def reset_when_idle(self) -> None:
        if self.in_flight:
            self.world.clock.after(0.5, self.reset_when_idle)
            return
        self.reset()

    def reset_once(self, registrar: RegistrarNode) -> None:
        """Through this registrar, whatever is answered."""
        self.world.oracle.change(self.key, None)
        registrar.submit(Update(self.key, self._mark(), reset=True), lambda outcome: None)

    def _mark(self) -> int:
        mark = reset_mark(self.world.dice.getrandbits(64))
        self.world.oracle.marks.setdefault(self.key, {NO_MARK}).add(mark)
        return mark

    def _reset(self, stamp: int, silence: float) -> None:
        """Whoever tries again draws a new mark: a reset that comes twice resets twice. So nothing
        is published before the first try can come no more."""
        mark = self._mark()
        done: list[bool] = []

        def acknowledged() -> None:
            if not done:
                done.append(True)
                self.resetting, self.silent_until = False, self.world.clock.now + silence
                self.world.seen("reset")
                self.world.oracle.published(self.world.clock.now, self.key, stamp)

        def again() -> None:
            if not done:
                done.append(True)
                self._reset(stamp, STRAGGLERS)

        self._send(Update(self.key, mark, reset=True), acknowledged)
        self.world.clock.after(_RETRY, again)

    def _publish(self, update: Update, stamp: int) -> None:
        self.in_flight += 1
        done: list[bool] = []
        world = self.world

        def acknowledged() -> None:
            if not done:
                done.append(True)
                self.in_flight -= 1
                world.acknowledged_updates.append(update)
                world.oracle.published(world.clock.now, self.key, stamp)
                world.oracle.note(world.clock.now, f"published {self.key} {update.version}")

        def attempt() -> None:
            if not done:
                self._send(update, acknowledged)
                world.clock.after(_RETRY, attempt)

        attempt()

    def _send(self, update: Update, acknowledged: Callable[[], None]) -> None:
        """Through some registrar, or straight to the shard."""
        world = self.world
        if self._is_lost():
            return
        delay = world.net.delay

        def answer(outcome: object) -> None:
            if isinstance(outcome, RoskvaError | NotPublished):
                world.seen("publisher told to try again")
            elif not self._is_lost():
                world.clock.after(delay(), acknowledged)

        registrar = world.pick_registrar() if world.dice.random() < 0.5 else None
        shard = world.shard_of(self.key)
        if registrar is not None:
            registrar.later(delay(), lambda: registrar.submit(update, answer))
        elif shard.alive:
            message = PublishUpdates(1, [update])
            shard.later(delay(), lambda: shard.ask(message, answer))
        elif shard.life:
            world.seen("publisher met a dead shard")

    def _is_lost(self) -> bool:
        world = self.world
        return bool(world.net.lossy) and world.dice.random() < 0.3 * world.net.lossy


class Bridge:
    """Waits at every shard to be told of a gap, and brings what is missing, read from outside.
    Every so often it asks where each stands, and so is heard."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.been: dict[int, Marker] = {}
        """Up to where each shard's feed was brought, taken over or not."""
        self.standing: dict[int, int] = {}
        """The lives of shards in which they were asked to tell of a gap, and have not yet."""
        self.readers: dict[int, tuple[object, LogReader]] = {}
        self.stopped_until = self.hangs_until = 0.0
        self.skips = 0
        self.repeats = 0

    def run(self) -> None:
        interval = self.world.swarm.bridge_interval
        if not interval:
            return
        self.world.clock.after(interval, self.run)
        if self.world.clock.now < self.stopped_until:
            return
        for shard in self.world.shards:
            self._ask(shard)
            self._await_gap(shard)

    def is_at_work(self) -> bool:
        moments = self.stopped_until, self.hangs_until
        return self.world.swarm.bridge_interval > 0 and max(moments) < self.world.clock.now

    def deliver_late(self, shard: ShardNode, late: float) -> None:
        """What is there now and was not applied."""
        self._deliver(shard, shard.matcher.applied, late)

    def _await_gap(self, shard: ShardNode) -> None:
        life = shard.life
        if not shard.alive:
            self.world.seen("bridge met a dead shard")
            return
        if self.standing.get(shard.index) == life:
            return
        been = self.been.get(shard.index, Marker(0, START))
        question = AwaitGap(1, shard.index, been.lineage, been.offset)

        def answered(gap: FromShard) -> None:
            assert isinstance(gap, Gap)
            if self.standing.get(shard.index) == life:
                del self.standing[shard.index]
            if self.is_at_work():
                self.world.seen("bridge told of a gap")
                self._deliver(shard, self._start(gap.applied))

        self.standing[shard.index] = life
        shard.later(self.world.net.delay(), lambda: shard.ask(question, answered))

    def _start(self, applied: int) -> int:
        if self.skips:
            self.skips -= 1
            self.world.seen("bridge skipped a range")
            return applied + 1
        if self.repeats:
            self.repeats -= 1
            self.world.seen("bridge repeated a range")
            return max(START, applied - 5)
        return applied

    def _deliver(self, shard: ShardNode, after: int, late: float = 0.0) -> None:
        try:
            reader = self._reader(shard)
            read = reader.read(Marker(reader.lineage, after), max_rows=50)
        except (RoskvaError, OSError):
            return
        if isinstance(read, Batch):
            self.been[shard.index] = Marker(reader.lineage, read.last)
            self._offer(shard, reader.lineage, read, late)
        elif not isinstance(read, Idle):
            self.world.seen("bridge met a hole")

    def _ask(self, shard: ShardNode) -> None:
        if shard.alive:
            question = Offer(1, shard.index)
            shard.later(self.world.net.delay(), lambda: shard.ask(question, lambda taken: None))

    def _offer(self, shard: ShardNode, lineage: int, batch: Batch, late: float) -> None:
        updates = coalesce(enumerate(batch.updates(), batch.base))
        offer = Offer(1, shard.index, lineage, batch.first, batch.last, updates)

        def answered(taken: FromShard) -> None:
            assert isinstance(taken, Taken)
            self.world.check_answer(shard, taken.lineage, taken.offset)
            if taken.offset < batch.first - 1 and self._reader(shard).lineage == taken.lineage:
                self.world.seen("bridge closed a gap")
                self._deliver(shard, taken.offset)
            self._await_gap(shard)

        delay = self.world.net.delay() + late
        shard.later(delay, lambda: shard.ask(offer, answered))

    def _reader(self, shard: ShardNode) -> LogReader:
        disk, reader = self.readers.get(shard.index, (None, None))
        if disk is not shard.disk or reader is None:
            reader = LogReader(shard.disk, "feed")
            self.readers[shard.index] = (shard.disk, reader)
        return reader
