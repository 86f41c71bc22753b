"""A shard of this process: opened from its directory, run, closed."""

import asyncio
import re
import secrets
import time
from collections.abc import Callable
from typing import Final

import msgspec

from roskva.config import FeedConfig
from roskva.core.effects import FeedEnd, PutShard
from roskva.core.matcher import MatcherConfig
from roskva.disk import RealDisk
from roskva.errors import BadInput
from roskva.feed.base import START, Locked
from roskva.feed.commit import Committer, Handover, wall_clock_us
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.host.observer import Observer
from roskva.host.shard import ShardHost, every_app
from roskva.metrics import Times
from roskva.model import shard_epoch
from roskva.server.directory import DataDirectory, OwnedShard
from roskva.server.executor import ShardExecutor
from roskva.store import rows as layout
from roskva.store.rocksdb import RocksStore

_TICK_S: Final = 1.0
_FLUSH_DELAY_S: Final = 0.25
"""Long enough for thousands to be told first, and for what changes often to be written rarely."""
_LOCK_PATIENCE_S: Final = 5.0
"""The processes of a node that was killed are gone by then, and their locks with them."""


class _Opened(msgspec.Struct, frozen=True):
    """What has to wait for a disk before a shard can start."""

    owned: OwnedShard
    log: Log
    fsync_times: Times
    store: RocksStore
    stored: PutShard
    boot: int
    assigned: int


class ShardServer(ShardExecutor):
    """Made by `ShardServer.open`. `run` it, and `close` it when that has ended."""

    def __init__(
        self,
        opened: _Opened,
        shards: int,
        committer: Committer,
        handover: Handover,
        broken: Callable[[Exception], None],
        fast_path: Callable[[str], bool],
        observer: Observer | None,
    ) -> None:
        number = opened.owned.number
        host = ShardHost(
            MatcherConfig(number, shards, flush_delay=_FLUSH_DELAY_S),
            opened.stored,
            boot=opened.boot,
            assigned=opened.assigned,
            wall_us=wall_clock_us(),
            now=time.monotonic(),
            fast_path=fast_path,
            observer=observer,
        )
        super().__init__(
            host,
            number=number,
            log=opened.log,
            store=opened.store,
            committer=committer,
            broken=broken,
            handover=handover,
        )
        self.matcher, self.rows = host.matcher, host.rows
        self.fsync_times = opened.fsync_times
        self._owned, self._lineage = opened.owned, opened.log.lineage

    @classmethod
    async def open(
        cls,
        data: DataDirectory,
        number: int,
        feed: FeedConfig,
        committer: Committer,
        handover: Handover,
        broken: Callable[[Exception], None],
        fast_path: Callable[[str], bool] = every_app,
        observer: Observer | None = None,
    ) -> "ShardServer":
        """`fast_path`: whether an app's updates go to the matcher as they are committed."""
        opened = await asyncio.to_thread(_open, data, number, feed)
        shard = cls(opened, data.meta.shards, committer, handover, broken, fast_path, observer)
        shard.tell_feed_end()
        return shard

    def tell_feed_end(self) -> None:
        self.step(FeedEnd(self._lineage, self.feed_end, secrets.randbits(64)))

    async def run(self) -> None:
        """What has to be done every so often."""
        while True:
            await asyncio.sleep(_TICK_S)
            self.tell_feed_end()

    async def close(self) -> None:
        await super().close()
        self._owned.close()

    async def checkpoint(self, name: str) -> None:
        """Of the store, for somebody to read and then remove; the next owner removes it, too."""
        if not re.fullmatch(r"[a-z0-9-]{1,64}", name):
            raise BadInput(f"no name for a checkpoint: {name!r}")
        await self.store.checkpoint(self._owned.checkpoints_path / name)


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
