"""The executors of the hosts on an event loop, and the link between two in one process.

Events in, effects out, one step at a time.

Nothing is decided here. An effect may lead to the next event before the step it belongs to is done:
such events wait in line until all effects of that step are carried out. A host's deadline is one
timer; it is moved forward when the host asks for less time, and looked at again when it fires.

What has been committed goes first: ahead of an event from outside, once in a turn of the loop,
whatever the thread that commits has handed over is taken, as one batch. A turn may be long, because
thousands of clients have something to say, and the newest update shall not wait for all of them.

A host that raises is broken: nobody knows what it would do next. `broken` is told, and takes the
process down; whatever it knew that mattered is on disk.
"""

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from roskva.core.effects import (
    Apply,
    Close,
    DropLink,
    Event,
    Failed,
    FeedEnd,
    FeedMissing,
    FromLink,
    Handle,
    LinkDown,
    LinkUp,
    LoadClient,
    Loaded,
    LoadObjects,
    LoadPage,
    Persist,
    Persisted,
    ReadFeed,
    Send,
    SendLink,
    Tick,
)
from roskva.errors import RoskvaError
from roskva.feed.base import Batch, Committed, Foreign, Idle, Marker, Missing
from roskva.feed.commit import Committer, GroupCommit, Handover
from roskva.feed.log import Log
from roskva.feed.reader import LogReader
from roskva.host.delivery import Write
from roskva.host.effects import (
    Append,
    Appended,
    AudienceChecked,
    CheckAudience,
    NotAppended,
    SetMarker,
    Settled,
)
from roskva.host.registrar import RegistrarHost
from roskva.host.shard import SLICE, ShardHost
from roskva.links.shard_link import LinkEnd
from roskva.net.writer import Writer
from roskva.server.access.authority import Authority
from roskva.server.authorisation import Authorisation
from roskva.store import rows as layout
from roskva.store.base import Store
from roskva.store.rocksdb import RocksStore
from roskva.store.worker import StoreWorker
from roskva.wire.links import FromShard, ToShard
from roskva.wire.messages import ServerMessage

T = TypeVar("T")
_log = logging.getLogger(__name__)
_NEVER: Final = float("inf")
_TICK: Final = Tick()
_MARKER: Final = "matcher"
"""Under this name a shard's own marker is kept in its feed."""


class Host(Protocol):
    def step(self, event: Any, now: float) -> list[Any]: ...

    def next_deadline(self) -> float | None: ...


class Executor:
    def __init__(self, host: Host, broken: Callable[[Exception], None], handover: Handover) -> None:
        self._host = host
        self._broken = broken
        self._handover = handover
        self.links: dict[Handle, LinkEnd] = {}
        self._carry_out: dict[type, Callable[[Any], None]] = {
            SendLink: self._send_link,
            DropLink: self._drop_link,
        }
        """How, by the kind of effect."""
        self._loop = asyncio.get_running_loop()
        self._events: deque[Any] = deque()
        self._stepping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = _NEVER
        self._stopped = False

    def step(self, event: Any) -> None:
        if self._stopped:
            return
        if self._stepping:
            self._events.append(event)
            return
        handover = self._handover
        if handover.waiting:
            handover.take_first()
        outermost, handover.busy = not handover.busy, True
        self._stepping = True
        try:
            self._run(event)
        except Exception as error:
            self.stop()
            self._broken(error)
        finally:
            self._stepping = False
            if outermost:
                handover.busy = False

    def stop(self) -> None:
        self._stopped = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()

    def _run(self, event: Any) -> None:
        host, carry_out, events = self._host, self._carry_out, self._events
        while True:
            now = time.monotonic()
            for effect in host.step(event, now):
                carry_out[type(effect)](effect)
            if not events:
                break
            event = events.popleft()
        deadline = host.next_deadline()
        if deadline is not None and deadline < self._timer_at:
            self._set_timer(deadline, now)

    def _set_timer(self, deadline: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - now), self._fire)

    def _fire(self) -> None:
        self._timer, self._timer_at = None, _NEVER
        now = time.monotonic()
        deadline = self._host.next_deadline()
        if deadline is not None and deadline > now:  # it has moved back meanwhile
            self._set_timer(deadline, now)
        else:
            self.step(_TICK)

    def _send_link(self, effect: SendLink) -> None:
        link = self.links.get(effect.link)
        if link is not None:
            link.send(effect.message)

    def _drop_link(self, effect: DropLink) -> None:
        link = self.links.get(effect.link)
        if link is not None:
            link.drop()


class ShardExecutor(Executor):
    """A shard over its feed and its store. Every wait for a disk is on a thread: one that commits
    to the feeds of all shards here, one that owns the store, one that reads the feed back."""

    def __init__(
        self,
        host: ShardHost,
        *,
        number: int,
        log: Log,
        store: RocksStore,
        committer: Committer,
        broken: Callable[[Exception], None],
        handover: Handover,
    ) -> None:
        super().__init__(host, broken, handover)
        self.number = number
        self.store = StoreWorker(store, f"store-{number}")
        self.feed = GroupCommit(log, committer, self._appended)
        self.feed_end = log.recovered.last
        self._link_ids = 0
        self._reader = log.reader()
        self._reading = ThreadPoolExecutor(1, f"read-{number}")
        self._closing = False
        self._carry_out |= {
            Append: self._append,
            Persist: self._persist,
            LoadObjects: self._load_objects,
            LoadClient: self._load_client,
            LoadPage: self._load_page,
            ReadFeed: self._read_feed,
            SetMarker: self._set_marker,
        }

    async def close(self) -> None:
        """What was published is committed, and what was asked of the store is done. Nothing is lost
        if this never happens."""
        for link in list(self.links.values()):
            link.drop()
        self._closing = True
        await self.feed.close()
        await self.store.close()
        self.stop()
        self._reading.shutdown()

    # Links.

    def accept(self, link: LinkEnd) -> int:
        self._link_ids += 1
        self.links[self._link_ids] = link
        return self._link_ids

    def lost(self, id: int) -> None:
        if self.links.pop(id, None) is not None:
            self.step(LinkDown(id))

    # The feed.

    def _append(self, effect: Append) -> None:
        self.feed.append(effect.request, effect.updates)

    def _appended(self, outcome: Committed | RoskvaError, requests: list[int]) -> None:
        if isinstance(outcome, Committed):
            self.feed_end = outcome.last
            self.step(Appended(outcome.first, outcome.last, outcome.entries(), requests))
        else:
            self.step(NotAppended(requests, outcome))

    def _set_marker(self, effect: SetMarker) -> None:
        self.feed.set_marker(_MARKER, Marker(effect.lineage, effect.offset), self._marker_set)

    def _marker_set(self, error: RoskvaError | None) -> None:
        if error is not None:
            _log.warning("shard %d: %s", self.number, error)

    def _read_feed(self, asked: ReadFeed) -> None:
        if self._closing:
            return
        read = partial(_read, self._reader, Marker(asked.lineage, asked.after))
        self._reading.submit(read).add_done_callback(
            lambda done: self._loop.call_soon_threadsafe(self._have_read, done.result())
        )

    def _have_read(self, event: Event | None) -> None:
        if event is not None:  # else the matcher asks again
            self.step(event)

    # The store.

    def _persist(self, effect: Persist) -> None:
        writes = [list(batch) for batch in layout.batches(effect.writes)]
        id = effect.id
        self._ask(id, lambda: self.store.write(*writes), lambda _: Persisted(id))

    def _load_objects(self, effect: LoadObjects) -> None:
        keys = effect.keys
        cells = layout.object_cells(keys)
        self._load(effect.id, lambda store: layout.object_rows(keys, store.read_cells(cells)))

    def _load_client(self, effect: LoadClient) -> None:
        key = layout.client_key(effect.client)
        self._load(effect.id, lambda store: layout.client_row(store.read(key)))

    def _load_page(self, effect: LoadPage) -> None:
        bits = secrets.randbits(64)
        self._load(effect.id, lambda store: layout.read_page(store, effect, bits))

    def _load(self, id: int, read: Callable[[Store], Any]) -> None:
        self._ask(id, lambda: self.store.run(read), lambda found: Loaded(id, found))

    def _ask(
        self, id: int, ask: Callable[[], "asyncio.Future[T]"], answer: Callable[[T], Event]
    ) -> None:
        try:
            future = ask()
        except RoskvaError:
            self._loop.call_soon(self.step, Failed(id))
            return

        def done(future: "asyncio.Future[T]") -> None:
            error = future.exception()
            if error is None:
                self.step(answer(future.result()))
                return
            if not self._closing:
                _log.warning("shard %d: %s", self.number, error)
            self.step(Failed(id))

        future.add_done_callback(done)


def _read(reader: LogReader, after: Marker) -> Event | None:
    """On the reading thread."""
    bits = secrets.randbits(64)
    try:
        read = reader.read(after, max_rows=SLICE)
    except RoskvaError as error:
        _log.warning("reading the feed: %s", error)
        return None
    match read:
        case Batch():
            return Apply(reader.lineage, read.first, read.last, read.entries())
        case Idle():
            return FeedEnd(reader.lineage, read.last, bits)
        case Missing():
            if read.why != "restore":  # that was said when it was opened
                _log.warning("the feed has lost %d to %d: %s", read.first, read.last, read.why)
            return FeedMissing(reader.lineage, read.last, bits, read.why)
        case Foreign():
            return FeedEnd(read.lineage, read.last, bits)


class RegistrarExecutor(Executor):
    """A registrar between the links to its shards and the connections of its clients."""

    def __init__(
        self,
        host: RegistrarHost,
        authority: Authority,
        broken: Callable[[Exception], None],
        handover: Handover,
    ) -> None:
        """`links`, by shard, are added before anything starts."""
        super().__init__(host, broken, handover)
        self.writer = Writer()
        self._observer = host.observer
        self._authorisation = Authorisation(host.core, authority, self.step, self.run, self._hand)
        self._tasks: set[asyncio.Task[None]] = set()
        self._write = self.writer.write
        self._carry_out |= {
            Write: self._write_to_many,
            Send: self._send,
            Settled: self._settled,
            Close: self._close,
            CheckAudience: self._check_audience,
        }

    def run(self, work: Coroutine[Any, Any, None]) -> None:
        """In the background, until the node stops."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            _log.error("what ran in the background failed", exc_info=error)

    def _write_to_many(self, effect: Write) -> None:
        self._write(effect.addresses, effect.data)

    def _send(self, effect: Send) -> None:
        message = effect.message
        if message.notifications and self._authorisation.authority.guarded:
            message = self._authorisation.message(effect)
        self._hand(effect.conn, message)

    def _hand(self, conn: Handle, message: ServerMessage) -> None:
        handed = conn.connection.send(message)  # type: ignore[attr-defined]
        if handed:
            self._observer.handed(handed, 1)

    def _close(self, effect: Close) -> None:
        effect.conn.connection.close()  # type: ignore[attr-defined]

    def _check_audience(self, effect: CheckAudience) -> None:
        self.step(AudienceChecked(self._authorisation.audience(effect.broadcast)))

    def _settled(self, effect: Settled) -> None:
        effect.request(effect.outcomes)  # type: ignore[operator]


class LocalLink:
    """A registrar's end of a link: messages are handed over as they are, and when it breaks, it is
    opened again."""

    def __init__(self, shard: ShardExecutor, step: Callable[[Any], None]) -> None:
        self._shard = shard
        self._number = shard.number
        self._step = step
        self._id: int | None = None
        self._broken = asyncio.Event()
        self.end = LinkEnd(self._send, self._drop)

    async def run(self) -> None:
        while True:
            self._broken.clear()
            self._id = self._shard.accept(LinkEnd(self._received, self._drop))
            self._step(LinkUp(self._number))
            await self._broken.wait()

    def _send(self, message: ToShard) -> None:
        if self._id is not None:
            self._shard.step(FromLink(self._id, message))

    def _received(self, message: FromShard) -> None:
        self._step(FromLink(self._number, message))

    def _drop(self) -> None:
        if self._id is not None:
            id, self._id = self._id, None
            self._broken.set()
            self._shard.lost(id)
            self._step(LinkDown(self._number))
