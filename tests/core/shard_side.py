"""A shard for tests: the real matcher and rows over dictionaries, and a list for the feed."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roskva.core.effects import (
    Applied,
    Apply,
    ClientRow,
    DropClient,
    DropLink,
    DropRegistered,
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
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
    Write,
)
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.rows import Rows
from roskva.model import Key, Update, shard_epoch
from roskva.wire.links import (
    CloseSession,
    Forget,
    OpenSession,
    Registered,
    ToShard,
    WriteRow,
    WriteRows,
)

if TYPE_CHECKING:
    from tests.core.links import Link
    from tests.core.pair import Pair

Machine = Matcher | Rows
_FOR_ROWS = OpenSession | WriteRow | WriteRows | CloseSession


class ShardSide:
    def __init__(self, pair: Pair, index: int, shards: int) -> None:
        self.pair, self.index, self.shards = pair, index, shards
        self.links: dict[int, Link] = {}
        # What is on disk.
        self.stored: PutShard | None = None
        self.objects: dict[Key, ObjectRow] = {}
        self.heads: dict[bytes, tuple[int, str]] = {}
        self.cells: dict[bytes, dict[Key, Registered]] = {}
        # The feed: an update's offset is its place in the list, from 1.
        self.feed: list[Update] = []
        self.lineage = 1
        self.readable_after = 0
        self.fast_path = True
        # What the machines asked of the disk and of the feed, in order.
        self.asked: deque[tuple[Machine, Effect]] = deque()
        self.disk_held = False
        self.disk_fails = False
        self.boots = 0
        self.answers: list[Applied] = []
        self.start()

    def start(self) -> None:
        self.boots += 1
        if self.stored is None:
            self.stored = PutShard(shard_epoch(self.pair.bits()), self.lineage, 0)
        self.matcher = Matcher(MatcherConfig(self.index, self.shards), self.stored)
        self.rows = Rows(self.boots, wall_us=0, now=self.pair.now)
        self.tell_feed_end()

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
        self.cells.clear()

    def forget(self, client: bytes) -> None:
        seen = Forget(1, self.index, [(client, self.heads[client][0])])
        self.step(self.rows, FromLink(0, seen))

    # Publishing.

    def publish(self, update: Update) -> int:
        self.feed.append(update)
        offset = len(self.feed)
        if self.fast_path:
            self.apply(offset, offset)
        return offset

    def apply(self, first: int, last: int, request: str | None = None) -> None:
        updates = [(offset, self.feed[offset - 1]) for offset in range(first, last + 1)]
        self.step(self.matcher, Apply(self.lineage, first, last, updates, request))

    def tell_feed_end(self) -> None:
        self.step(self.matcher, FeedEnd(self.lineage, len(self.feed), self.pair.bits()))

    def begin_feed_anew(self) -> None:
        self.feed, self.lineage, self.readable_after = [], self.lineage + 1, 0
        self.tell_feed_end()

    # The machines.

    def step(self, machine: Machine, event: Event) -> None:
        effects = machine.step(event, self.pair.now)
        self.pair.note_step(machine, effects)
        for effect in effects:
            self._carry_out(machine, effect)

    def _carry_out(self, machine: Machine, effect: Effect) -> None:
        match effect:
            case SendLink(link=int() as id, message=message):
                if id in self.links:
                    self.links[id].down.put(message)  # type: ignore[arg-type]
            case DropLink(link=int() as id):
                if id in self.links:
                    self.links[id].break_()
            case Applied():
                self.answers.append(effect)
            case _:
                self.asked.append((machine, effect))

    def from_link(self, link: Link, message: ToShard) -> None:
        self.links[link.id] = link
        machine: Machine = self.rows if isinstance(message, _FOR_ROWS) else self.matcher
        self.step(machine, FromLink(link.id, message))

    def link_down(self, link: Link) -> None:
        if self.links.pop(link.id, None) is not None:
            self.step(self.matcher, LinkDown(link.id))
            self.step(self.rows, LinkDown(link.id))

    def deadline(self) -> float | None:
        return self.matcher.next_deadline()

    def tick(self) -> None:
        self.step(self.matcher, Tick())

    # The disk and the feed: answered one after the other.

    def answer_one(self) -> bool:
        if self.disk_held or not self.asked:
            return False
        machine, effect = self.asked.popleft()
        self.step(machine, self.answer_to(effect))
        return True

    def take(self, kind: type[Effect]) -> tuple[Machine, Effect]:
        """Out of the queue, for a test that answers it by itself, or never."""
        found = next(item for item in self.asked if isinstance(item[1], kind))
        self.asked.remove(found)
        return found

    def answer_to(self, effect: Effect) -> Event:
        match effect:
            case ReadFeed(lineage=lineage, after=after):
                return self._read_feed(lineage, after)
            case Persist(id=id) | LoadObjects(id=id) | LoadClient(id=id) if self.disk_fails:
                return Failed(id)
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
        return ClientRow(*self.heads[client], list(self.cells.get(client, {}).values()))

    def _write(self, write: Write) -> None:
        match write:
            case PutObject(key=key, row=row, replace=replace):
                before = self.objects.get(key, ObjectRow())
                if replace or row.version > before.version:
                    mark = row.mark if replace else before.mark
                    self.objects[key] = msgspec.structs.replace(row, mark=mark)
            case PutShard():
                self.stored = write
            case PutClient(client=client, session=session, application=application):
                if application is None:
                    application = self.heads.get(client, (0, ""))[1]
                self.heads[client] = (session, application)
            case PutRegistered(client=client, registered=cell):
                self.cells.setdefault(client, {})[cell.object] = cell
            case DropRegistered(client=client, key=key):
                self.cells.get(client, {}).pop(key, None)
            case DropClient(client=client):
                self.heads.pop(client, None)
                self.cells.pop(client, None)
