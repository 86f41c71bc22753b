"""The process of a change source in the simulation: the real reader, changes log and direct flow.

One duty is carried out after the other, each after a moment, and the process may die in between
(`sources/follower.py`, `sources/flow.py`, which do the same on a thread and on a loop).

Beside it is another flow, as one on Spark is: it reads the same log, as late as it likes, and
publishes through registrars.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Final

from roskva.core.effects import FromLink as FromLinkEvent
from roskva.core.effects import LinkDown, LinkUp, SendLink, Tick
from roskva.errors import RoskvaError, StorageUnavailable, TooLate, Unavailable
from roskva.feed.base import START, Batch, Marker, Missing
from roskva.feed.latest import Latest, read_latest
from roskva.feed.log import LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.upkeep import Retention
from roskva.model import NO_GENERATION, START_OF_2025_S, Key, Update, next_generation, ordinal_of
from roskva.simulation.clients import APP
from roskva.simulation.database import stamp_of
from roskva.simulation.disk import Fate, PowerCut, SimulatedDisk
from roskva.simulation.network import Link
from roskva.simulation.oracle import Violation
from roskva.simulation.process import SimulatedProcess
from roskva.sources.change import body_of
from roskva.sources.changes import ChangesLog
from roskva.sources.direct import (
    DirectFlow,
    Effect,
    Event,
    MoveMarker,
    RaiseDoubt,
    ReadLog,
    Records,
    SawGeneration,
)
from roskva.sources.position import Doubt, Position, PostgresPosition
from roskva.sources.reader import (
    Alarm,
    AppendChanges,
    AppendDoubt,
    AskVisible,
    ChangesDurable,
    Confirm,
    DoubtRaised,
    LogLost,
    LogOpened,
    SourceReader,
    Visible,
)
from roskva.sources.reader import Effect as ReaderEffect
from roskva.sources.reader import Event as ReaderEvent
from roskva.wire.links import FromShard, ResetApp, UpdatesPublished

if TYPE_CHECKING:
    from roskva.simulation.network import Link as AnyLink
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.sourced import SourcedWorld

DIRECTORY: Final = "source"
LOG: Final = f"{DIRECTORY}/changes"
DIRECT: Final = "direct"
_HOUR: Final = 3600.0
_AGAIN_S: Final = 0.5
_READ_S: Final = 0.1
_MARKER_EVERY_S: Final = 1.0
_TIDY_EVERY_S: Final = 5.0
_COPY_EVERY_S: Final = 20.0
_KEPT_US: Final = 30 * 10**6
_MOST: Final = 6
"""Records that a flow reads together."""


class SourceNode(SimulatedProcess):
    world: SourcedWorld

    def __init__(self, world: SourcedWorld) -> None:
        super().__init__(world, "source")
        self.disk = SimulatedDisk()
        self.noted = Marker(0, START)
        """Up to where the world knows what versions stand for."""
        self.copies: list[tuple[int, SimulatedDisk]] = []
        """Backups, and how often the database had switched by then."""
        self.links: dict[int, AnyLink] = {}
        self.intact = True
        """No fault has taken anything from the log of changes."""
        self.doubts = 0

    def sessions(self) -> tuple[()]:
        """Of clients: there are none (`RegistrarNode.sessions`)."""
        return ()

    def start(self) -> None:
        world = self.world
        self.begin()
        self.links = {}
        self.queue: deque[ReaderEffect] = deque()
        self.connection = 0
        """Which one it is; 0: none."""
        self.connections = self.breaks = 0
        self.reached: Position | None = None
        self.asked: int | None = None
        try:
            self.changes = ChangesLog.open(
                self.disk,
                DIRECTORY,
                APP,
                lineage=world.dice.getrandbits(62),
                now_us=self.wall_us(),
                config=LogConfig(world.swarm.segment_bytes, Retention(_KEPT_US)),
            )
            self.log_reader = LogReader(self.disk, LOG)
            marker = self.changes.marker(DIRECT)
            self._note_versions()
        except (RoskvaError, PowerCut) as error:
            self._fail(error)
            return
        self.reader = SourceReader()
        self.machine = self.flow = DirectFlow(
            world.swarm.shards, marker, 5.0, None, passed=self.changes.last_reset(DIRECT)
        )
        self.moved = self.marked = marker
        for shard in world.shards:
            self.dial(shard.index)
        self._connect()
        self.later(_READ_S, self._read)
        self.later(_AGAIN_S, self._watch_links)
        self.later(_MARKER_EVERY_S, self._mark)
        self.later(_TIDY_EVERY_S, self._tidy)
        self.later(_COPY_EVERY_S, self._copy)
        self.step(Tick())

    def crash(self, fate: Fate = "lost") -> None:
        if not self.alive:
            return
        self.end()
        self.disk.crash(fate, self.world.dice.choice(("lost", "kept")))
        for link in list(self.links.values()):
            link.drop("registrar")

    def _fail(self, error: BaseException) -> None:
        """A disk that fails ends the process: what is durable is known after a start."""
        self.world.seen("source ended by its disk")
        self.crash("torn" if isinstance(error, PowerCut) else "kept")
        self.world.clock.after(1.0, self.start_again)

    def _soon(self) -> float:
        return self.world.dice.choice((0.0, 0.001, 0.01, 0.3)) * self.world.dice.random()

    def deadline(self) -> float:
        asks_at = self.reader.next_deadline()
        return min(self.flow.next_deadline(), inf if asks_at is None else asks_at)

    # The database.

    def _connect(self) -> None:
        try:
            opened = self.world.database.connect(self.changes.position)  # type: ignore[arg-type]
        except Unavailable:
            self.world.seen("database not there")
            self.later(_AGAIN_S, self._connect)
            return
        self.connections += 1
        self.connection, self.breaks = self.connections, self.world.database.breaks
        doubt = self.changes.own_doubt or opened.doubt
        self._note(f"reads after {opened.position}, ordinal {self.changes.ordinal}: {doubt}")
        if doubt is not None:
            self.world.seen(f"doubt: {doubt.cause}")
        self.follow(LogOpened(opened.position, doubt, opened.unseen))

    def _note(self, text: str) -> None:
        self.world.oracle.note(self.world.clock.now, f"source {text}")

    def _lost(self) -> None:
        self.world.seen("database lost")
        self.connection, self.reached = 0, None
        self.queue = deque(each for each in self.queue if not isinstance(each, AskVisible))
        self.follow(LogLost())
        self.later(_AGAIN_S, self._connect)

    def _read(self) -> None:
        self.later(_READ_S + self._soon(), self._read)
        if not self.connection:
            return
        try:
            if self.breaks != self.world.database.breaks:
                raise Unavailable("the connection is gone")
            if not self.reader.full:
                for event in self.world.database.read():
                    self.follow(event)
            if self.reached is not None and self.changes.reached(self.reached, self.wall_us()):
                self.world.database.confirm(self.reached)  # type: ignore[arg-type]
                self.reached = None
        except Unavailable as error:
            if isinstance(error, StorageUnavailable):
                self._fail(error)
            else:
                self._lost()
        except PowerCut as error:
            self._fail(error)

    def follow(self, event: ReaderEvent) -> None:
        for effect in self.reader.step(event, self.now()):
            self.queue.append(effect)
            if len(self.queue) == 1:
                self.later(self._soon(), self._next_duty)
        self.set_timer()

    def _next_duty(self) -> None:
        if self.queue:
            self._carry_out(self.queue[0])

    def _done(self, answer: ReaderEvent | None = None) -> None:
        self.queue.popleft()
        if self.queue:
            self.later(self._soon(), self._next_duty)
        if answer is not None:
            self.follow(answer)

    def _carry_out(self, effect: ReaderEffect) -> None:
        try:
            match effect:
                case AskVisible(xids=xids):
                    self._done(Visible(self.world.database.visible(xids)))
                case AppendChanges(parts=parts):
                    self.reached = None  # it is confirmed with what is appended now
                    self.changes.append(parts, self.wall_us())
                    self._note_versions()
                    self.later(self._soon(), self._appended)
                case AppendDoubt(doubt=doubt, position=position):
                    self._append_doubt(doubt, position, {})
                case Confirm(position=position):
                    self.reached = position
                    self._done()
                case Alarm(on=on):
                    self.world.seen(f"alarm {'on' if on else 'off'}")
                    self._done()
        except (StorageUnavailable, PowerCut) as error:
            self._fail(error)
        except Unavailable:
            self._lost_while_asking()

    def _lost_while_asking(self) -> None:
        self.queue.popleft()
        if self.connection:
            self._lost()
        if self.queue:
            self.later(self._soon(), self._next_duty)

    def _note_versions(self) -> None:
        lineage, last = self.changes.lineage, self.changes.last
        if self.noted.lineage != lineage:
            self.noted = Marker(lineage, START)
        after = min(self.noted.offset, last)
        while after < last:
            read = self.log_reader.read(Marker(lineage, after))
            if isinstance(read, Batch):
                ends = {int(body_of(u).transaction) for u in read.updates() if _is_end(u)}
                self.world.database.logged(ends)
                self.world.note_versions(read.entries())
            after = read.last
        self.noted = Marker(lineage, last)

    def _appended(self) -> None:
        self._look()
        self._done(ChangesDurable())

    def _append_doubt(
        self, doubt: Doubt, position: Position | None, generations: dict[int, int]
    ) -> None:
        """When every shard has said which generation it knows."""
        position = position or self.changes.position
        if position is None:
            self._done(ChangesDurable())
            return
        missing = [s for s in self.world.shards if s.index not in generations]
        for shard in missing:
            self._ask_generation(shard, generations)
        if missing:
            self.later(_AGAIN_S, lambda: self._append_doubt(doubt, position, generations))
            return
        wall_s = START_OF_2025_S + self.world.clock.now * _HOUR
        ordinal = self.changes.next_ordinal(next_generation(generations.values(), wall_s))
        self.world.operator.generations[APP].add(ordinal)
        self.reached = None
        try:
            self.changes.doubt(doubt, ordinal, position, self.wall_us())
        except (StorageUnavailable, PowerCut) as error:
            self._fail(error)
            return
        assert isinstance(position, PostgresPosition)
        self.doubts += 1
        self._note(f"has doubt {ordinal} in its log: {doubt}")
        self.world.database.begin_after(position)
        self.world.seen("doubt in the log")
        self.later(self._soon(), self._appended)

    def _ask_generation(self, shard: ShardNode, generations: dict[int, int]) -> None:
        def answered(told: FromShard) -> None:
            if isinstance(told, UpdatesPublished):
                generations[shard.index] = told.versions[0]

        if shard.alive:
            question = ResetApp(1, APP, NO_GENERATION)
            shard.later(self.world.net.delay(), lambda: shard.ask(question, answered))

    # The direct flow.

    def step(self, event: Event) -> None:
        super().step(event)
        if isinstance(event, Tick) and self.alive:
            self.follow(event)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case SendLink(link=int() as shard, message=message):
                passed = self.flow.passed
                if passed is not None and message == passed.message:
                    self.world.seen("reset asked for again")
                if shard in self.links:
                    self.links[shard].send("shard", message)
            case ReadLog(after=after):
                self.asked = after
                self.later(self._soon(), self._look)
            case MoveMarker(offset=offset):
                if offset < self.moved:
                    raise Violation(f"the marker of the flow fell from {self.moved} to {offset}")
                self.moved = offset
                self._check_passed()
            case RaiseDoubt(doubt=doubt):
                self.world.seen("hole in the log of changes")
                self.later(self._soon(), lambda: self.follow(DoubtRaised(doubt)))
            case SawGeneration(generation=generation):
                self._compare(generation)

    def _check_passed(self) -> None:
        """A doubt that the marker passes is in the feeds of all shards that have lost nothing."""
        passed = self.flow.passed
        generation = NO_GENERATION if passed is None else passed.message.generation
        for shard in self.world.shards:
            kept = shard.intact or self.world.healed
            knows = shard.alive and kept and shard.matcher.caught_up
            if knows and shard.host.generation_of(APP) < generation:
                raise Violation(f"the marker has passed a doubt that {shard.name} does not know")

    def _compare(self, generation: int) -> None:
        """When no doubt is on its way into the log."""
        if any(isinstance(each, AppendDoubt) for each in self.queue):
            self.later(_AGAIN_S, lambda: self._compare(generation))
        elif generation > self.changes.ordinal:
            self.world.seen("reset by somebody else")
            self.follow(DoubtRaised(Doubt("reset", "somebody else has reset the app")))

    def _look(self) -> None:
        """As far as the log is durable."""
        if self.asked is None or self.changes.last <= self.asked:
            return
        after = self.asked
        end = min(self.changes.last, after + self.world.dice.randrange(1, _MOST))
        try:
            read = read_latest(self.log_reader, Marker(self.changes.lineage, after), end)
        except StorageUnavailable:
            self.later(_AGAIN_S, self._look)
            return
        if isinstance(read, Latest):
            self.asked = None
            self.step(Records(read.entries, read.last, read.superseded))
        elif isinstance(read, Missing):
            self.asked = None
            self.step(read)

    def _mark(self) -> None:
        self.later(_MARKER_EVERY_S, self._mark)
        self._keep(lambda: self.changes.set_marker(DIRECT, self.moved))

    def _tidy(self) -> None:
        self.later(_TIDY_EVERY_S, self._tidy)
        self._keep(lambda: self.changes.tidy(self.wall_us()))

    def _copy(self) -> None:
        self.later(_COPY_EVERY_S, self._copy)
        self.copies.append((self.world.database.switches, self.disk.copy()))

    def _keep(self, do: Callable[[], object]) -> None:
        try:
            do()
        except (StorageUnavailable, PowerCut) as error:
            self._fail(error)

    # Links, as those of a registrar; but by a socket that ends with either process.

    def _watch_links(self) -> None:
        self.later(_AGAIN_S, self._watch_links)
        for link in list(self.links.values()):
            if link.shard.life != link.lives["shard"]:
                self.link_down(link)

    def dial(self, shard: int) -> None:
        target = self.world.shards[shard]
        if shard in self.links:
            return
        if not target.alive:
            self.later(_AGAIN_S, lambda: self.dial(shard))
            return
        self.links[shard] = Link(self.world, self, target)
        self.later(0.0, lambda: self.step(LinkUp(shard)))

    def from_link(self, link: AnyLink, message: FromShard) -> None:
        shard = link.shard.index
        if self.links.get(shard) is not link:
            return
        if isinstance(message, UpdatesPublished) and message.request:
            part = self.flow.submissions.parts.get(message.request)
            if part is not None:
                self.world.acknowledge(part.updates, message.versions)
        self.step(FromLinkEvent(shard, message))

    def link_down(self, link: AnyLink) -> None:
        shard = link.shard.index
        if self.links.get(shard) is link:
            del self.links[shard]
            self.later(0.0, lambda: self.step(LinkDown(shard)))
            self.later(_AGAIN_S, lambda: self.dial(shard))


class LateFlow:
    """Reads the log of changes as far as it likes, and publishes through registrars."""

    def __init__(self, world: SourcedWorld) -> None:
        self.world = world
        self.disk: SimulatedDisk | None = None
        self.reader: LogReader | None = None
        self.lineage = self.offset = 0
        self.rests_until = 0.0

    def run(self) -> None:
        world = self.world
        slowest = (3.0,) if world.healed else (0.1, 1.0, 10.0, 40.0)
        pause = world.dice.choice(slowest) * world.dice.random()
        if world.clock.now < self.rests_until:
            pause += self.rests_until - world.clock.now
        world.clock.after(pause, self._read)

    def _read(self) -> None:
        node = self.world.source
        try:
            reader = self.reader
            if reader is None or self.disk is not node.disk:
                self.disk, self.reader = node.disk, LogReader(node.disk, LOG)
                reader = self.reader
            if reader.lineage != self.lineage:
                self.lineage, self.offset = reader.lineage, 0
            read = reader.read(Marker(self.lineage, self.offset), self.world.dice.randrange(1, 20))
        except (RoskvaError, OSError):
            self.run()
            return
        if isinstance(read, Missing):
            self.offset = read.last
        if not isinstance(read, Batch):
            self.run()
            return
        known = self.world.oracle.stamp_of  # else it was damaged before anybody had read it
        entries = [
            (offset, update)
            for offset, update in read.entries()
            if offset <= node.changes.last
            and (update.reset or (update.object, update.version) in known)
        ]
        latest: dict[Key, Update] = {u.object: u for _, u in entries if not u.reset}
        self.offset = entries[-1][0] if entries else self.offset
        self._publish(list(latest.values()))

    def _publish(self, updates: list[Update]) -> None:
        """One after the other, each until it is settled; then it reads on."""
        if not updates:
            self.run()
            return
        world, update = self.world, updates[0]
        told = Update(update.object, update.version, published_at=update.published_at)
        done: list[object] = []

        def answered(outcome: int | RoskvaError) -> None:
            if done:
                return
            done.append(outcome)
            if isinstance(outcome, TooLate):
                world.seen("late version refused")
            elif isinstance(outcome, RoskvaError):
                world.clock.after(0.5, lambda: self._publish(updates))
                return
            else:
                if ordinal_of(update.version) < max(world.operator.generations[APP]):
                    world.seen("late version published")
                world.acknowledge([told], [outcome])
            world.clock.after(world.net.delay(), lambda: self._publish(updates[1:]))

        def again() -> None:
            if not done:
                done.append(None)
                self._publish(updates)

        registrar = world.pick_registrar()
        world.clock.after(12.0, again)
        if registrar is not None:
            registrar.later(world.net.delay(), lambda: registrar.submit(told, answered))


def _is_end(update: Update) -> bool:
    return update.source is not None and not update.reset


def stamp_in(update: Update) -> int:
    return stamp_of(body_of(update).row)
