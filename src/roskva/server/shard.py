"""One shard at work: its matcher and its client rows, over its feed and its store.

The two machines of the core run on the event loop; every wait for a disk is on a thread: one that
commits to the feeds of all shards here, one that owns the store, one that reads the feed back. A
publish is answered when it is durable, and in the same turn handed to the matcher: the fast path.

Whoever wants something of the shard opens a *link*, over a socket or in this process alike.
"""

import asyncio
import logging
import math
import re
import secrets
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple, Protocol, TypeVar

import msgspec

from roskva.answer import Answered
from roskva.config import FeedConfig
from roskva.core.effects import (
    Applied,
    Apply,
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
    Persist,
    Persisted,
    PutShard,
    ReadFeed,
    SendLink,
)
from roskva.core.matcher import Matcher, MatcherConfig
from roskva.core.rows import Rows
from roskva.disk import RealDisk
from roskva.errors import BadInput, RoskvaError
from roskva.feed.base import START, Batch, Committed, Foreign, Idle, Locked, Marker, Missing
from roskva.feed.commit import Committer, GroupCommit, wall_clock_us
from roskva.feed.log import Log, LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.upkeep import Retention
from roskva.metrics import Times
from roskva.model import NO_VERSION, PROBE_APPS, Update, is_probe, shard_epoch
from roskva.server.assigning import Assigning
from roskva.server.directory import DataDirectory, OwnedShard
from roskva.server.stepper import Stepper
from roskva.store import rows as layout
from roskva.store.rocksdb import RocksStore
from roskva.store.worker import StoreWorker
from roskva.wire.links import (
    CloseSession,
    Forget,
    FromShard,
    Offer,
    OpenSession,
    Taken,
    ToShard,
    WriteRow,
    WriteRows,
)

T = TypeVar("T")
_log = logging.getLogger(__name__)
_ROW_MESSAGES: Final = (OpenSession, WriteRow, WriteRows, CloseSession, Forget)
_SLICE: Final = 1000
"""Updates applied in one step."""
_TICK_S: Final = 1.0
_MARKER: Final = "matcher"
_BRIDGE_GONE_S: Final = 10.0
_BRIDGE_PATIENCE_S: Final = 2.0
_FLUSH_DELAY_S: Final = 0.25
"""Long enough for thousands to be told first, and for what changes often to be written rarely."""
_LOCK_PATIENCE_S: Final = 5.0
"""The processes of a node that was killed are gone by then, and their locks with them."""


class Link(Protocol):
    """The shard's end of a link."""

    def send(self, message: FromShard) -> None: ...

    def drop(self) -> None: ...


class _Opened(msgspec.Struct, frozen=True):
    """What has to wait for a disk before a shard can start."""

    owned: OwnedShard
    log: Log
    fsync_times: Times
    store: RocksStore
    stored: PutShard
    boot: int
    assigned: int


class _Offered(NamedTuple):
    """Who is to be answered, when what it offered is durable."""

    link: Link
    request: int


class Shard:
    """Made by `Shard.open`. `run` it, and `close` it when that has ended."""

    def __init__(
        self,
        opened: _Opened,
        shards: int,
        broken: Callable[[Exception], None],
        committer: Committer,
        fast_path: Callable[[str], bool],
    ) -> None:
        self.number = opened.owned.number
        self.owned = opened.owned
        self.links: dict[int, Link] = {}
        self.lineage = opened.log.lineage
        self.feed_end = opened.log.recovered.last
        self.published = 0
        self.probe_published = 0
        self._begins_after = opened.log.recovered.next - 1
        self._voids: list[range] = []
        """Offsets since then that stand for nothing, and that the matcher has not passed."""
        self._slow: list[int] = []
        """Offsets of the prober's own that are not on the fast path; likewise."""
        self.store = StoreWorker(opened.store, f"store-{self.number}")
        self.assigning = Assigning(self.store, opened.assigned)
        self._reader = opened.log.reader()
        self._feed = GroupCommit(opened.log, committer, on_commit=self._committed)
        self.append_times, self.fsync_times = self._feed.times, opened.fsync_times
        self._reading = ThreadPoolExecutor(1, f"read-{self.number}")
        self._loop = asyncio.get_running_loop()
        self._fast_path = fast_path
        self._bridge_heard_at = -math.inf
        self._link_ids = 0
        self._marked = 0
        self._closing = False
        self.matcher = Matcher(
            MatcherConfig(self.number, shards, flush_delay=_FLUSH_DELAY_S), opened.stored
        )
        self.rows = Rows(opened.boot, wall_clock_us(), time.monotonic())
        self._matching = Stepper(
            self.matcher,
            lambda effect: self._carry_out(effect, self._matching),
            self.matcher.next_deadline,
            broken,
        )
        self._rowing = Stepper(
            self.rows,
            lambda effect: self._carry_out(effect, self._rowing),
            lambda: None,
            broken,
        )

    @classmethod
    async def open(
        cls,
        data: DataDirectory,
        number: int,
        feed: FeedConfig,
        committer: Committer,
        broken: Callable[[Exception], None],
        fast_path: Callable[[str], bool] = lambda app: True,
    ) -> "Shard":
        """`fast_path`: whether an app's updates go to the matcher as they are committed."""
        opened = await asyncio.to_thread(_open, data, number, feed)
        shard = cls(opened, data.meta.shards, broken, committer, fast_path)
        shard._matching.step(shard._feed_end())
        return shard

    async def run(self) -> None:
        """What has to be done every so often."""
        while True:
            await asyncio.sleep(_TICK_S)
            self._matching.step(self._feed_end())
            await self._set_marker()

    async def close(self) -> None:
        """Finish what was asked for; nothing is lost if this never happens."""
        self._closing = True
        for link in list(self.links.values()):
            link.drop()
        await self._feed.close()
        await self.store.close()
        self._matching.stop()
        self._rowing.stop()
        self._reading.shutdown()
        self.owned.close()

    async def checkpoint(self, name: str) -> None:
        """Of the store, for somebody to read and then remove; the next owner removes it, too."""
        if not re.fullmatch(r"[a-z0-9-]{1,64}", name):
            raise BadInput(f"no name for a checkpoint: {name!r}")
        await self.store.checkpoint(self.owned.checkpoints_path / name)

    # Publishing.

    def publish(self, updates: Sequence[Update], answered: Answered[list[int]]) -> None:
        """The answer is the versions of these updates, once they are durable."""
        versions = [update.version for update in updates]
        if NO_VERSION in versions:
            publish = partial(self._publish_assigned, updates, answered)
            self.assigning.take(versions.count(NO_VERSION), publish)
            return

        def durable(first: int | RoskvaError) -> None:
            answered(first if isinstance(first, RoskvaError) else versions)

        self._feed.publish(updates, durable)

    def _publish_assigned(
        self, updates: Sequence[Update], answered: Answered[list[int]], taken: range | RoskvaError
    ) -> None:
        if isinstance(taken, RoskvaError):
            answered(taken)
            return
        assigned = iter(taken)
        updates = [
            msgspec.structs.replace(update, version=next(assigned))
            if update.version == NO_VERSION
            else update
            for update in updates
        ]
        self.publish(updates, answered)

    def _committed(self, committed: Committed) -> None:
        """The fast path. What an app does not want on it is left out, as a gap that is closed from
        the feed: by the bridge, or by us if there is none."""
        if committed.base > committed.first:
            self._voids.append(range(committed.first, committed.base))
        self.feed_end = committed.last
        self._slow = [offset for offset in self._slow if offset > self.matcher.applied]
        apps = {update.object.partition("/")[0] for update in committed.updates}
        probes = 0
        if not apps.isdisjoint(PROBE_APPS):
            probes = sum(is_probe(update.object) for update in committed.updates)
        self.published += len(committed.updates) - probes
        self.probe_published += probes
        first = committed.first
        if all(map(self._fast_path, apps)):
            self._apply(first, committed.entries())
            return
        for fast, run in groupby(committed.entries(), self._is_fast):
            entries = list(run)
            if fast:
                self._apply(first, entries)
            else:
                self._slow += [o for o, u in entries if is_probe(u.object)]
            first = entries[-1][0] + 1

    def _is_fast(self, entry: tuple[int, Update]) -> bool:
        return self._fast_path(entry[1].object.partition("/")[0])

    def _apply(self, first: int, entries: list[tuple[int, Update]]) -> None:
        for i in range(0, len(entries), _SLICE):
            part = entries[i : i + _SLICE]
            self._matching.step(Apply(self.lineage, first, part[-1][0], part))
            first = part[-1][0] + 1

    # The bridge.

    def offered(self, link: Link, offer: Offer) -> None:
        """A range of the feed from outside: answered when it is durable."""
        self._bridge_heard_at = time.monotonic()
        matcher = self.matcher
        if offer.updates:
            apply = Apply(
                offer.lineage,
                offer.first,
                offer.last,
                offer.updates,
                _Offered(link, offer.request),
                *self._left_out(offer),
            )
            self._matching.step(apply)
        else:
            link.send(Taken(offer.request, matcher.lineage, matcher.durable))

    def _left_out(self, offer: Offer) -> tuple[int, int]:
        """How many, and how many of the prober's. Of what was published since this shard was
        opened; what was before counts nowhere."""
        matcher = self.matcher
        after = max(matcher.applied, self._begins_after)
        self._voids = [void for void in self._voids if void.stop > after + 1]
        void = sum(
            len(range(max(void.start, after + 1), min(void.stop, offer.last + 1)))
            for void in self._voids
        )
        named = {o for o, _ in offer.updates if o > after}
        named.update(o for o in matcher.ahead if after < o <= offer.last)
        probes = sum(after < offset <= offer.last and offset not in named for offset in self._slow)
        return max(0, offer.last - after - void - len(named)), probes

    # Links.

    def accept(self, link: Link) -> int:
        self._link_ids += 1
        self.links[self._link_ids] = link
        return self._link_ids

    def received(self, id: int, message: ToShard) -> None:
        stepper = self._rowing if isinstance(message, _ROW_MESSAGES) else self._matching
        stepper.step(FromLink(id, message))

    def lost(self, id: int) -> None:
        if self.links.pop(id, None) is not None:
            self._matching.step(LinkDown(id))
            self._rowing.step(LinkDown(id))

    # What the machines ask for.

    def _carry_out(self, effect: Effect, machine: Stepper) -> None:
        match effect:
            case SendLink(link=int() as id, message=message):
                if id in self.links:
                    self.links[id].send(message)  # type: ignore[arg-type]
            case Persist(id=request):
                writes = [list(batch) for batch in layout.batches(effect.writes)]
                self._ask(
                    machine, request, self.store.write, *writes, answer=lambda _: Persisted(request)
                )
            case LoadObjects(id=request, keys=keys):
                self._ask(
                    machine,
                    request,
                    self.store.run,
                    lambda store: layout.object_rows(
                        keys, store.read_cells(layout.object_cells(keys))
                    ),
                    answer=lambda rows: Loaded(request, rows),
                )
            case LoadClient(id=request, client=client):
                self._ask(
                    machine,
                    request,
                    self.store.run,
                    lambda store: layout.client_row(store.read(layout.client_key(client))),
                    answer=lambda row: Loaded(request, row),
                )
            case ReadFeed():
                self._loop.call_later(self._patience(), self._read_feed, effect)
            case Applied(request=_Offered() as offered, lineage=lineage, offset=offset):
                offered.link.send(Taken(offered.request, lineage, offset))
            case DropLink(link=int() as id):
                if id in self.links:
                    self.links[id].drop()

    def _ask(
        self,
        machine: Stepper,
        request: int,
        ask: Callable[..., "asyncio.Future[T]"],
        *arguments: object,
        answer: Callable[[T], Event],
    ) -> None:
        """Of the store: an answer, or `Failed`, goes to the machine that wanted it."""
        try:
            future = ask(*arguments)
        except RoskvaError:
            self._loop.call_soon(machine.step, Failed(request))
            return

        def done(future: "asyncio.Future[T]") -> None:
            error = future.exception()
            if error is None:
                machine.step(answer(future.result()))
                return
            if not self._closing:
                _log.warning("shard %d: %s", self.number, error)
            machine.step(Failed(request))

        future.add_done_callback(done)

    # The feed, read back.

    def _feed_end(self) -> FeedEnd:
        return FeedEnd(self.lineage, self.feed_end, secrets.randbits(64))

    def _patience(self) -> float:
        """Before we read the feed ourselves: a bridge that is at work closes gaps as well."""
        waits = self.matcher.caught_up and time.monotonic() < self._bridge_heard_at + _BRIDGE_GONE_S
        return _BRIDGE_PATIENCE_S if waits else 0.0

    def _read_feed(self, asked: ReadFeed) -> None:
        if self._closing or self.matcher.applied != asked.after:
            return  # the gap is closed already, or a part of it
        read = partial(_read, self._reader, Marker(asked.lineage, asked.after))
        self._reading.submit(read).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._have_read, done.result())
        )

    def _have_read(self, event: Event | None) -> None:
        if event is not None:  # else the matcher asks again
            self._matching.step(event)

    async def _set_marker(self) -> None:
        """How far the feed may be cut off behind us."""
        durable = self.matcher.durable
        if durable == self._marked or self.matcher.lineage != self.lineage:
            return
        try:
            await self._feed.set_marker(_MARKER, Marker(self.lineage, durable))
        except RoskvaError as error:
            _log.warning("shard %d: %s", self.number, error)
        else:
            self._marked = durable


def _open(data: DataDirectory, number: int, feed: FeedConfig) -> _Opened:
    owned = _own(data, number)
    fsync_times = Times()
    try:
        store = RocksStore(owned.store_path)
        log = Log.open(
            RealDisk(fsync_times.observe),
            str(owned.feed_path),
            lineage=secrets.randbits(62),
            now_us=wall_clock_us(),
            config=LogConfig(
                segment_bytes=feed.segment_bytes,
                retention=_retention(feed),
            ),
        )
    except BaseException:
        owned.close()
        raise
    cells = store.read(layout.SHARD_ROW)
    stored = layout.shard_row(cells)
    if stored is None:
        stored = PutShard(shard_epoch(secrets.randbits(64)), log.lineage, START)
    # Above every earlier start, also if the store was lost and only the clock remembers.
    boot = max(layout.boot_of(cells) + 1, int(time.time()))
    store.write([*layout.operations_of(stored), layout.put_boot(boot)], sync=True)
    return _Opened(owned, log, fsync_times, store, stored, boot, layout.assigned_of(cells))


def _retention(feed: FeedConfig) -> Retention:
    hours = feed.retention_hours
    return Retention(
        max_age_us=None if hours is None else hours * 3600 * 10**6,
        max_bytes=feed.retention_bytes,
        last_resort_bytes=feed.last_resort_bytes,
    )


def _own(data: DataDirectory, number: int) -> OwnedShard:
    deadline = time.monotonic() + _LOCK_PATIENCE_S
    while True:
        try:
            return data.own(number)
        except Locked:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def _read(reader: LogReader, after: Marker) -> Event | None:
    """On the reading thread."""
    bits = secrets.randbits(64)
    try:
        read = reader.read(after, max_rows=_SLICE)
    except RoskvaError as error:
        _log.warning("reading the feed: %s", error)
        return None
    match read:
        case Batch():
            return Apply(reader.lineage, read.first, read.last, read.entries())
        case Idle():
            return FeedEnd(reader.lineage, read.last, bits)
        case Missing():
            _log.warning("the feed has lost %d to %d: %s", read.first, read.last, read.why)
            return FeedMissing(reader.lineage, read.last, bits)
        case Foreign():
            return FeedEnd(read.lineage, read.last, bits)
