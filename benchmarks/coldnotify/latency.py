"""How long notifications take, and what that costs each role."""

import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.coldnotify.roles import APART, ROLES, cpu_s, processes
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator, Load, Population
from benchmarks.serving.servers import roskva

CLIENTS: Final = 1000
RATES: Final = (1000, 5000, 9000, 13_000, 17_000, 21_000, 25_000)
SHORT_RATES: Final = (1000, 7000, 13_000, 25_000)
THEIRS: Final = {"mean": {13_000: 18.4}, "median": {13_000: 5.1}}
TARGET_MS: Final = {("median", 13_000): 4.0}
THESIS: Final = "ColdNotify"

WHY: Final = (
    "1,000 clients are written to one after the other, so the one in the middle waits for half of "
    "them, and all for the update to be on disk. Here they are on the machine of the node; the "
    "thesis had 84 machines for them."
)

FIGURES: Final[dict[str, Callable[[Load], float]]] = {
    "median": lambda load: load.p50_us / 1000,
    "mean": lambda load: load.mean_us / 1000,
    "p99": lambda load: load.p99_us / 1000,
}
BY_PROGRAM: Final[dict[str, Callable[[Load], float]]] = {
    "median, by the program": lambda load: load.program_p50_us / 1000,
    "mean, by the program": lambda load: load.program_mean_us / 1000,
}
"""Of the clients, where the thesis has its clocks."""


def by_rate(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    """1,000 clients of one object. In turns: every rate, then every rate again."""
    rates = RATES if settings.full else SHORT_RATES
    loads: dict[int, list[Load]] = {rate: [] for rate in rates}
    used: dict[str, dict[int, list[float]]] = {role: {rate: [] for rate in rates} for role in ROLES}
    with ExitStack() as open_:
        one = open_.enter_context(roskva(_new(directory), cores))
        apart = open_.enter_context(roskva(_new(directory), cores, *APART))
        clients = open_.enter_context(generator.population(one, subscribers=CLIENTS))
        others = open_.enter_context(generator.population(apart, subscribers=CLIENTS))
        clients.connect()
        others.connect()
        pids = processes(apart)
        for _ in range(settings.repetitions):
            for rate in rates:
                settings.progress(f"{rate:,} notifications per second on one object")
                loads[rate].append(_measured(settings, clients, rate / CLIENTS))
                before = {role: cpu_s(pids[role]) for role in ROLES}
                began = time.monotonic()
                _measured(settings, others, rate / CLIENTS)
                for role in ROLES:
                    share = (cpu_s(pids[role]) - before[role]) / (time.monotonic() - began)
                    used[role][rate].append(100 * share)
    results = [
        Result(
            name,
            statistics.median(runs := [of(load) for load in loads[rate]]),
            "ms",
            TARGET_MS.get((name, rate)),
            at=rate,
            at_unit="notifications/s on one object",
            peers={THESIS: THEIRS[name][rate]} if rate in THEIRS.get(name, {}) else {},
            runs={"Roskva": runs},
            why=WHY,
        )
        for name, of in (FIGURES | BY_PROGRAM).items()
        for rate in rates
    ]
    results += [
        Result(
            ROLES[role],
            statistics.median(used[role][rate]),
            "% of a core",
            at=rate,
            at_unit="notifications/s on one object",
            runs={"Roskva": used[role][rate]},
        )
        for role in ROLES
        for rate in rates
    ]
    means = [(r.at or 0.0, r.value) for r in results if r.name == "mean"]
    return [*results, growth("mean latency per notification/s more", means, 1.51)]


def many_objects(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    """One client each."""
    rate = 13_000
    settings.progress(f"{rate:,} notifications per second on {CLIENTS:,} objects")
    with (
        roskva(_new(directory), cores) as server,
        generator.population(server, subscribers=CLIENTS, objects=CLIENTS) as clients,
    ):
        clients.connect()
        loads = [_measured(settings, clients, rate) for _ in range(settings.repetitions)]
    kept_up = statistics.median(load.published / load.seconds / rate for load in loads)
    delivered = statistics.median(load.deliveries / max(1, load.published) for load in loads)
    name = f"{{}}, {rate:,}/s on {CLIENTS:,} objects"
    return [
        Result(
            name.format(figure),
            statistics.median(runs := [of(load) for load in loads]),
            "ms",
            1.0 if figure == "median" else None,
            note=f"{kept_up:.0%} of the rate, {delivered:.0%} of it delivered; the node used "
            f"{statistics.median(load.server_busy for load in loads):.2f} cores",
            runs={"Roskva": runs},
        )
        for figure, of in FIGURES.items()
    ]


def by_clients(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    numbers = (1, 125, 250, 500, 750, 1000) if settings.full else (1, 250, 1000)
    results = []
    with roskva(_new(directory), cores) as server:
        for number in numbers:
            settings.progress(f"{number:,} clients")
            with generator.population(server, subscribers=number) as clients:
                clients.connect()
                loads = [_measured(settings, clients, 10.0) for _ in range(settings.repetitions)]
            for name in ("median", "mean"):
                runs = [FIGURES[name](load) for load in loads]
                results.append(
                    Result(
                        f"latency, {name}",
                        statistics.median(runs),
                        "ms",
                        at=number,
                        at_unit="clients of one object",
                        runs={"Roskva": runs},
                    )
                )
    means = [(r.at or 0.0, r.value) for r in results if r.name == "latency, mean"]
    return [*results, growth("mean latency per client more", means, 4.3)]


def arriving(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    """0 to 1,000 clients with 50 registrations each; theirs took 48 seconds to arrive."""
    pace = 21 if settings.full else 250
    watchers = 100
    settings.progress("clients that arrive")
    with (
        roskva(_new(directory), cores, *APART) as server,
        generator.population(server, subscribers=watchers, app="watch") as watching,
        generator.population(
            server, subscribers=CLIENTS, objects=50, each=50, pace=pace
        ) as clients,
    ):
        watching.connect()
        quiet = watching.measure(rate=10.0, seconds=2.0)
        pids = processes(server)
        before = {role: cpu_s(pids[role]) for role in ROLES}
        watching.say(f"rate 10 {CLIENTS / pace}")
        arrived = clients.connect()
        while_arriving = watching.hear()
        used = {role: cpu_s(pids[role]) - before[role] for role in ROLES}
    each = ", ".join(f"{ROLES[role]} {1000 * used[role] / CLIENTS:.2f} ms" for role in ROLES)
    name = f"median to {watchers} others, while {{}}"
    return [
        Result(name.format("nobody arrives"), quiet.p50_us / 1000, "ms"),
        Result(
            name.format(f"{CLIENTS / arrived.seconds:,.0f} clients/s arrive"),
            while_arriving.p50_us / 1000,
            "ms",
            note=f"50 registrations each; processor per arrival: {each}",
        ),
    ]


def _measured(settings: Settings, clients: Population, rate: float) -> Load:
    return clients.measure(rate=rate, seconds=2.0 if settings.full else 1.0, warmup=0.2)


def growth(name: str, points: list[tuple[float, float]], theirs: float) -> Result:
    """The slope of milliseconds over whatever was varied."""
    slope = statistics.linear_regression(*zip(*points, strict=True)).slope * 1000
    return Result(name, slope, "µs", peers={THESIS: theirs})


def _new(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=directory))
