"""A shard of this process: opened from its directory, run, closed."""

import asyncio
import re
import resource
import secrets
import time
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Final

from roskva.config import FeedConfig, files_of_store
from roskva.core.collector import CollectorConfig
from roskva.core.effects import FeedEnd
from roskva.core.expiry import KeepOf
from roskva.core.matcher import MatcherConfig, from_nothing
from roskva.core.shares import MaxShare
from roskva.disk import RealDisk
from roskva.errors import BadInput, RoskvaError
from roskva.feed.commit import Committer, wall_clock_us
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.host.observer import Observer
from roskva.host.shard import ShardHost
from roskva.metrics import Times
from roskva.server.directory import DataDirectory, OwnedShard
from roskva.server.executor import ShardExecutor
from roskva.server.space import look_at
from roskva.store import rows as layout
from roskva.store.rocksdb import RocksStore

_TICK_S: Final = 1.0
_COUNT_S: Final = 60.0
_FLUSH_DELAY_S: Final = 0.25
"""Long enough for thousands to be told first, and for what changes often to be written rarely."""
_LOCK_PATIENCE_S: Final = 5.0
"""The processes of a node that was killed are gone by then, and their locks with them."""


class ShardServer(ShardExecutor):
    """Made by `ShardServer.open`. `run` it, and `close` it when that has ended."""

    def __init__(
        self,
        committer: Committer,
        broken: Callable[[Exception], None],
        owned: OwnedShard,
        log: Log,
        store: RocksStore,
        host: ShardHost,
        fsync_times: Times,
    ) -> None:
        super().__init__(
            host,
            number=owned.number,
            log=log,
            store=store,
            committer=committer,
            broken=broken,
            handover=committer.handover,
        )
        self.matcher, self.rows, self.collector = host.matcher, host.rows, host.collector
        self.batching = host.batching
        self.fsync_times = fsync_times
        self.recovered = log.recovered
        self._owned, self._lineage = owned, log.lineage
        self.row_counts: dict[str, int] = {}
        """By kind, estimated."""

    @classmethod
    async def open(
        cls,
        data: DataDirectory,
        number: int,
        feed: FeedConfig,
        committer: Committer,
        broken: Callable[[Exception], None],
        fast_path: Callable[[str], bool],
        source_apps: Container[str],
        keep_of: KeepOf,
        collecting: CollectorConfig,
        max_share: MaxShare,
        observer: Observer,
    ) -> "ShardServer":
        """`fast_path`: whether an app's updates go to the matcher as they are committed.
        `source_apps`: those that have a change source. `keep_of`: how long it keeps what nobody
        asks for."""
        rules = fast_path, source_apps, keep_of, collecting, max_share, observer
        opened = await asyncio.to_thread(_open, data, number, feed, *rules)
        shard = cls(committer, broken, *opened)
        shard.tell_feed_end()
        return shard

    def tell_feed_end(self) -> None:
        self.step(FeedEnd(self._lineage, self.feed_end, secrets.randbits(64)))

    async def run(self) -> None:
        """What has to be done every so often."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.tell_feed_end()

    async def count_rows(self) -> None:
        """Until cancelled."""
        while True:
            with suppress(RoskvaError):  # a store that is not well says so to whoever needs it
                self.row_counts = await self.store.run(layout.estimated_rows)
            await asyncio.sleep(_COUNT_S)

    async def close(self) -> None:
        await super().close()
        self._owned.close()

    async def checkpoint(self, name: str) -> None:
        """Of the store, for somebody to read and then remove; the next owner removes it, too."""
        if not re.fullmatch(r"[a-z0-9-]{1,64}", name):
            raise BadInput(f"no name for a checkpoint: {name!r}")
        await self.store.checkpoint(self._owned.checkpoints_path / name)


def _open(
    data: DataDirectory,
    number: int,
    feed: FeedConfig,
    fast_path: Callable[[str], bool],
    source_apps: Container[str],
    keep_of: KeepOf,
    collecting: CollectorConfig,
    max_share: MaxShare,
    observer: Observer,
) -> tuple[OwnedShard, Log, RocksStore, ShardHost, Times]:
    """What has to wait for a disk before a shard can start."""
    owned = data.own(number, _LOCK_PATIENCE_S)
    fsync_times = Times()
    try:
        open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        store = RocksStore(owned.store_path, files_of_store(open_files, data.meta.shards))
        log = Log.open(
            RealDisk(fsync_times.observe),
            str(owned.feed_path),
            lineage=secrets.randbits(62),
            now_us=wall_clock_us(),
            config=LogConfig(segment_bytes=feed.segment_bytes, retention=_retention(feed, data)),
        )
    except BaseException:
        owned.close()
        raise
    cells = store.read(layout.SHARD_ROW)
    stored = layout.shard_row(cells)
    if stored is None:
        stored = from_nothing(log.lineage, secrets.randbits(64))
    # Above every earlier start, also if the store was lost and only the clock remembers.
    boot = max(layout.boot_of(cells) + 1, int(time.time()))
    store.write([*layout.operations_of(stored), layout.put_boot(boot)], sync=True)
    host = ShardHost(
        MatcherConfig(number, data.meta.shards, flush_delay=_FLUSH_DELAY_S),
        stored,
        boot=boot,
        assigned=layout.assigned_of(cells),
        wall_us=wall_clock_us(),
        now=time.monotonic(),
        absent=layout.absent_of(cells),
        fast_path=fast_path,
        source_apps=source_apps,
        keep_of=keep_of,
        collecting=collecting,
        max_share=max_share,
        observer=observer,
    )
    return owned, log, store, host, fsync_times


def _retention(feed: FeedConfig, data: DataDirectory) -> Retention:
    hours = feed.retention_hours
    return Retention(
        max_age_us=None if hours is None else hours * 3600 * 10**6,
        max_bytes=feed.max_bytes(look_at(data.path).total, data.meta.shards),
        last_resort_bytes=feed.last_resort_bytes,
    )
