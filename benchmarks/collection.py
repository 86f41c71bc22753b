"""Rows of clients that have been away for too long: how long it takes to collect them while the
node serves, and what its clients notice of that.

A node finds the rows when it starts, a million in the long version, and collects them in the
background. Meanwhile 100 MQTT clients are told of 50 updates per second. In turns, the same is
measured on a node that has nothing to collect; both are started anew for every turn, and both may
use the same core.
"""

import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator
from benchmarks.serving.servers import Server, roskva, server_and_client_cores
from benchmarks.turns import OURS, figure, in_turns, ratio
from roskva.core.effects import PutClient, PutRegistered
from roskva.model import shard_of
from roskva.server.directory import DataDirectory
from roskva.store import rows
from roskva.store.base import MAX_BATCH, Operation
from roskva.store.rocksdb import RocksStore
from roskva.wire.links import Registered

SUBSCRIBERS: Final = 100
RATE: Final = 50.0
SHARDS: Final = 4
TURNS: Final = 7
MAX_P99: Final = 1.2
_WITHOUT: Final = "with nothing to collect"
_SESSION: Final = 7 << 32
_LONG_AGO_US: Final = 90 * 86_400 * 10**6


class Node(NamedTuple):
    name: str
    data: Path


def run(settings: Settings) -> list[Result]:
    clients = 1_000_000 if settings.full else 100_000
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        directory = Path(name)
        cores, own_cores = server_and_client_cores()
        generator = Generator(directory, own_cores)
        settings.progress(f"writing {clients:,} rows")
        written = directory / "written"
        write_away(written, clients)
        nodes = [Node(OURS, written), Node(_WITHOUT, directory / "empty")]
        write_away(nodes[1].data, 0)

        def measure(node: Node) -> float:
            """The p99, in milliseconds."""
            with started(node, directory, cores) as server, ExitStack() as load:
                told = load.enter_context(generator.population(server, subscribers=SUBSCRIBERS))
                told.connect()
                if node.name == OURS:
                    await_collected(server, 1)
                seconds = 10.0 if settings.full else 4.0
                found = told.measure(seconds=seconds, rate=RATE)
                if node.name == OURS and collected(server) >= clients:
                    raise RuntimeError("all was collected before the turn was over")
                return found.p99_us / 1000

        turns = TURNS if settings.full else settings.repetitions
        several = Settings(turns, settings.full, settings.progress)
        found = in_turns(nodes, several, measure)
        p99 = figure("p99 of a notification meanwhile", "ms", found, lambda value: value)
        settings.progress(f"collecting {clients:,} clients")
        with (
            started(nodes[0], directory, cores) as server,
            generator.population(server, subscribers=SUBSCRIBERS) as told,
        ):
            told.connect()
            await_collected(server, 1)
            began, cpu_s = time.monotonic(), server.cpu_s()
            while collected(server) < clients:
                told.tell(f"rate {RATE} 2")
            took, used = time.monotonic() - began, server.cpu_s() - cpu_s
    return [
        Result(
            f"{clients:,} clients that were away collected",
            took,
            "s",
            better="lower",
            note=f"{clients / took:,.0f}/s, {used / took:.0%} of a core with the load beside it",
        ),
        p99,
        *ratio(p99, _WITHOUT, target=MAX_P99, better="lower"),
    ]


def write_away(data: Path, clients: int) -> None:
    """The state of a node; so many clients were last seen long ago, each with a registration."""
    seen_at = time.time_ns() // 1000 - _LONG_AGO_US
    directory = DataDirectory.open_or_create(data, SHARDS)
    with ExitStack() as owning:
        owned = [owning.enter_context(directory.own(number)) for number in range(SHARDS)]
        stores = [RocksStore(shard.store_path) for shard in owned]
        waiting: list[list[Operation]] = [[] for _ in stores]
        for number in range(clients):
            client = number.to_bytes(16)
            batch = waiting[shard_of(client, SHARDS)]
            registered = Registered(f"app/object-{number % 1000}", 5, 1 << 20)
            for write in (
                PutClient(client, _SESSION, seen_at, f"application-{number}"),
                PutRegistered(client, _SESSION, registered),
            ):
                batch += rows.operations_of(write)
            if len(batch) > MAX_BATCH - 8:
                stores[shard_of(client, SHARDS)].write(batch)
                batch.clear()
        for store, batch in zip(stores, waiting, strict=True):
            store.write(batch, sync=True)
            store.close()


@contextmanager
def started(node: Node, directory: Path, cores: set[int]) -> Iterator[Server]:
    """On a copy."""
    place = Path(tempfile.mkdtemp(dir=directory))
    shutil.copytree(node.data, place / "data")
    try:
        with roskva(place, cores) as server:
            yield server
    finally:
        shutil.rmtree(place)


def await_collected(server: Server, count: int) -> None:
    while collected(server) < count:
        time.sleep(0.1)


def collected(server: Server) -> float:
    text = urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics").read().decode()
    return total_of("roskva_clients_collected_total", text)


def total_of(counter: str, text: str) -> float:
    """Over all its labels; what stands there for people is not counted."""
    return sum(
        float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(counter)
    )
