"""A shard on a real disk: the real matcher and rows over a RocksDB and a log, step by step.

What the machines ask of store and feed waits in `asked` until a test lets it happen (`run`), does
it by itself (`take`, `answer_to`), or never does it. A crash continues from a copy of the directory
as it is, with nothing closed or flushed.
"""

import shutil
from collections import deque
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from random import Random
from typing import TypeVar

from tests.server.history import KEEP_A_WEEK, NOW_US

from roskva.core.effects import (
    Applied,
    Apply,
    BeginEpoch,
    ClientRow,
    DropLink,
    Effect,
    Event,
    FeedEnd,
    FeedMissing,
    FromLink,
    LoadClient,
    Loaded,
    LoadObjects,
    LoadPage,
    ObjectRow,
    Persist,
    Persisted,
    PutShard,
    ReadFeed,
    SendLink,
    Tick,
)
from roskva.core.matcher import Matcher, MatcherConfig, from_nothing
from roskva.core.rows import Rows
from roskva.disk import RealDisk
from roskva.feed.base import START, Batch, Committed, Foreign, Idle, Marker, Missing
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.model import NO_MARK, Key, Update, epoch_record, object_epoch
from roskva.store import rows as layout
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import (
    LINK_PROTOCOL,
    CloseSession,
    CurrentVersion,
    FromShard,
    Interest,
    LinkHello,
    OpenSession,
    Push,
    Pushes,
    ToShard,
    Versions,
    WriteRow,
    WriteRows,
)

Machine = Matcher | Rows
_FOR_ROWS = OpenSession | WriteRow | WriteRows | CloseSession
_SMALL_READ = 2
_seeds = count()  # no two starts draw the same lineage or epoch
_T = TypeVar("_T", bound=Effect)


class RunningShard:
    def __init__(
        self, path: Path, *, segment_bytes: int = 1, retention: Retention = KEEP_A_WEEK
    ) -> None:
        """Every commit its own segment, unless told otherwise."""
        self.path = path
        self.asked: deque[tuple[Machine, Effect]] = deque()
        self.sent: list[FromShard] = []
        self.answered: list[Applied] = []
        self._dice = Random(next(_seeds))
        feed, config = str(path / "feed"), LogConfig(segment_bytes, retention)
        self.log = Log.open(RealDisk(), feed, lineage=self.bits(), now_us=NOW_US, config=config)
        self.reader = self.log.reader()
        self.store = RocksStore(path / "store")
        self.found = self._open_rows()
        self.tick_of_the_feed()
        if self.reader.end() == START:
            self.run()  # the first record of a feed is that of its epoch

    def _open_rows(self) -> PutShard:
        cells = self.store.read(layout.SHARD_ROW)
        found = layout.shard_row(cells)
        if found is None:
            found = from_nothing(self.log.lineage, self.bits())
        boot = layout.boot_of(cells) + 1
        self.store.write([*layout.operations_of(found), layout.put_boot(boot)], sync=True)
        self.matcher = Matcher(MatcherConfig(shard=0, shards=1), found)
        self.rows = Rows(boot, NOW_US, now=0.0)
        return found

    def bits(self) -> int:
        return self._dice.getrandbits(62)

    def stop(self) -> Path:
        """Cleanly: the feed's end is known, so the next writer skips nothing."""
        self.log.close()
        self.store.close()
        return self.path

    def crash(self) -> Path:
        """What is on the disk at this moment, for the next one to start from."""
        left = self.path.with_name(self.path.name + "-left")
        shutil.copytree(self.path, left)
        self.stop()
        return left

    # The machines.

    def run(self) -> None:
        """Everything that was asked for, and what is asked for because of it."""
        while self.asked or self.matcher.next_deadline() == 0.0:
            if self.asked:
                self.answer_one()
            else:
                self.step(self.matcher, Tick())

    def answer_one(self) -> None:
        machine, effect = self.asked.popleft()
        self.step(machine, self.answer_to(effect))

    def step(self, machine: Machine, event: Event) -> None:
        for effect in machine.step(event, 0.0):
            match effect:
                case SendLink(message=message):
                    self.sent.append(message)  # type: ignore[arg-type]
                case DropLink():
                    pass
                case Applied():
                    self.answered.append(effect)
                case _:
                    self.asked.append((machine, effect))

    def take(self, kind: type[_T]) -> tuple[Machine, _T]:
        """Out of the queue: it happens when the test does it, or never."""
        for machine, effect in self.asked:
            if isinstance(effect, kind):
                self.asked.remove((machine, effect))
                return machine, effect
        raise AssertionError(f"nobody asked for {kind.__name__}")

    def answer_to(self, effect: Effect) -> Event:
        match effect:
            case Persist(id=id, writes=writes):
                for batch in layout.batches(writes):
                    self.store.write(batch)
                self.store.sync()
                return Persisted(id)
            case LoadObjects(id=id, keys=keys):
                return Loaded(id, self.objects(*keys))
            case LoadClient(id=id, client=client):
                return Loaded(id, self.client_row(client))
            case LoadPage(id=id):
                return Loaded(id, layout.read_page(self.store, effect, 1))
            case ReadFeed():
                return self._read_feed(Marker(effect.lineage, effect.after))
            case BeginEpoch(epoch=epoch, loss=loss):
                begun = self.publish(epoch_record(epoch, loss, NOW_US), fast_path=False)
                return Apply(self.log.lineage, begun.first, begun.last, begun.entries())
        raise AssertionError(effect)

    # The store.

    def objects(self, *keys: Key) -> dict[Key, ObjectRow]:
        return layout.object_rows(keys, self.store.read_cells(layout.object_cells(keys)))

    def client_row(self, client: bytes) -> ClientRow | None:
        return layout.client_row(self.store.read(layout.client_key(client)))

    def applied_on_disk(self) -> int:
        row = layout.shard_row(self.store.read(layout.SHARD_ROW))
        assert row is not None
        return row.applied

    # The feed.

    def publish(self, *updates: Update, fast_path: bool = True) -> Committed:
        self.log.append(updates)
        committed = self.log.commit(NOW_US)
        assert committed is not None
        if fast_path:
            self.apply(committed)
        return committed

    def apply(self, *committed: Committed, request: str | None = None) -> None:
        """Commits that follow each other, as one range."""
        entries: Sequence[tuple[int, Update]] = [e for c in committed for e in c.entries()]
        first, last = committed[0].first, committed[-1].last
        self.step(self.matcher, Apply(self.log.lineage, first, last, entries, request))

    def tick_of_the_feed(self) -> None:
        self.step(self.matcher, FeedEnd(self.log.lineage, self.reader.end(), self.bits()))

    def _read_feed(self, after: Marker) -> Event:
        match self.reader.read(after, _SMALL_READ):
            case Batch() as batch:
                return Apply(self.log.lineage, batch.first, batch.last, batch.entries())
            case Missing(last=last, why=why):
                return FeedMissing(self.log.lineage, last, self.bits(), why)
            case Idle(last=last) | Foreign(last=last):
                return FeedEnd(self.log.lineage, last, self.bits())

    # A registrar, and what it was told.

    def receive(self, message: ToShard, link: str = "registrar") -> None:
        machine: Machine = self.rows if isinstance(message, _FOR_ROWS) else self.matcher
        self.step(machine, FromLink(link, message))

    def connect(self, *keys: Key) -> None:
        self.receive(LinkHello(LINK_PROTOCOL, "registrar", shard=0, shards=1))
        self.receive(Interest(add=list(keys)))

    def told(self, key: Key) -> list[tuple[int, int]]:
        """Versions and their epochs, in the order in which they were said."""
        said: list[CurrentVersion | Push] = []
        for message in self.sent:
            if isinstance(message, Versions):
                said.extend(message.known)
            elif isinstance(message, Pushes):
                said.extend(message.pushes)
        return [(known.version, known.epoch) for known in said if known.object == key]

    def epoch(self, mark: int = NO_MARK) -> int:
        """Of an object with the mark of this reset."""
        return object_epoch(self.matcher.epoch, mark)


def put_back(snapshot: Path, shard: Path) -> Path:
    """The shard, with an older store."""
    shutil.rmtree(shard / "store")
    shutil.copytree(snapshot, shard / "store")
    return shard
