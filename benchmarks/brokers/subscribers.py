"""Fan-out by subscribers: what becomes of it when an update is for one, or for thousands.

As many clients as the table says, each registered for the same 16 objects, which are updated one
after the other. With one update in flight, the next leaves when all subscribers have the last one:
the round trip of an update counts. With 16, the server always has something to do, and one update
of an object is on the way at a time, or hardly more: there is nothing to leave out. All of it has
been received when the next server has its turn.

What a server does once for each update is shared by those who want it: Roskva and its peers are far
apart where these are few. Roskva syncs each update to disk, many at a time, before it tells
anybody; these peers keep nothing on disk. Who has several updates for a client may send them as one
piece. Roskva and Mosquitto deliver with QoS 1, to sessions that persist, and every delivery is
acknowledged; NATS and Redis acknowledge nothing. Server CPU is that of all its processes, and it
has one core. Where clients used all of theirs, a server may be faster than they could see.
"""

import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Final

from benchmarks.brokers.peers import CORE, PUBSUB, QUEUES, ROSKVA, Peer, absent, installed
from benchmarks.brokers.place import Bench, bench
from benchmarks.plot import Plot
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Load
from benchmarks.serving.servers import Server
from benchmarks.turns import figure, in_turns

TITLE: Final = "Brokers: fan-out by subscribers"
SUBSCRIBERS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000)
OBJECTS: Final = 16
IN_FLIGHT: Final = {OBJECTS: f"{OBJECTS} updates in flight", 1: "one update in flight"}
_DELIVERIES: Final = "deliveries, {}"
PLOTS: Final = (
    Plot(
        "fanout-subscribers",
        "Fan-out by subscribers",
        "subscribers of each update",
        "deliveries per second",
        tuple(_DELIVERIES.format(name) for name in IN_FLIGHT.values()),
        log_x=True,
        log_y=True,
        side_by_side=True,
    ),
)
_PEERS: Final = (ROSKVA, QUEUES, CORE, PUBSUB)
_AT: Final = "subscribers"
_WARMUP_S: Final = 0.1
_QUIET_S: Final = 10.0
_WHOLE_CORE: Final = 0.9
_WHY: Final = (
    "Roskva syncs each update and runs its protocol in Python, however few are told; NATS and "
    "Redis also send a client several updates as one piece, and read no acknowledgement"
)

Turn = dict[int, Load]
"""By updates in flight."""


def run(settings: Settings) -> list[Result]:
    peers = installed(_PEERS)
    found = []
    with bench() as here, here.all_started(peers) as servers:
        for subscribers in SUBSCRIBERS:
            turns = _turns(here, servers, peers, subscribers, settings)
            found += results(subscribers, turns | absent(_PEERS))
    return found


def _turns(
    here: Bench,
    servers: dict[str, Server],
    peers: Sequence[Peer],
    subscribers: int,
    settings: Settings,
) -> dict[str, list[Turn]]:
    seconds = 1.0 if settings.full else 0.25
    with ExitStack() as stack:
        clients = {
            peer.name: stack.enter_context(
                peer.clients(
                    here.generator,
                    servers[peer.name],
                    subscribers=subscribers,
                    objects=OBJECTS,
                    each=OBJECTS,
                    app=f"to-{subscribers}",
                )
            )
            for peer in peers
        }
        for population in clients.values():
            population.connect()

        def measure(peer: Peer) -> Turn:
            loads = {}
            for in_flight in IN_FLIGHT:
                loads[in_flight] = clients[peer.name].measure(
                    window=in_flight, seconds=seconds, warmup=_WARMUP_S
                )
                clients[peer.name].fresh(_QUIET_S)
            return loads

        return in_turns(peers, settings, measure, doing=f"{subscribers:,} subscribers")


def results(subscribers: int, turns: dict[str, list[Turn]]) -> list[Result]:
    found = []
    note = _held_up(turns)
    for in_flight, name in IN_FLIGHT.items():
        loads = {peer: [turn[in_flight] for turn in some] for peer, some in turns.items()}
        its = partial(figure, turns=loads, note=note, why=_WHY, at=subscribers, at_unit=_AT)
        found += [
            its(_DELIVERIES.format(name), "/s", of=lambda load: load.per_s),
            its(f"server CPU each, {name}", "µs", of=lambda load: load.cpu_us),
        ]
    return found


def _held_up(turns: dict[str, list[Turn]]) -> str:
    """Which servers had to wait for their clients."""
    names = [
        peer
        for peer, some in turns.items()
        if some
        and max(statistics.median(turn[n].generator_busy for turn in some) for n in IN_FLIGHT)
        > _WHOLE_CORE
    ]
    return f"their clients used a whole core: {', '.join(names)}" if names else ""
