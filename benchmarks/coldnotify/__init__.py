"""The experiments of ColdNotify (Kraabøl, master's thesis, 2019), which took Thialfi's design to
small machines; what it reports stands beside ours, though its machines were others: one node each
for registrar, matcher and publisher, 84 for the clients, against this one machine for all.

Latency is from publish to receipt: when the kernel has the update for its client, and, by the
program, when one program has read it that is all of the clients; those of the thesis had machines
of their own, and noted it themselves. The first table is of 1,000 clients of one object, at so many
notifications per second over all of them; the node is one process on one core. CPU is of a node
with its roles in processes of their own. Then as many notifications on 1,000 objects, of one client
each; the number of clients of one object, at 10 updates per second; and clients that arrive, with
50 registrations each, while 100 others are told of 10 updates per second.

Recovery: 1,000 clients with 50 registrations each, on MQTT. A role is killed with SIGKILL and
started again by its supervisor; the time is that from the start of the process until both processes
are idle and every client is back. With persisted state the registrar's clients return to their
rows; without, each registers for everything again, and is told where it stands, which the thesis
left out. Acks are persisted two seconds after they came: who is killed in between tells everybody
once more. Without persisted state the matcher has lost every version and the feed, and all clients
are told that much; the last line is a loss of everything, the rows of clients included.
"""

import statistics
import tempfile
from pathlib import Path
from typing import Final

from benchmarks.coldnotify.latency import THESIS, arriving, by_clients, by_rate, many_objects
from benchmarks.coldnotify.recovery import LOSSES, recoveries
from benchmarks.plot import Plot
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator
from benchmarks.serving.servers import server_and_client_cores

TITLE: Final = "ColdNotify"
PLOTS: Final = (
    Plot(
        "coldnotify-latency",
        "1,000 clients of one object: from publish to receipt",
        "notifications per second",
        "milliseconds",
        ("median", "mean", "p99"),
    ),
    Plot(
        "coldnotify-cpu",
        "What each role uses, 1,000 clients of one object",
        "notifications per second",
        "% of a core",
        ("registrar", "matcher, feed and rows"),
    ),
    Plot(
        "coldnotify-clients",
        "Clients of one object, 10 updates per second",
        "clients",
        "milliseconds",
        ("latency, median", "latency, mean"),
    ),
)
RECOVERY: Final = {
    "registrar, without persisted state": 2.41,
    "registrar, with persisted state": 1.81,
    "registrar, killed before acks were persisted": None,
    "matcher, without persisted state": 1.81,
    "matcher, with persisted state": 2.01,
    "everything lost": None,
}
"""And the seconds of the thesis."""


def run(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        directory = Path(name)
        server_cores, client_cores = server_and_client_cores()
        generator = Generator(directory, client_cores)
        return [
            *by_rate(settings, generator, directory, server_cores),
            *many_objects(settings, generator, directory, server_cores),
            *by_clients(settings, generator, directory, server_cores),
            *arriving(settings, generator, directory, server_cores),
            *recovery(settings, generator, directory),
        ]


def recovery(settings: Settings, generator: Generator, directory: Path) -> list[Result]:
    """In the short version, what the thesis has no figure for is done once."""
    results = []
    for (name, theirs), loss in zip(RECOVERY.items(), LOSSES, strict=True):
        settings.progress(f"recovery: {name}")
        place = Path(tempfile.mkdtemp(dir=directory))
        often = settings.repetitions if settings.full or theirs else 1
        runs = recoveries(generator, place, loss, often)
        times = [seconds for seconds, _ in runs]
        results.append(
            Result(
                f"recovery: {name}",
                statistics.median(times),
                "s",
                theirs,
                note=f"{min(times):.2f} to {max(times):.2f} s; {runs[0][1]:,} notifications",
                peers={} if theirs is None else {THESIS: theirs},
                runs={"Roskva": times},
                why="Most of it is the start of a Python process.",
            )
        )
    return results
