"""A process that publishes until it is killed or fenced: python -m tests.feed.publisher_process DIR

It prints `offset version` for every update that was acknowledged.
"""

import asyncio
import os
import sys
from typing import NoReturn

from benchmarks.awaited import AwaitedCommit

from roskva.disk import RealDisk
from roskva.errors import Fenced
from roskva.feed.commit import Committer
from roskva.feed.log import Log, LogConfig
from roskva.feed.upkeep import Retention
from roskva.model import Update

FENCED = 3
PUBLISHERS = 8
CONFIG = LogConfig(segment_bytes=4_000, retention=Retention(max_age_us=None))


async def publish_for_ever(feed: AwaitedCommit, publisher: int) -> NoReturn:
    count = 0
    while True:
        version = (os.getpid() << 32) + (count << 8) + publisher
        offset = await feed.publish([Update(f"app/{publisher}", version)])
        os.write(sys.stdout.fileno(), b"%d %d\n" % (offset, version))
        count += 1


async def main(directory: str) -> None:
    log = Log.open(RealDisk(), directory, lineage=os.getpid(), now_us=1, config=CONFIG)
    feed = AwaitedCommit(log, Committer(tidy_every_s=0.01))
    await asyncio.gather(*(publish_for_ever(feed, number) for number in range(PUBLISHERS)))


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except Fenced:
        sys.exit(FENCED)
