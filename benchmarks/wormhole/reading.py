"""Readers of one feed, in one process: `reading.py DIRECTORY COUNT` says "reading", and, when
standard input ends, the milliseconds from publish to read, once per reader and update."""

import select
import sys
import time
from typing import Final

import msgspec

from roskva.disk import RealDisk
from roskva.feed.base import Batch, Marker
from roskva.feed.reader import LogReader

NOTHING_NEW_S: Final = 0.0005


def main(directory: str, count: int) -> None:
    readers = [LogReader(RealDisk(), directory) for _ in range(count)]
    markers = [Marker(reader.lineage, reader.end()) for reader in readers]
    delays_ms: list[float] = []
    sys.stdout.write("reading\n")
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], 0)[0]:
        found = False
        for i, reader in enumerate(readers):
            while isinstance(answer := reader.read(markers[i]), Batch):
                published_at = answer.rows["published_at"].to_numpy()
                delays_ms += ((time.time_ns() // 1000 - published_at) / 1000).tolist()
                markers[i] = Marker(reader.lineage, answer.last)
                found = True
        if not found:
            time.sleep(NOTHING_NEW_S)
    sys.stdout.buffer.write(msgspec.json.encode(delays_ms))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
