"""A process whose disk is full for a while: no file of it may grow beyond a limit.

python -m tests.store.full_disk SCENARIO DIRECTORY
"""

import itertools
import json
import resource
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from roskva.errors import StorageUnavailable
from roskva.store.base import Put
from roskva.store.rocksdb import RocksStore

LIMIT_BYTES = 1 << 20
CELLS = 100


def limit(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def write(store: RocksStore, number: int, sync: bool = True) -> bool:
    batch = [Put(b"%d/%d" % (number, cell), b"", 1, bytes(100)) for cell in range(CELLS)]
    return succeeds(partial(store.write, batch, sync=sync))


def succeeds(call: Callable[[], None]) -> bool:
    try:
        call()
    except StorageUnavailable:
        return False
    return True


def full_for_a_while(directory: Path) -> list[object]:
    store = RocksStore(directory)
    limit(LIMIT_BYTES)
    acknowledged = list(itertools.takewhile(lambda number: write(store, number), range(10_000)))
    refused = [write(store, 20_000 + number) for number in range(3)]
    read_meanwhile = len(list(store.scan()))
    limit(resource.RLIM_INFINITY)
    afterwards = write(store, 30_000)
    found = sorted(row.decode() for row, _ in store.scan())
    store.close()
    return [acknowledged, refused, read_meanwhile, afterwards, found]


def full_before_a_sync(directory: Path) -> list[object]:
    """Whether two syncs succeed that follow a failure with unsynced batches before it."""
    store = RocksStore(directory)
    limit(LIMIT_BYTES)
    written = list(itertools.takewhile(lambda n: write(store, n, sync=False), range(10_000)))
    limit(resource.RLIM_INFINITY)
    write(store, 30_000, sync=False)
    synced = [succeeds(store.sync), succeeds(store.sync)]
    store.close()
    return [len(written), *synced]


if __name__ == "__main__":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    scenario = {"while": full_for_a_while, "sync": full_before_a_sync}[sys.argv[1]]
    sys.stdout.write(json.dumps(scenario(Path(sys.argv[2]))))
