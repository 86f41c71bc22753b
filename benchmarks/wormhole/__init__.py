"""The feed, beside Wormhole (Sharma et al., NSDI 2015) and Fast ACS (Gupta et al., 2025).

**Appending and reading** on this machine's disk: every group of updates is synced before its
publishers are told yes. Wormhole's publishers read the logs of databases at up to 350 MB/s, and its
subscribers took up to 600,000 updates/s, over a network and on machines of their time; sealed
segments here are mapped into memory and read as they are.

**Catching up**: a bridge that was away reads what it has missed, on Spark; coalesced to the newest
version of each object, and then until it is durable in a matcher. This is what Wormhole's markers
are for.

**Readers**: so many readers of one feed, each at its own place as consumers of Fast ACS are, which
poll for the length of a file. One writer commits 10 updates every 10 ms; the delay is from commit
to when a reader has them. There is one process of readers for each core, and whoever comes last in
it waits for all others: the delay grows with readers per core. A node has one reader per feed,
whatever the number of clients, as Wormhole's caravans have.
"""

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.plot import Plot
from benchmarks.result import Result, Settings
from benchmarks.wormhole import appending, catching_up, readers
from roskva.pipeline.machine import what_is_missing

TITLE: Final = "Wormhole and Fast ACS: the feed"
PLOTS: Final = (
    Plot(
        "feed-readers",
        "Readers of one feed, each at its own place",
        "readers",
        "milliseconds from commit to read",
        ("median", "p99"),
        log_x=True,
        log_y=True,
    ),
)


def run(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        directory = Path(name)
        results = appending.run(settings, directory)
        if what_is_missing() is None:
            results += catching_up.run(settings, directory)
        else:
            settings.progress("no Spark: catching up is left out")
        return results + readers.run(settings, directory)
