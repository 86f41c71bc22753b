"""Serving: fan-out and memory of a node, side by side with Mosquitto; what TLS, keys, processes and
metrics cost it. Latency, sessions that persist, and WebSocket are under Brokers.

The same client program (`generator/`) talks to both, over loopback, in short turns, so that
whatever else the machine does meets both alike; a ratio is the median of the ratios of such turns.
Each server has one core, and the generator the others. Clients subscribe with QoS 1 and a clean
session, and acknowledge every packet; an update is the version in digits.

For throughput, the next update leaves when the last has reached a quarter of the subscribers
(`load.c`). So the server always has something to do (with half of them, Roskva waited for the
generator now and then), and both do the same work: with many more updates under way Roskva would
skip those that are overtaken, which is what it is for, and Mosquitto would queue. Every update is
on Roskva's disk before it is acknowledged; Mosquitto writes nothing.

What TLS and keys cost is measured in the long version only.
"""

import os
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.result import Result, Settings
from benchmarks.serving import authorised, encrypted, observed
from benchmarks.serving.generator import Generator, Load, Population, Protocol
from benchmarks.serving.servers import (
    Server,
    mosquitto,
    mosquitto_path,
    roskva,
    server_and_client_cores,
)
from benchmarks.turns import OURS, figure, in_turns, ratio

SUBSCRIBERS: Final = 1000
WINDOW: Final = 1.75
IDLE_EACH: Final = 5
_WARMUP_S: Final = 0.15
_OFTEN: Final = 7
"""Turns in a repetition. What else the machine does lasts for a second or so: of many short turns,
fewer are hit than of a few long ones."""

PEER: Final = "Mosquitto"
ONE: Final = "one process"
_PLAIN: Final = "without TLS"
_NO_KEYS: Final = "without keys"

Start = Callable[[Path, set[int]], AbstractContextManager[Server]]


def run(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        directory = Path(name)
        server_cores, generator_cores = server_and_client_cores()
        generator = Generator(directory, generator_cores)
        with _servers(directory, server_cores) as servers:
            results = throughput(settings, generator, servers)
        results += memory(settings, generator, directory, server_cores)
        results += registrars(settings, generator, directory)
        if settings.full:
            results += tls(settings, directory, server_cores, generator_cores)
            results += keys(settings, directory, server_cores, generator_cores)
        results += observed.run(settings, generator, directory, server_cores)
    return results


def _seconds(settings: Settings) -> float:
    return 3.0 if settings.full else 0.8


@contextmanager
def _servers(directory: Path, cores: set[int]) -> Iterator[list[Server]]:
    """Ours first."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(start(_new(directory), cores))
            for start in (roskva, mosquitto)
            if start is roskva or mosquitto_path() is not None
        ]


@contextmanager
def _clients(generator: Generator, servers: list[Server]) -> Iterator[dict[str, Population]]:
    """Of each server, connected all the time: then turns can be short."""
    with ExitStack() as stack:
        found = {
            server.name: stack.enter_context(generator.population(server, subscribers=SUBSCRIBERS))
            for server in servers
        }
        for clients in found.values():
            clients.connect()
        yield found


def _new(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=directory))


def busy(loads: dict[str, list[Load]]) -> str:
    """Who was the limit: cores that a server used, and its clients."""
    return "; ".join(
        f"{name} {statistics.median(load.server_busy for load in some):.2f} cores, "
        f"clients {statistics.median(load.generator_busy for load in some):.2f}"
        for name, some in loads.items()
    )


# What is measured.


def throughput(settings: Settings, generator: Generator, servers: list[Server]) -> list[Result]:
    with _clients(generator, servers) as clients:
        loads = in_turns(
            servers,
            settings,
            lambda server: clients[server.name].measure(
                window=WINDOW, seconds=_seconds(settings) / 4, warmup=_WARMUP_S
            ),
            often=_OFTEN,
            doing="deliveries",
        )
    whole = min(load.delivered(SUBSCRIBERS) for some in loads.values() for load in some)
    name = "acknowledged MQTT deliveries, clean sessions"
    rate = figure(name, "/s", loads, lambda load: load.per_s, note=busy(loads))
    note = f"{whole:.0%} of updates × subscribers delivered"
    return [
        rate,
        *ratio(rate, PEER, target=1.5),
        figure("… server CPU each", "µs", loads, lambda load: load.cpu_us, note=note),
    ]


def memory(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    """Resident memory that idle clients add to a server that has had a few before: what it loads
    with the first of them is not for each."""
    idle = 10_000 if settings.full else 4000
    settings.progress("memory of idle clients")

    def connected(
        server: Server, clients: int, protocol: Protocol
    ) -> AbstractContextManager[object]:
        return generator.connected(
            server, subscribers=clients, objects=clients // 2, each=IDLE_EACH, protocol=protocol
        )

    def per_client(start: Start, protocol: Protocol) -> float:
        with start(_new(directory), cores) as server:
            with connected(server, idle // 40, protocol):
                pass
            before = server.rss_bytes()
            with connected(server, idle, protocol):
                return (server.rss_bytes() - before) / idle / 1024

    peers = {PEER: per_client(mosquitto, "mqtt")} if mosquitto_path() else {}
    why = "A session is objects of Python here, and a few structs of C there."
    note = f"{idle:,} clients, {IDLE_EACH} of {idle // 2:,} objects each"
    name = "memory per idle {} client"
    return [
        Result(
            name.format("MQTT"),
            per_client(roskva, "mqtt"),
            "KB",
            6,
            note=note,
            peers=peers,
            why=why,
        ),
        Result(name.format("WebSocket"), per_client(roskva, "websocket"), "KB", 6, note=note),
    ]


def registrars(settings: Settings, generator: Generator, directory: Path) -> list[Result]:
    """Two registrars and a state process against one process, all of them and the clients on the
    same cores: what is left is for the clients."""
    cores = os.sched_getaffinity(0)
    with (
        roskva(_new(directory), cores) as one,
        roskva(_new(directory), cores, "--registrars", "2") as two,
    ):
        run = partial(
            generator.run,
            subscribers=SUBSCRIBERS,
            window=WINDOW,
            seconds=_seconds(settings),
            workers=2,
            cores=cores,
        )
        servers = [two, msgspec.structs.replace(one, name=ONE)]
        loads = in_turns(servers, settings, run, doing="two registrars")
    name = "acknowledged MQTT deliveries, --registrars 2"
    rate = figure(name, "/s", loads, lambda load: load.per_s, note=busy(loads))
    return [msgspec.structs.replace(rate, peers={}), *ratio(rate, ONE)]


def tls(
    settings: Settings, directory: Path, cores: set[int], client_cores: set[int]
) -> list[Result]:
    settings.progress("TLS")
    certs = _new(directory)
    flags = encrypted.certificates(certs)
    with (
        roskva(_new(directory), cores) as plain,
        roskva(_new(directory), cores, *flags) as secure,
    ):
        run = partial(encrypted.measure, seconds=_seconds(settings), cores=client_cores)
        costs = [
            (run(plain, None), run(secure, certs / "ca.crt")) for _ in range(settings.repetitions)
        ]
    runs = {OURS: [b.cpu_us for _, b in costs], _PLAIN: [a.cpu_us for a, _ in costs]}
    with_tls, without = (statistics.median(runs[name]) for name in (OURS, _PLAIN))
    rates = [f"{statistics.median(c[i].per_s for c in costs):,.0f}/s" for i in (1, 0)]
    found = Result(
        f"MQTT over TLS, server CPU each, {encrypted.SUBSCRIBERS} subscribers",
        with_tls,
        "µs",
        note=f"{rates[0]}; without {without:.1f} µs and {rates[1]}",
        runs=runs,
    )
    return [found, *ratio(found, _PLAIN, better="lower")]


def keys(
    settings: Settings, directory: Path, cores: set[int], client_cores: set[int]
) -> list[Result]:
    """Deliveries to clients that were authorised when they registered, and that are again each
    time, against a node on which nobody is asked."""
    settings.progress("keys")
    made = authorised.Keys(_new(directory))
    with (
        roskva(_new(directory), cores) as open_to_all,
        roskva(_new(directory), cores, *made.flags(at_notify=False)) as keyed,
        roskva(_new(directory), cores, *made.flags(at_notify=True)) as asking,
    ):
        run = partial(encrypted.measure, ca=None, seconds=_seconds(settings), cores=client_cores)
        costs = [
            (run(open_to_all), *(run(each, connect=made.connect()) for each in (keyed, asking)))
            for _ in range(settings.repetitions)
        ]
    results: list[Result] = []
    for i, name in ((1, "with keys"), (2, "with keys, asked again at each notification")):
        runs = {OURS: [c[i].cpu_us for c in costs], _NO_KEYS: [c[0].cpu_us for c in costs]}
        without = statistics.median(runs[_NO_KEYS])
        rates = [f"{statistics.median(c[j].per_s for c in costs):,.0f}/s" for j in (i, 0)]
        found = Result(
            f"MQTT {name}, server CPU each, {encrypted.SUBSCRIBERS} subscribers",
            statistics.median(runs[OURS]),
            "µs",
            note=f"{rates[0]}; without {without:.1f} µs and {rates[1]}",
            runs=runs,
        )
        results += [found, *ratio(found, _NO_KEYS, better="lower")]
    return results
