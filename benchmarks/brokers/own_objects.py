"""1,000 subscribers, each on an object of its own: what an update costs that only one wants.

One publisher, one object after the other, with at most 64 updates under way. So each delivery pays
for all of its update: accepting it, writing it down where the server does so, and sending it once.
Roskva and Redis streams sync every update to disk before they accept it, many at a time; the others
do not. Server CPU is that of all its processes, and it has one core.
"""

from typing import Final

from benchmarks.brokers.peers import LIVE, Peer, absent, installed
from benchmarks.brokers.place import bench
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Load
from benchmarks.turns import figure, in_turns

TITLE: Final = "Brokers: an object for each"
SUBSCRIBERS: Final = 1000
UNDER_WAY: Final = 64
_WARMUP_S: Final = 0.2
_WHY: Final = (
    "Roskva writes each update to its feed, syncs it, and runs the protocol for it in Python; that "
    "work is done once per update, and here there is only one subscriber to share it"
)


def run(settings: Settings) -> list[Result]:
    peers = installed(LIVE)
    seconds = 3.0 if settings.full else 1.0

    with bench() as here, here.all_started(peers) as servers:

        def measure(peer: Peer) -> Load:
            with peer.clients(
                here.generator,
                servers[peer.name],
                subscribers=SUBSCRIBERS,
                objects=SUBSCRIBERS,
                each=1,
                app="own",
            ) as clients:
                clients.connect()
                return clients.measure(window=UNDER_WAY, seconds=seconds, warmup=_WARMUP_S)

        turns = in_turns(peers, settings, measure) | absent(LIVE)
    return results(turns)


def results(turns: dict[str, list[Load]]) -> list[Result]:
    name = "updates, each to one subscriber"
    return [
        figure(name, "/s", turns, lambda load: load.per_s, why=_WHY),
        figure("… server CPU each", "µs", turns, lambda load: load.cpu_us, why=_WHY),
        figure(
            "… p50 from publish to receipt", "ms", turns, lambda load: load.p50_us / 1e3, why=_WHY
        ),
        figure(
            "… p99 from publish to receipt", "ms", turns, lambda load: load.p99_us / 1e3, why=_WHY
        ),
    ]
