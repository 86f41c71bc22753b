"""A shard with a history: updates in its feed, and its store up to some marker."""

from pathlib import Path

import msgspec

from roskva.core.effects import ObjectRow, PutObject, PutShard, Write
from roskva.disk import RealDisk
from roskva.feed.base import Batch, Foreign, Marker, Missing
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.model import Update
from roskva.store import rows
from roskva.store.base import Store
from roskva.store.rocksdb import RocksStore

LINEAGE = 11
EPOCH = 99
NOW_US = 1_700_000_000_000_000
KEEP_A_WEEK = Retention()


class CaughtUp(msgspec.Struct, frozen=True):
    """What a matcher meets on its way from the store's marker to the end of the feed."""

    versions: list[int]
    missing: list[Missing | Foreign]


def open_feed(shard: Path, segment_bytes: int = 1, retention: Retention = KEEP_A_WEEK) -> Log:
    """Every commit its own segment, unless told otherwise."""
    config = LogConfig(segment_bytes=segment_bytes, retention=retention)
    return Log.open(RealDisk(), str(shard / "feed"), lineage=LINEAGE, now_us=NOW_US, config=config)


def publish(log: Log, *versions: int) -> None:
    for version in versions:
        log.append([Update("contacts/alice", version)])
        log.commit(NOW_US)


def apply(store: Store, version: int, offset: int) -> None:
    writes: list[Write] = [
        PutObject("contacts/alice", ObjectRow(version)),
        PutShard(EPOCH, LINEAGE, offset),
    ]
    for batch in rows.batches(writes):
        store.write(batch, sync=True)


def apply_in(shard: Path, version: int, offset: int) -> None:
    store = RocksStore(shard / "store")
    apply(store, version, offset)
    store.close()


def marker_in(shard: Path) -> int:
    store = RocksStore(shard / "store")
    row = rows.shard_row(store.read(rows.SHARD_ROW))
    store.close()
    return row.applied if row else -1


def catch_up(shard: Path) -> CaughtUp:
    """Become the feed's writer, as a node does at its start, and read on from the marker."""
    marker = marker_in(shard)
    log = open_feed(shard)
    reader = log.reader()
    versions: list[int] = []
    missing: list[Missing | Foreign] = []
    while True:
        match reader.read(Marker(LINEAGE, marker)):
            case Batch() as batch:
                versions += [update.version for update in batch.updates()]
                marker = batch.last
            case Missing() as hole:
                missing.append(hole)
                marker = hole.last
            case Foreign() as foreign:
                missing.append(foreign)
                break
            case _:
                break
    log.close()
    return CaughtUp(versions, missing)
