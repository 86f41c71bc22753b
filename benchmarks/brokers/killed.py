"""kill −9 of the server under load, and its start at once: how long until all clients are fresh?

1,000 clients, each registered for 5 of 1,000 objects; 2,000 updates, which are 10,000 deliveries,
in a second. All processes of the server are killed and it is started again, with what it has on
disk. The publisher says again what was not accepted, and then updates every object once more: the
world has gone on meanwhile. Clients that lost their connection try again every 0.1 s. The time is
from the kill until every client is back and holds the newest version of each of its objects.

Every server is as durable as it can be made: Roskva and Redis streams sync each update, NATS KV
writes it, Mosquitto saves everything every two seconds. NATS core and Redis pub/sub have nothing to
save: who is back after the update never hears of it.
"""

import time
from typing import Final

import msgspec

from benchmarks.brokers.peers import ALL, CORE, KV, PUBSUB, Peer, absent, installed, saved
from benchmarks.brokers.place import Bench, bench
from benchmarks.result import Result, Settings
from benchmarks.turns import figure, in_turns

TITLE: Final = "Brokers: kill −9"
CLIENTS: Final = 1000
OBJECTS: Final = 1000
EACH: Final = 5
RATE: Final = 2000
IN_FLIGHT: Final = 100
_LOAD_S: Final = 2.2
"""Long enough for Mosquitto to save its sessions."""
_QUIET_S: Final = 1.5
_WHY: Final = (
    "its program starts in milliseconds; Roskva needs most of a second to load Python, its "
    "libraries and RocksDB before it can listen"
)


class Recovery(msgspec.Struct, frozen=True):
    accepts_s: float
    """Until it listened again."""
    seconds: float
    stale: int


def run(settings: Settings) -> list[Result]:
    peers = [saved(peer) for peer in installed(ALL)]
    with bench() as here:
        # Two of them lose it every time, and the third takes long.
        once = (CORE, PUBSUB) if settings.full else (CORE, PUBSUB, KV)
        turns = in_turns(peers, settings, lambda peer: _killed(here, peer), once=once)
    return results(turns | absent(ALL))


def _killed(here: Bench, peer: Peer) -> Recovery:
    directory = here.new_directory()
    with (
        peer.start(directory, here.server_cores) as server,
        peer.clients(
            here.generator,
            server,
            subscribers=CLIENTS,
            objects=OBJECTS,
            each=EACH,
            app="killed",
            reconnect=True,
        ) as clients,
    ):
        clients.connect()
        clients.publish(OBJECTS, IN_FLIGHT)
        clients.fresh(_QUIET_S)
        clients.say(f"until-lost {RATE}")
        time.sleep(_LOAD_S)
        killed = time.monotonic()
        server.kill()
        with peer.start(directory, here.server_cores, again=server):
            accepts_s = time.monotonic() - killed
            clients.hear()
            clients.publish(OBJECTS, IN_FLIGHT)
            back = clients.connect()
            fresh = clients.fresh(_QUIET_S)
        return Recovery(accepts_s, max(fresh.ended, back.ended) - killed, fresh.stale)


def results(turns: dict[str, list[Recovery]]) -> list[Result]:
    def fresh(recovery: Recovery) -> float | None:
        return None if recovery.stale else recovery.seconds

    def lost(recovery: Recovery) -> float:
        return recovery.stale / (CLIENTS * EACH) * 100

    return [
        figure("from kill −9 until all are fresh", "s", turns, fresh, why=_WHY),
        figure("… until it listens again", "s", turns, lambda r: r.accepts_s, why=_WHY),
        figure("… client × object that stay stale", "%", turns, lost),
    ]
