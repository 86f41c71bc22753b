"""The lower half of a cluster under exploration: one shard with its matcher, rows, store and feed.

Every method changes the state it is given.
"""

from roskva.core.effects import ObjectRow
from roskva.simulation.exploration import judge
from roskva.simulation.exploration.bounds import Bounds
from roskva.simulation.exploration.disk import answer_of, carry_out, read_feed
from roskva.simulation.exploration.machines import Frames, Words
from roskva.simulation.exploration.servers import AllRows, Matchers
from roskva.simulation.exploration.state import CLOSE, START, Disk, Link, State
from roskva.wire.links import CloseSession, OpenSession, WriteRow, WriteRows

_ROW_MESSAGES = (OpenSession, WriteRow, WriteRows, CloseSession)
_BOOT_BITS = 32


class Shard:
    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.frames = Frames()
        self.matchers = Matchers(self.frames)
        self.rows = AllRows(self.frames)

    def no_rows(self) -> list[int]:
        return [self.frames.thing(ObjectRow())] * self.bounds.objects

    # Its links and machines.

    def deliver_to_shard(self, state: State, link: Link) -> None:
        frame = link.to_shard.pop(0)
        if frame == CLOSE:
            self.drop_link(state, link)
        elif isinstance(self.frames.messages[frame], _ROW_MESSAGES):
            self.to_rows(state, ("link", link.handle(), frame))
        else:
            self.to_matcher(state, ("link", link.handle(), frame))

    def drop_link(self, state: State, link: Link) -> None:
        """By the shard, or because the registrar's end is gone."""
        link.shard_open = False
        link.to_shard = []
        if link.registrar_open and not link.silent:
            link.to_registrar.append(CLOSE)
        self.to_matcher(state, ("link down", link.handle()))
        self.to_rows(state, ("link down", link.handle()))

    def to_matcher(self, state: State, event: Words) -> None:
        disk = state.disk
        before = self.matchers.facts[state.matcher].epoch
        busy = max((n[2] for n in self._storage(disk) if n[0] == "matcher"), default=0)
        state.matcher, effects = self.matchers.step(state.matcher, (*event, busy))
        if self.matchers.facts[state.matcher].epoch != before:
            disk.epochs += 1
        self._from_shard(state, effects)

    def _storage(self, disk: Disk) -> list[Words]:
        return [self.frames.messages[n] for n in (*disk.operations, *disk.answers)]

    def to_rows(self, state: State, event: Words) -> None:
        disk = state.disk
        client = self._concerns(state, event)
        lowest = disk.boot << _BOOT_BITS
        sessions = max(disk.newest_session(client), lowest) if client else lowest
        state.rows, effects = self.rows.step(state.rows, (*event, sessions))
        *effects_, (_, newest) = effects
        if client and newest != sessions:
            others = [item for item in disk.sessions if item[0] != client]
            disk.sessions = sorted([*others, (client, newest)])
        self._from_shard(state, tuple(effects_))

    def _concerns(self, state: State, event: Words) -> bytes | None:
        """The client whose session this event may number."""
        match event:
            case ("link", _, frame) if type(self.frames.messages[frame]) is OpenSession:
                client: bytes = self.frames.messages[frame].client
                return client
            case ("loaded", id, _):
                return self.rows.facts[state.rows].opening.get(id)
            case _:
                return None

    def _from_shard(self, state: State, effects: tuple[Words, ...]) -> None:
        for effect in effects:
            match effect:
                case ("link", handle, frame):
                    link = self._shard_link(state, handle)
                    if link is not None and link.registrar_open and not link.silent:
                        link.to_registrar.append(frame)
                case ("operation", operation):
                    judge.accepted(state.disk, self.frames.messages[operation])
                    state.disk.operations.append(operation)
                case ("read", lineage, after):
                    state.disk.reads.append((lineage, after))
                case ("applied", lineage, offset):
                    judge.answered(state.disk, lineage, offset)
                case ("drop link", handle):
                    link = self._shard_link(state, handle)
                    if link is not None:
                        self.drop_link(state, link)

    def _shard_link(self, state: State, handle: tuple[int, int]) -> Link | None:
        return next((x for x in state.links if x.handle() == handle and x.shard_open), None)

    def tell_feed_end(self, state: State) -> None:
        disk = state.disk
        self.to_matcher(state, ("feed end", disk.feed_lineage, disk.last(), disk.epochs))

    # Storage.

    def operate(self, state: State) -> None:
        disk = state.disk
        whose, what, id, _ = operation = self.frames.messages[disk.operations.pop(0)]
        if what == "load":
            disk.answers.append(self.frames.thing(answer_of(disk, operation)))
            return
        self._write(disk, operation)
        self._answer(state, whose, ("persisted", id))

    def _write(self, disk: Disk, operation: Words) -> None:
        for write in operation[3]:
            carry_out(disk, write, self.frames)
        judge.marker(disk, [self.frames.messages[row].version for row in disk.objects])

    def fail(self, state: State) -> None:
        whose, _, id, _ = self.frames.messages[state.disk.operations.pop(0)]
        self._answer(state, whose, ("failed", id))

    def answer(self, state: State) -> None:
        whose, *event = self.frames.messages[state.disk.answers.pop(0)]
        self._answer(state, whose, tuple(event))

    def _answer(self, state: State, whose: str, event: Words) -> None:
        if whose == "matcher":
            self.to_matcher(state, event)
        else:
            self.to_rows(state, event)

    def read(self, state: State) -> None:
        lineage, after = state.disk.reads.pop(0)
        self.to_matcher(state, read_feed(state.disk, lineage, after))

    def publish(self, state: State, index: int, handed_over: bool = True) -> None:
        disk = state.disk
        state.published[index] += 1
        update = (index, state.published[index])
        disk.feed.append(update)
        if handed_over:
            event = ("apply", disk.feed_lineage, disk.last(), (update,), None)
            self.to_matcher(state, event)

    def deliver_again(self, state: State, first: int) -> None:
        """The bridge hands over all from this offset on, and waits for the answer."""
        disk = state.disk
        updates = tuple(disk.feed[first - 1 :])
        self.to_matcher(state, ("apply", disk.feed_lineage, first, updates, "bridge"))

    def lose_feed(self, state: State) -> None:
        disk = state.disk
        disk.feed_first = disk.last() + 1
        disk.lost_in = disk.epochs

    def restart_shard(self, state: State, written: int, lost: str = "") -> None:
        """Of the operations under way the first few were carried out."""
        disk = state.disk
        for number in disk.operations[:written]:
            operation = self.frames.messages[number]
            if operation[1] == "persist":
                self._write(disk, operation)
        disk.operations, disk.answers, disk.reads = [], [], []
        for link in state.links:
            if link.shard_open:
                link.shard_open = False
                link.to_shard = []
                if link.registrar_open and not link.silent:
                    link.to_registrar.append(CLOSE)
        self._lose(disk, lost)
        disk.boot += 1
        state.matcher = self.matchers.start(disk.epoch, disk.lineage, disk.applied)
        state.rows = self.rows.start()
        self.tell_feed_end(state)

    def _lose(self, disk: Disk, lost: str) -> None:
        if lost == "rows":
            disk.rows = []
        elif lost == "feed":
            disk.feed_lineage += 1
            disk.feed, disk.feed_first = [], 1
        elif lost == "state":
            disk.objects = self.no_rows()
            disk.epochs += 1
            disk.epoch, disk.lineage, disk.applied = disk.epochs, disk.feed_lineage, START
