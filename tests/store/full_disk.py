"""A process whose disk is full for a while: no file of it may grow beyond a limit.

python -m tests.store.full_disk DIRECTORY
"""

import itertools
import json
import resource
import signal
import sys
from pathlib import Path

from roskva.errors import StorageUnavailable
from roskva.store.base import Put
from roskva.store.rocksdb import RocksStore

LIMIT_BYTES = 1 << 20
CELLS = 100


def limit(size: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))


def write(store: RocksStore, number: int) -> bool:
    batch = [Put(b"%d/%d" % (number, cell), b"", 1, bytes(100)) for cell in range(CELLS)]
    try:
        store.write(batch, sync=True)
    except StorageUnavailable:
        return False
    return True


def main(directory: Path) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = RocksStore(directory)
    limit(LIMIT_BYTES)
    acknowledged = list(itertools.takewhile(lambda number: write(store, number), range(10_000)))
    refused = [write(store, 20_000 + number) for number in range(3)]
    read_meanwhile = len(list(store.scan()))
    limit(resource.RLIM_INFINITY)
    afterwards = write(store, 30_000)
    found = sorted(row.decode() for row, _ in store.scan())
    store.close()
    answer = [acknowledged, refused, read_meanwhile, afterwards, found]
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
