"""Make the golden data directory of the current format. Done once per format, then kept for ever.

python -m tests.golden.make DIRECTORY
"""

import sys
from pathlib import Path

from roskva.core.effects import (
    ObjectRow,
    PutClient,
    PutObject,
    PutRegistered,
    PutShard,
    Write,
)
from roskva.disk import RealDisk
from roskva.feed.base import Marker
from roskva.feed.log import Log, LogConfig
from roskva.model import Loss, Update, app_key, epoch_record
from roskva.server.directory import DataDirectory, OwnedShard
from roskva.store import rows
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import Registered

SHARDS = 2
BOOT = 7
EPOCH = 0xABCDEF0123
LINEAGE = 0x0123456789ABCDEF
NOW_US = 1_700_000_000_000_000
CLIENT = bytes(range(16))
MARKER = Marker(LINEAGE, 3)
GENERATIONS = (("maps", 3), ("music", 16_524))

OBJECTS = {
    "contacts/alice": ObjectRow(41, 0, "app-1", b"\x00payload\xff", NOW_US),
    "contacts/böb/phone": ObjectRow(2**63 - 1, 77, None, None, 0),
    "maps/reset": ObjectRow(mark=5),
}
OF_A_GENERATION = {"music/song": ObjectRow(7, generation=16_524)}
"""Since format 3."""
REGISTERED = [Registered("contacts/alice", 41, EPOCH << 20), Registered("maps/reset", -1, 0)]
UPDATES = [
    Update("contacts/alice", 40, published_at=NOW_US),
    Update("contacts/alice", 41, "app-1", b"\x00payload\xff", NOW_US),
    Update("contacts/böb/phone", 77, reset=True),
    Update("contacts/böb/phone", 2**63 - 1),
    Update("maps/reset", 5, reset=True),
]
OF_APPS = [Update(app_key(app), generation, reset=True) for app, generation in GENERATIONS]
"""Since format 3."""
LOSS = Loss(LINEAGE, 2, "damage")
RECORD = epoch_record(EPOCH, LOSS, NOW_US)
LATER_LOSS = Loss(LINEAGE, len(UPDATES) + len(OF_APPS) + 1, "damage")
"""Since format 4. No epoch has begun for the later one."""


def make(directory: Path) -> None:
    data = DataDirectory.open_or_create(directory, SHARDS)
    for number in range(SHARDS):
        with data.own(number) as shard:
            fill_feed(shard)
            fill_store(shard)
    # What speaks of this one process: RocksDB's diary, and who held the locks.
    for path in (*directory.glob("shard-*/store/LOG*"), *directory.glob("**/lock")):
        path.unlink()


def fill_feed(shard: OwnedShard) -> None:
    config = LogConfig(segment_bytes=1)  # every commit its own segment
    log = Log.open(RealDisk(), str(shard.feed_path), lineage=LINEAGE, now_us=NOW_US, config=config)
    for update in [*UPDATES, *OF_APPS, RECORD]:
        log.append([update])
        log.commit(NOW_US)
    log.set_marker("bridge", MARKER)
    log.close()


def fill_store(shard: OwnedShard) -> None:
    store = RocksStore(shard.store_path)
    objects = OBJECTS | OF_A_GENERATION
    writes: list[Write] = [PutObject(key, row, replace=True) for key, row in objects.items()]
    writes.append(PutClient(CLIENT, BOOT << 32, NOW_US, "app-1"))
    writes += [PutRegistered(CLIENT, BOOT << 32, cell) for cell in REGISTERED]
    writes.append(PutShard(EPOCH, LINEAGE, LATER_LOSS.last, GENERATIONS, LOSS.last, LATER_LOSS))
    for batch in rows.batches(writes):
        store.write(batch, sync=True)
    store.write([rows.put_boot(BOOT)], sync=True)
    store.close()


if __name__ == "__main__":
    make(Path(sys.argv[1]))
