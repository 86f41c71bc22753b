"""Memory of clients that are connected and hear nothing: each registered for 5 of 1,000 objects.

Resident memory of all processes of a server, before anybody connects and when everybody has; the
kernel's share of a connection, which is the same for all, is not in it. Clients of Roskva and of
Mosquitto have sessions that persist. A watcher of a NATS key is a consumer, and a client has five
of them.
"""

from typing import Final

from benchmarks.brokers.peers import LIVE, Peer, absent, installed
from benchmarks.brokers.place import bench
from benchmarks.result import Result, Settings
from benchmarks.turns import figure, in_turns

TITLE: Final = "Brokers: memory of idle clients"
OBJECTS: Final = 1000
EACH: Final = 5
_WHY: Final = (
    "a session and its registrations are objects of Python here, and a connection one of uvloop; "
    "there they are structs of C"
)


def run(settings: Settings) -> list[Result]:
    clients = 10_000 if settings.full else 2_000
    once = Settings(1, settings.full, settings.progress)

    with bench() as here:

        def measure(peer: Peer) -> float:
            with here.started(peer) as server:
                before = server.rss_bytes()
                with peer.clients(
                    here.generator,
                    server,
                    subscribers=clients,
                    objects=OBJECTS,
                    each=EACH,
                    app="idle",
                ) as population:
                    population.connect()
                    return (server.rss_bytes() - before) / clients / 1024

        turns = in_turns(installed(LIVE), once, measure) | absent(LIVE)
    return results(clients, turns)


def results(clients: int, turns: dict[str, list[float]]) -> list[Result]:
    name = f"memory per idle client, of {clients:,}"
    return [figure(name, "KB", turns, lambda kilobytes: kilobytes, why=_WHY)]
