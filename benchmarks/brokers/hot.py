"""A hot object: 20 and 1,000 updates of it at once, and 1,000 subscribers who want the newest.

All updates leave without waiting for any. The time is from the first of them until every subscriber
holds the last one. Who queues delivers all of them to everybody; who keeps the latest value may
leave out what has been overtaken. Nothing may be lost: everybody has to end with the newest. Roskva
is also measured with a window of 20 ms in which it keeps only the newest, and with one that follows
its backlog (`batch_ms`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from benchmarks.brokers.peers import LAST_ENTRY, LIVE, QUEUES, ROSKVA, Peer, absent, installed
from benchmarks.brokers.place import bench
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Population
from benchmarks.serving.servers import UNLIMITED, Server, roskva
from benchmarks.turns import figure, in_turns

TITLE: Final = "Brokers: a hot object"
SUBSCRIBERS: Final = 1000
_PEERS: Final = (*LIVE, LAST_ENTRY)
_QUIET_S: Final = 5.0
_WHY: Final = (
    "it takes a burst as one piece: NATS and Redis read all of it before they send, and who keeps "
    "the last value then sends only that; Roskva reads at most 100 updates of one publisher before "
    "they are on disk, and tells everybody after each such group"
)


def _batched(batch_ms: str) -> Peer:
    @contextmanager
    def start(directory: Path, cores: set[int], **again: Any) -> Iterator[Server]:
        settings = directory / "roskva.toml"
        settings.write_text(f"[defaults]\nbatch_ms = {batch_ms}\n{UNLIMITED}")
        with roskva(directory, cores, "--config", str(settings), **again) as server:
            yield server

    return msgspec.structs.replace(ROSKVA, name=f"Roskva, batch_ms = {batch_ms}", start=start)


BATCHED: Final = (_batched("20"), _batched('"auto"'))


class Burst(msgspec.Struct, frozen=True):
    seconds: float
    messages: int
    server_cpu_s: float
    stale: int


def run(settings: Settings) -> list[Result]:
    peers = [*installed(_PEERS), *BATCHED]

    with bench() as here, here.all_started(peers) as servers:

        def measure(count: int, peer: Peer) -> Burst:
            server = servers[peer.name]
            with peer.clients(
                here.generator, server, subscribers=SUBSCRIBERS, objects=1, each=1, app="hot"
            ) as clients:
                clients.connect()
                clients.publish(1, 1)
                clients.fresh(_QUIET_S)
                return _burst(clients, server, count)

        found = []
        for count, once in ((20, ()), (1000, (QUEUES,))):
            turns = in_turns(peers, settings, partial(measure, count), once=once)
            found += results(count, turns | absent(_PEERS))
    return found


def _burst(clients: Population, server: Server, count: int) -> Burst:
    before, cpu_s = clients.fresh(_QUIET_S), server.cpu_s()
    sent = clients.publish(count, count)
    after = clients.fresh(_QUIET_S)
    return Burst(
        seconds=after.ended - sent.began,
        messages=after.messages - before.messages,
        server_cpu_s=server.cpu_s() - cpu_s,
        stale=after.stale,
    )


def results(count: int, turns: dict[str, list[Burst]]) -> list[Result]:
    name = f"until all {SUBSCRIBERS:,} hold the last of {count:,} updates"
    return [
        figure(name, "ms", turns, lambda b: None if b.stale else b.seconds * 1e3, why=_WHY),
        figure("… messages to each", "", turns, lambda b: b.messages / SUBSCRIBERS, why=_WHY),
        figure("… server CPU", "ms", turns, lambda b: b.server_cpu_s * 1e3, why=_WHY),
    ]
