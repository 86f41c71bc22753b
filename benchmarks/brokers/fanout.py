"""One object with 1,000 subscribers: how many deliveries a second, and how long one takes.

The generator publishes the next update when a quarter of the subscribers have the last one
(`load.c`), so that a server is never idle and never flooded. Roskva and Mosquitto deliver with QoS
1, to sessions that persist, and every delivery is acknowledged; so is, in effect, an entry of a
Redis stream, since the client asks for what follows it. NATS and Redis pub/sub acknowledge nothing.
Roskva is also measured with its own protocol over WebSocket, in which a client acknowledges after
50 ms whatever it has received by then, in one message. Mosquitto's retained messages are compared
only where clients are away: to those who are there it sends the same, 70,410 deliveries a second
with them and 67,911 without when both were measured.

For latency, 10 updates leave in a second, whatever comes of them: 10,000 deliveries. By the
kernel's clock a subscriber has received an update when it is in its socket: the clients here share
one program, and what waits there for its turn does not wait for the server. By the clock of that
program it is received when it has been read.

Roskva syncs every update to disk before it accepts it, and Redis streams do so, too; a NATS KV
bucket writes it, and the others keep nothing on disk. Server CPU is that of all its processes, and
it has one core. All clients of all servers stay connected: turns are short and close to each other.
"""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

import msgspec

from benchmarks.brokers.peers import LIVE, QUEUES, Peer, absent, installed
from benchmarks.brokers.place import bench
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Load
from benchmarks.turns import OURS, figure, in_turns, ratio

TITLE: Final = "Brokers: fan-out and latency"
SUBSCRIBERS: Final = 1000
WINDOW: Final = 1.75
RATE: Final = 10.0
_WARMUP_S: Final = 0.2
_OFTEN: Final = 4
"""Turns in a repetition. What else the machine does lasts for a second or so: of many short turns,
fewer are hit than of a few long ones."""

_WHY_RATE: Final = (
    "it acknowledges nothing and keeps nothing: one send per delivery, and no packet to read back; "
    "Roskva reads and counts an acknowledgement for each"
)
_WHY_LATENCY: Final = (
    "it sends before anything is on disk; Roskva syncs an update first, and the first of 1,000 "
    "subscribers waits for that as the last one does"
)


class Turn(msgspec.Struct, frozen=True):
    fan_out: Load
    websocket: Load | None = None


def run(settings: Settings) -> list[Result]:
    peers = installed(LIVE)
    seconds = 2.0 if settings.full else 0.6
    short_s = seconds / 2

    with bench() as here, here.all_started(peers) as servers, ExitStack() as stack:
        clients = {
            peer.name: stack.enter_context(
                peer.clients(
                    here.generator,
                    servers[peer.name],
                    subscribers=SUBSCRIBERS,
                    objects=1,
                    each=1,
                    app="fanout",
                )
            )
            for peer in peers
        }
        own = stack.enter_context(
            here.generator.population(
                servers[OURS], subscribers=SUBSCRIBERS, protocol="websocket", app="websocket"
            )
        )
        for population in (*clients.values(), own):
            population.connect()

        def measure(peer: Peer) -> Turn:
            its = clients[peer.name]
            fan_out = its.measure(window=WINDOW, seconds=short_s, warmup=_WARMUP_S)
            websocket = None
            if peer.name == OURS:
                websocket = own.measure(window=WINDOW, seconds=short_s, warmup=_WARMUP_S)
            return Turn(fan_out, websocket)

        def measure_latency(peer: Peer) -> Load:
            return clients[peer.name].measure(rate=RATE, seconds=seconds, warmup=2 / RATE)

        turns = in_turns(peers, settings, measure, often=_OFTEN)
        latency = in_turns(peers, settings, measure_latency, often=2)
    return results(turns | absent(LIVE), latency | absent(LIVE))


def results(turns: dict[str, list[Turn]], latency: dict[str, list[Load]]) -> list[Result]:
    fan_out = {peer: [turn.fan_out for turn in some] for peer, some in turns.items()}
    websocket = {OURS: [turn.websocket for turn in turns[OURS] if turn.websocket]}
    if QUEUES.name in fan_out:
        websocket[QUEUES.name] = fan_out[QUEUES.name]
    name = f"deliveries to {SUBSCRIBERS:,} subscribers"
    rate = figure(name, "/s", fan_out, lambda load: load.per_s, why=_WHY_RATE)
    own = figure(
        f"{name}, Roskva's own protocol over WebSocket",
        "/s",
        websocket,
        lambda load: load.per_s,
    )
    found = [
        rate,
        *ratio(rate, QUEUES.name, target=1.5),
        figure("… server CPU each", "µs", fan_out, lambda load: load.cpu_us, why=_WHY_RATE),
        figure(
            "… cores its clients used",
            "",
            fan_out,
            lambda load: load.generator_busy,
            better="neither",
        ),
        own,
        *ratio(own, QUEUES.name, target=1.5),
        figure("… server CPU each", "µs", websocket, lambda load: load.cpu_us),
    ]
    of_load = Callable[[Load], float]
    parts: list[tuple[str, of_load, of_load]] = [
        ("p50", lambda load: load.p50_us / 1000, lambda load: load.program_p50_us / 1000),
        ("p99", lambda load: load.p99_us / 1000, lambda load: load.program_p99_us / 1000),
    ]
    for part, by_kernel, by_program in parts:
        name = f"{part} from publish to receipt, {RATE:g}/s to {SUBSCRIBERS:,}"
        percentile = figure(name, "ms", latency, by_kernel, why=_WHY_LATENCY)
        found += [
            percentile,
            *ratio(percentile, QUEUES.name, target=1.0, better="lower"),
            figure("… by its program's clock", "ms", latency, by_program, why=_WHY_LATENCY),
        ]
    name = f"server CPU each, {RATE:g}/s to {SUBSCRIBERS:,}"
    found.append(figure(name, "µs", latency, lambda load: load.cpu_us, why=_WHY_RATE))
    return found
