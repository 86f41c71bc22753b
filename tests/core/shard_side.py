"""A shard for tests: the real host over dictionaries, and a list for the feed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeVar

import msgspec

from roskva.core.collector import CollectorConfig
from roskva.core.effects import (
    Apply,
    ClientRow,
    DropClient,
    DropLink,
    DropObject,
    DropRegistered,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromLink,
    LinkDown,
    LoadClient,
    Loaded,
    LoadObjects,
    LoadPage,
    ObjectRow,
    Page,
    Persist,
    Persisted,
    PutAbsent,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
    Write,
)
from roskva.core.expiry import ScannedClient
from roskva.core.matcher import Matcher, MatcherConfig, from_nothing
from roskva.core.rows import Rows
from roskva.errors import StorageUnavailable
from roskva.host.effects import Append, Appended, NotAppended, SetMarker
from roskva.host.shard import HostEffect, HostEvent, ShardHost
from roskva.model import NO_EPOCH, Key, Update, shard_epoch
from roskva.wire.links import Forget, Offer, Registered, Taken, ToShard

if TYPE_CHECKING:
    from tests.core.links import Link
    from tests.core.pair import Pair

T = TypeVar("T")
BRIDGE = "bridge"
"""The link of whoever offers ranges of the feed."""
COLLECTOR = "collector"
"""The link of whoever wants rows forgotten."""


class ShardSide:
    def __init__(self, pair: Pair, index: int, shards: int) -> None:
        self.pair, self.index, self.shards = pair, index, shards
        self.links: dict[int, Link] = {}
        # What is on disk.
        self.stored: PutShard | None = None
        self.objects: dict[Key, ObjectRow] = {}
        self.heads: dict[bytes, tuple[int, str]] = {}
        self.ends: dict[bytes, PutClient] = {}
        """The head of each row as it was last written."""
        self.absent = NO_EPOCH
        self.cells: dict[bytes, dict[Key, Registered]] = {}
        # The feed: an update's offset is its place in the list, from 1.
        self.feed: list[Update] = []
        self.lineage = 1
        self.readable_after = 0
        self.fast_path = True
        # What the host asked of the disk and of the feed, in order.
        self.asked: deque[HostEffect] = deque()
        self.disk_held = False
        self.disk_fails = False
        self.feed_full = False
        self.boots = 0
        self.offers: list[str] = []
        self.answers: list[tuple[str, int]] = []
        """To offers, by their names: up to which offset everything is durable."""
        self.forgotten: list[object] = []
        self.accounts: dict[bytes, bytes] = {}
        self.start()

    def start(self) -> None:
        self.boots += 1
        if self.stored is None:
            self.stored = self._without_a_row()
        self.host = ShardHost(
            MatcherConfig(self.index, self.shards),
            self.stored,
            boot=self.boots,
            assigned=0,
            wall_us=0,
            now=self.pair.now,
            absent=self.absent,
            keep_of=lambda app: self.pair.keep,
            collecting=CollectorConfig(objects=True),
            max_share=self.pair.max_share,
        )
        self.tell_feed_end()

    def _without_a_row(self) -> PutShard:
        """It finds the feed as it was before epochs were records in it; and later nothing."""
        if self.boots > 1:
            return from_nothing(self.lineage, self.pair.bits())
        return PutShard(shard_epoch(self.pair.bits()), self.lineage, 0)

    @property
    def matcher(self) -> Matcher:
        return self.host.matcher

    @property
    def rows(self) -> Rows:
        return self.host.rows

    def crash(self, *, losing: str = "") -> None:
        """Stop without a word and start again; `losing` "objects", "clients", or "everything"."""
        self.asked.clear()
        for link in list(self.links.values()):
            link.break_()
        self.links.clear()
        if losing in ("objects", "everything"):
            self.objects.clear()
            self.stored = None
        if losing in ("clients", "everything"):
            self.lose_clients()
        self.start()

    def lose_clients(self) -> None:
        self.heads.clear()
        self.ends.clear()
        self.cells.clear()

    def forget(self, client: bytes, session: int | None = None) -> None:
        """As garbage collection has seen it."""
        if session is None:
            session = self.heads[client][0]
        self.step(FromLink(COLLECTOR, Forget(7, self.index, [(client, session)])))

    # Publishing.

    def publish(self, update: Update) -> int:
        self.feed.append(update)
        offset = len(self.feed)
        if self.fast_path:
            self.step(Appended(offset, offset, [(offset, update)], []))
        return offset

    def apply(self, first: int, last: int) -> None:
        """As read from the feed."""
        self.step(Apply(self.lineage, first, last, self._entries(first, last)))

    def offer(self, first: int, last: int, name: str) -> None:
        """By the bridge."""
        self.offers.append(name)
        entries = self._entries(first, last)
        offer = Offer(len(self.offers), self.index, self.lineage, first, last, entries)
        self.step(FromLink(BRIDGE, offer))

    def _entries(self, first: int, last: int) -> list[tuple[int, Update]]:
        return [(offset, self.feed[offset - 1]) for offset in range(first, last + 1)]

    def tell_feed_end(self) -> None:
        self.step(FeedEnd(self.lineage, len(self.feed), self.pair.bits()))

    def begin_feed_anew(self) -> None:
        self.feed, self.lineage, self.readable_after = [], self.lineage + 1, 0
        self.tell_feed_end()

    # The host.

    def step(self, event: HostEvent) -> None:
        effects = self.host.step(event, self.pair.now)
        self.pair.note_step(self.host, effects)
        for effect in effects:
            self._carry_out(effect)

    def _carry_out(self, effect: HostEffect) -> None:
        match effect:
            case SendLink(link=int() as id, message=message):
                if id in self.links:
                    self.links[id].down.put(message)  # type: ignore[arg-type]
            case DropLink(link=int() as id):
                if id in self.links:
                    self.links[id].break_()
            case SendLink(link="bridge", message=Taken() as taken):
                self.answers.append((self.offers[taken.request - 1], taken.offset))
            case SendLink(link="collector", message=message):
                self.forgotten.append(message)
            case SetMarker():
                pass
            case _:
                self.asked.append(effect)

    def from_link(self, link: Link, message: ToShard) -> None:
        self.links[link.id] = link
        self.step(FromLink(link.id, message))

    def link_down(self, link: Link) -> None:
        if self.links.pop(link.id, None) is not None:
            self.step(LinkDown(link.id))

    def deadline(self) -> float | None:
        return self.host.next_deadline()

    def tick(self) -> None:
        self.step(Tick())

    # The disk and the feed: answered one after the other.

    def answer_one(self) -> bool:
        if self.disk_held or not self.asked:
            return False
        self.step(self.answer_to(self.asked.popleft()))
        return True

    def take(self, kind: type[T]) -> T:
        """Out of the queue, for a test that answers it by itself, or never."""
        found = next(effect for effect in self.asked if isinstance(effect, kind))
        self.asked.remove(found)
        return found

    def answer_to(self, effect: HostEffect) -> HostEvent:
        match effect:
            case ReadFeed(lineage=lineage, after=after):
                return self._read_feed(lineage, after)
            case Append(request=request) if self.feed_full:
                return NotAppended([request], StorageUnavailable("the disk is full"))
            case Append(request=request, updates=updates):
                first = len(self.feed) + 1
                self.feed += updates
                return Appended(first, len(self.feed), list(enumerate(updates, first)), [request])
            case Persist(id=id) | LoadObjects(id=id) | LoadClient(id=id) if self.disk_fails:
                return Failed(id)
            case LoadPage(id=id):
                return Failed(id) if self.disk_fails else Loaded(id, self._page(effect))
            case Persist(id=id, writes=writes):
                for write in writes:
                    self._write(write)
                return Persisted(id)
            case LoadObjects(id=id, keys=keys):
                return Loaded(id, {key: self.objects.get(key, ObjectRow()) for key in keys})
            case LoadClient(id=id, client=client):
                return Loaded(id, self._client_row(client))
        raise AssertionError(effect)

    def _read_feed(self, lineage: int, after: int) -> Event:
        last = len(self.feed)
        if lineage != self.lineage or after >= last:
            return FeedEnd(self.lineage, last, self.pair.bits())
        if after < self.readable_after:
            return FeedMissing(lineage, self.readable_after, self.pair.bits())
        updates = [(offset, self.feed[offset - 1]) for offset in range(after + 1, last + 1)]
        return Apply(lineage, after + 1, last, updates)

    def _client_row(self, client: bytes) -> ClientRow | None:
        if client not in self.heads:
            return None
        cells = list(self.cells.get(client, {}).values())
        return ClientRow(*self.heads[client], cells, self.accounts[client])

    def _page(self, asked: LoadPage) -> Page:
        found = sorted({*self.heads, *self.cells})
        page = asked.clients or [client for client in found if client > asked.after][: asked.rows]
        after = page[-1] if page and not asked.clients and page[-1] != found[-1] else None
        clients = [self._scanned(client) for client in page if client in found]
        objects = [] if after or asked.clients else list(self.objects.items())
        return Page(clients, objects, after, 0.0, self.pair.bits())

    def _scanned(self, client: bytes) -> ScannedClient:
        cells = self.cells.get(client, {})
        apps = tuple({key.partition("/")[0] for key in cells})
        if client not in self.heads:
            return ScannedClient(client, 0, False, registrations=len(cells), apps=apps)
        head = self.ends[client]
        return ScannedClient(
            *(client, head.session, True, head.seen_at, head.open, head.expiry_s),
            *(len(cells), apps, self.accounts[client]),
        )

    def _write(self, write: Write) -> None:
        match write:
            case PutObject(key=key, row=row, replace=replace):
                before = self.objects.get(key, ObjectRow())
                newer = (row.generation, row.version) > (before.generation, before.version)
                if replace or newer:
                    mark = row.mark if replace else before.mark
                    self.objects[key] = msgspec.structs.replace(row, mark=mark)
            case PutShard():
                known = () if self.stored is None else self.stored.generations
                generations = tuple({**dict(known), **dict(write.generations)}.items())
                self.stored = msgspec.structs.replace(write, generations=generations)
            case PutAbsent(epoch=epoch):
                self.absent = epoch
            case DropObject(key=key):
                self.objects.pop(key, None)
            case PutClient(client=client, session=session, application=application):
                if application is not None:
                    self.accounts[client] = write.account
                else:
                    application = self.heads.get(client, (0, ""))[1]
                self.heads[client], self.ends[client] = (session, application), write
            case PutRegistered(client=client, registered=cell):
                self.cells.setdefault(client, {})[cell.object] = cell
            case DropRegistered(client=client, key=key):
                self.cells.get(client, {}).pop(key, None)
            case DropClient(client=client):
                self.heads.pop(client, None)
                self.ends.pop(client, None)
                self.cells.pop(client, None)
