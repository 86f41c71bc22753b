"""Offline catch-up: 1,000 clients, each registered for 5 of 50 objects, are away while the objects
change, and all return at once.

Before they leave, everybody has every object. Then the objects are updated, one after the other.
When they return, the time is taken until every client holds the newest version of each of its
objects, and messages and bytes that clients received are counted. Memory is what the server had at
most, over what it had when they left.

Those who queue keep every update for every client: Mosquitto with sessions that persist, with
queues that have no end and with its own bound of 1,000, beyond which it throws away the newest;
Redis streams, which keep an update once, and send all of them to each. Those who keep the latest
value, as Roskva does: Mosquitto with retained messages, a NATS KV bucket, and a Redis stream with
room for one entry. NATS core and Redis pub/sub keep nothing: who was away never hears of it.
"""

from functools import partial
from typing import Final

import msgspec

from benchmarks.brokers.peers import (
    ALL,
    BOUNDED,
    CORE,
    LAST_ENTRY,
    PUBSUB,
    QUEUES,
    Peer,
    absent,
    installed,
)
from benchmarks.brokers.place import Bench, bench
from benchmarks.result import Result, Settings
from benchmarks.turns import figure, in_turns

TITLE: Final = "Brokers: offline catch-up"
CLIENTS: Final = 1000
OBJECTS: Final = 50
EACH: Final = 5
IN_FLIGHT: Final = 100
_PEERS: Final = (*ALL, BOUNDED, LAST_ENTRY)
_QUIET_S: Final = 2.0
_SHORT: Final = 20_000
"""Updates: 2,000 for each client, twice what a bounded queue holds."""
_MOST: Final = 100_000
"""Updates, if each is queued for each client: 100 million messages would fill the memory."""
_ONCE: Final = (QUEUES, BOUNDED, CORE, PUBSUB)
"""Who takes long, and who has nothing to keep. With more than `_MOST` updates all take long."""
_WHY: Final = (
    "it keeps one value per object in memory, in C or Go, and sends it with the subscription; a "
    "returning client of Roskva is also a session that is opened durably, so that an older one of "
    "the same client can do no harm, and its registrations are read from disk"
)

_WHY_UPDATE: Final = (
    "its path from the socket to memory is short and in C or Go; Roskva checks, appends, syncs and "
    "merges each update in Python, and the price does not depend on who is registered"
)


class Return(msgspec.Struct, frozen=True):
    publish_s: float
    seconds: float
    messages: int
    bytes: int
    grown_bytes: int
    stale: int
    publish_cpu_s: float
    return_cpu_s: float


def run(settings: Settings) -> list[Result]:
    peers = installed(_PEERS)
    found = []
    with bench() as here:
        for updates in (100_000, 1_000_000) if settings.full else (_SHORT,):
            these = [peer for peer in peers if peer != QUEUES or updates <= _MOST]
            once = these if updates > _MOST else _ONCE
            turns = in_turns(these, settings, partial(_away, here, updates), once=once)
            found += results(updates, turns | absent(_PEERS))
    return found


def _away(here: Bench, updates: int, peer: Peer) -> Return:
    with (
        here.started(peer) as server,
        peer.clients(
            here.generator, server, subscribers=CLIENTS, objects=OBJECTS, each=EACH, app="away"
        ) as clients,
    ):
        clients.connect()
        clients.publish(OBJECTS, OBJECTS)
        clients.fresh(_QUIET_S)
        before = clients.leave()
        memory, cpu_s = server.rss_bytes(), server.cpu_s()
        published = clients.publish(updates, IN_FLIGHT)
        published_cpu_s = server.cpu_s()
        back = clients.connect()
        fresh = clients.fresh(_QUIET_S)
        return Return(
            publish_s=published.seconds,
            seconds=max(fresh.ended, back.ended) - back.began,
            messages=fresh.messages - before.messages,
            bytes=fresh.bytes - before.bytes,
            grown_bytes=max(0, server.peak_bytes() - memory),
            stale=fresh.stale,
            publish_cpu_s=published_cpu_s - cpu_s,
            return_cpu_s=server.cpu_s() - published_cpu_s,
        )


def results(updates: int, turns: dict[str, list[Return]]) -> list[Result]:
    at, unit = float(updates), "updates while away"
    queued = updates * CLIENTS * EACH // OBJECTS
    note = f"one by one these were {queued:,} messages"

    def fresh(back: Return) -> float | None:
        return None if back.stale else back.seconds

    # What it costs to lose something is no figure to compare with.
    whole = {peer: some for peer, some in turns.items() if not any(b.stale for b in some)}

    return [
        figure("until all are fresh", "s", turns, fresh, note=note, why=_WHY, at=at, at_unit=unit),
        figure("client × object that stay stale", "%", turns, _lost, at=at, at_unit=unit),
        figure("messages", "", whole, lambda b: b.messages, why=_WHY, at=at, at_unit=unit),
        figure("bytes", "KB", whole, lambda b: b.bytes / 1e3, why=_WHY, at=at, at_unit=unit),
        figure("memory", "MB", whole, lambda b: b.grown_bytes / 1e6, why=_WHY, at=at, at_unit=unit),
        figure(
            "server CPU for each update, nobody there",
            "µs",
            turns,
            lambda b: b.publish_cpu_s / updates * 1e6,
            why=_WHY_UPDATE,
            at=at,
            at_unit=unit,
        ),
        figure(
            "server CPU for each that returns",
            "µs",
            whole,
            lambda b: b.return_cpu_s / CLIENTS * 1e6,
            why=_WHY,
            at=at,
            at_unit=unit,
        ),
    ]


def _lost(back: Return) -> float:
    return back.stale / (CLIENTS * EACH) * 100
