"""The state process of a scenario: the real host over a store and a feed in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from tests.scenarios.cluster import Cluster, Node, ScriptError
from tests.scenarios.registrar import Link

from roskva.core.collector import CollectorConfig
from roskva.core.effects import (
    Apply,
    DropLink,
    Event,
    FeedEnd,
    FeedMissing,
    FromLink,
    LinkDown,
    LoadClient,
    Loaded,
    LoadObjects,
    Persist,
    Persisted,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.matcher import Matcher, MatcherConfig, from_nothing
from roskva.core.rows import Rows
from roskva.host.effects import Append, Appended, SetMarker
from roskva.host.shard import HostEffect, HostEvent, ShardHost
from roskva.model import Update
from roskva.store import rows as layout
from roskva.store.memory import MemoryStore, Snapshot
from roskva.wire.links import ToShard

FEED_TICK: Final = 5.0
NO_COLLECTING: Final = CollectorConfig(first_delay=1e9)


class Feed:
    """The updates after `start`, in one lineage."""

    def __init__(self, lineage: int) -> None:
        self.lineage = lineage
        self.start = 0
        self.updates: list[Update] = []

    def last(self) -> int:
        return self.start + len(self.updates)

    def append(self, update: Update) -> int:
        self.updates.append(update)
        return self.last()

    def forget_up_to(self, offset: int) -> None:
        del self.updates[: offset - self.start]
        self.start = offset

    def read(self, asked: ReadFeed, bits: int) -> Apply | FeedEnd | FeedMissing:
        if asked.lineage != self.lineage or asked.after >= self.last():
            return FeedEnd(self.lineage, self.last(), bits)
        if asked.after < self.start:
            return FeedMissing(self.lineage, self.start, bits)
        rest = self.updates[asked.after - self.start :]
        rows = list(enumerate(rest, start=asked.after + 1))
        return Apply(self.lineage, asked.after + 1, self.last(), rows)


class ShardNode(Node):
    def __init__(self, cluster: Cluster, name: str, index: int) -> None:
        super().__init__(cluster, name)
        self.index = index
        suffix = name.removeprefix("shard")
        self.store_name, self.feed_name = f"store{suffix}", f"feed{suffix}"
        self.store = MemoryStore()
        self.feed = self._new_feed()
        self.snapshot: Snapshot | None = None
        self.links: dict[Link, None] = {}

    def _new_feed(self) -> Feed:
        return Feed(self.cluster.dice.getrandbits(62))

    def start(self) -> None:
        self.begin()
        self.links = {}
        cells = self.store.read(layout.SHARD_ROW)
        row = layout.shard_row(cells)
        if row is None:
            row = from_nothing(self.feed.lineage, self._bits())
        boot = max(layout.boot_of(cells) + 1, self.cluster.wall_us() // 10**6)
        self.store.write([*layout.operations_of(row), layout.put_boot(boot)], sync=True)
        self._say("storage", f"starts from {self.cluster.notation.write(row)}")
        self.host = ShardHost(
            MatcherConfig(self.index, self.cluster.settings.shards),
            row,
            boot=boot,
            assigned=layout.assigned_of(cells),
            wall_us=self.cluster.wall_us(),
            now=self.now(),
            collecting=NO_COLLECTING,
        )
        self._from_feed(FeedEnd(self.feed.lineage, self.feed.last(), self._bits()))
        self.after(FEED_TICK, self._feed_tick)

    def crash(self) -> None:
        self.end()
        self._say("clients", "crashes")
        for link in list(self.links):
            link.break_off()

    @property
    def matcher(self) -> Matcher:
        return self.host.matcher

    @property
    def rows(self) -> Rows:
        return self.host.rows

    def tick(self) -> None:
        self.step(Tick())

    def step(self, event: HostEvent) -> None:
        self._carry_out(self.host.step(event, self.now()))
        self.wake_at(self.host.next_deadline())

    def _carry_out(self, effects: list[HostEffect]) -> None:
        notation = self.cluster.notation
        for effect in effects:
            match effect:
                case Persist(writes=writes):
                    text = "persist " + ", ".join(map(notation.write, writes))
                    self._ask_store(text, partial(self._persist, effect))
                case LoadObjects(keys=keys):
                    text = "load " + ", ".join(keys)
                    self._ask_store(text, partial(self._load_objects, effect))
                case LoadClient(client=client):
                    text = f"load {notation.client(client)}"
                    self._ask_store(text, partial(self._load_client, effect))
                case ReadFeed(lineage=lineage, after=after):
                    text = f"read after {notation.place(lineage, after)}"
                    self._ask_feed(text, effect)
                case Append(updates=[record]):
                    text = f"append {notation.update(record)}"
                    self._send_to_feed(text, partial(self._append, effect))
                case SendLink(link=Link() as link, message=message):
                    link.to_registrar(message)  # type: ignore[arg-type]
                case DropLink(link=Link() as link):
                    link.break_off()

    # The store.

    def _ask_store(self, text: str, do: Callable[[], None]) -> None:
        ends = (self.name, self.store_name)
        self.cluster.wires.send("storage", ends, text, self.in_this_life(do))

    def _store_says(self, text: str, event: Event) -> None:
        arrive = self.in_this_life(lambda: self.step(event))
        self.cluster.wires.send("storage", (self.store_name, self.name), text, arrive)

    def _persist(self, effect: Persist) -> None:
        for batch in layout.batches(effect.writes):
            self.store.write(batch, sync=True)
        self._store_says("persisted", Persisted(effect.id))

    def _load_objects(self, effect: LoadObjects) -> None:
        cells = self.store.read_cells(layout.object_cells(effect.keys))
        rows = layout.object_rows(effect.keys, cells)
        text = f"loaded {self.cluster.notation.loaded(rows)}"
        self._store_says(text, Loaded(effect.id, rows))

    def _load_client(self, effect: LoadClient) -> None:
        row = layout.client_row(self.store.read(layout.client_key(effect.client)))
        text = f"loaded {self.cluster.notation.loaded(row)}"
        self._store_says(text, Loaded(effect.id, row))

    # The feed.

    def publish(self, update: Update) -> None:
        """Durable at once; then the fast path."""
        offset = self.feed.append(update)
        place = self.cluster.notation.place(self.feed.lineage, offset)
        text = f"{place} {self.cluster.notation.update(update)}"
        self.cluster.trace.say("storage", f"publisher > {self.feed_name}", text)
        if self.alive:
            entries = [(offset, update)]
            range_ = Apply(self.feed.lineage, offset, offset, entries)
            self._feed_says(range_, Appended(offset, offset, entries, []))

    def _ask_feed(self, text: str, asked: ReadFeed) -> None:
        def read() -> None:
            answer = self.feed.read(asked, self._bits())
            self._feed_says(answer, answer)

        self._send_to_feed(text, read)

    def _send_to_feed(self, text: str, do: Callable[[], None]) -> None:
        ends = (self.name, self.feed_name)
        self.cluster.wires.send("storage", ends, text, self.in_this_life(do))

    def _append(self, effect: Append) -> None:
        [record] = effect.updates
        offset = self.feed.append(record)
        entries = [(offset, record)]
        range_ = Apply(self.feed.lineage, offset, offset, entries)
        self._feed_says(range_, Appended(offset, offset, entries, [effect.request]))

    def _feed_says(self, said: Apply | FeedEnd | FeedMissing, event: HostEvent) -> None:
        ends = (self.feed_name, self.name)
        arrive = self.in_this_life(lambda: self.step(event))
        self.cluster.wires.send("storage", ends, self.cluster.notation.from_feed(said), arrive)

    def _feed_tick(self) -> None:
        """How far the feed is: told every so often, and worth a line only if it has a result."""
        self.after(FEED_TICK, self._feed_tick)
        end = FeedEnd(self.feed.lineage, self.feed.last(), self._bits())
        self._from_feed(end, quiet=True)

    def _from_feed(self, end: FeedEnd, quiet: bool = False) -> None:
        effects = self.host.step(end, self.now())
        if not quiet or any(not isinstance(effect, SetMarker) for effect in effects):
            who = f"{self.feed_name} > {self.name}"
            self.cluster.trace.say("storage", who, self.cluster.notation.from_feed(end))
        self._carry_out(effects)
        self.wake_at(self.host.next_deadline())

    # Links.

    def from_link(self, link: Link, message: ToShard) -> None:
        self.links[link] = None
        self.step(FromLink(link, message))

    def link_down(self, link: Link) -> None:
        if self.alive and link in self.links:
            del self.links[link]
            self.step(LinkDown(link))

    # Disasters, while the process is down.

    def take_snapshot(self) -> None:
        self.snapshot = self.store.snapshot()

    def restore(self) -> None:
        if self.alive or self.snapshot is None:
            raise ScriptError("restoring takes a snapshot, and a shard that is down")
        self.store.restore(self.snapshot)

    def lose_feed(self) -> None:
        self.feed = self._new_feed()

    def lose_store(self) -> None:
        self.store = MemoryStore()

    def _bits(self) -> int:
        return self.cluster.dice.getrandbits(64)

    def _say(self, kind: str, text: str) -> None:
        self.cluster.trace.say(kind, self.name, text)
