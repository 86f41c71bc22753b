"""The scalability experiments of Thialfi (Adya et al., SOSP 2011), on one process and one core.

**Active users**: each has five objects of its own, and one of them changes every 8 minutes. Time
runs 60 times faster here, so that it is every 8 seconds; MQTT clients of the benchmark send no
heartbeats, so a user that is not notified costs nothing but memory, and one of the paper a message
every 20 minutes. Users arrive at 570 per second, as in the paper. 23 times as many users took the
paper's cluster about 3 times the processors: much of what 100,000 users need is needed by nobody in
particular. A node that is idle uses next to nothing, so here the cost follows the load.

**Notification rate**: 2,600 users with five objects each, every update to one of them. The paper
says that processors are used in proportion to the rate, and that delays stay as they are: a median
of 0.6 to 0.7 s, most of which is waiting on purpose for batches to fill. Delays end when the kernel
has an update for its client, and, by the program, when the one that is all clients has read it.

**Latency**: the share of notifications that were received within a time, at 4,000 per second; and
the stages on the way, from the times that a node notes of one in 20 updates.
"""

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.plot import Plot
from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator, Load
from benchmarks.serving.servers import UNLIMITED, roskva, server_and_client_cores
from benchmarks.thialfi.stages import mean_stages_ms

TITLE: Final = "Thialfi"
PAPER: Final = "Thialfi"
EACH: Final = 5
ARRIVALS_PER_S: Final = 570
SPEED: Final = 60
EVERY_S: Final = 8 * 60 / SPEED
RATED_USERS: Final = 2600
RATES: Final = (1000, 2000, 4000, 6000, 8000, 10_000, 13_000)
SHORT_RATES: Final = (1000, 4000, 8000, 13_000)
USERS: Final = (1000, 2500, 5000, 10_000, 18_000)
SHORT_USERS: Final = (400, 1200, 3600)
CURVE_RATE: Final = 4000
_QUIET_S: Final = 2.0
TRACED: Final = f"[node]\ntrace_one_in = 20\n{UNLIMITED}"

BY_USERS: Final = "users, five objects each"
BY_RATE: Final = "notifications/s"
PLOTS: Final = (
    Plot(
        "thialfi-users",
        "Processor time as users become more (60 × as fast as in the paper)",
        BY_USERS,
        "% of a core",
        ("processor",),
    ),
    Plot(
        "thialfi-cost",
        "Processor time of each notification as their rate rises",
        "notifications per second",
        "microseconds",
        ("processor, each",),
    ),
    Plot(
        "thialfi-rate",
        "Delay as the rate rises",
        "notifications per second",
        "milliseconds",
        ("median delay", "p99 delay"),
        log_y=True,
    ),
    Plot(
        "thialfi-cdf",
        f"Received within a time, {CURVE_RATE:,} notifications per second",
        "milliseconds since it was published",
        "% of notifications",
        ("notifications received",),
        log_x=True,
    ),
)


def run(settings: Settings) -> list[Result]:
    with tempfile.TemporaryDirectory(prefix="roskva-bench-") as name:
        directory = Path(name)
        cores, client_cores = server_and_client_cores()
        generator = Generator(directory, client_cores)
        return [
            *active_users(settings, generator, directory, cores),
            *notification_rate(settings, generator, directory, cores),
            *stages(settings, generator, directory, cores),
        ]


def active_users(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    numbers = USERS if settings.full else SHORT_USERS
    seconds = 5.0 if settings.full else 1.2
    loads: dict[int, list[Load]] = {users: [] for users in numbers}
    arrivals_us: dict[int, list[float]] = {users: [] for users in numbers}
    for turn in range(settings.repetitions):
        for users in numbers[:: -1 if turn % 2 else 1]:
            settings.progress(f"{users:,} users, turn {turn + 1} of {settings.repetitions}")
            with (
                roskva(_new(directory), cores) as server,
                generator.population(
                    server, subscribers=users, objects=EACH * users, each=EACH, pace=ARRIVALS_PER_S
                ) as clients,
            ):
                before = server.cpu_s()
                clients.connect()
                arrivals_us[users].append((server.cpu_s() - before) / users * 1e6)
                loads[users].append(
                    clients.measure(rate=users / EVERY_S, seconds=seconds, warmup=0.5)
                )
    results: list[Result] = []
    for users in numbers:
        figures = {
            ("processor", "% of a core"): [100 * load.server_busy for load in loads[users]],
            ("per notification", "µs"): [load.cpu_us for load in loads[users]],
            ("per arrival", "µs"): arrivals_us[users],
            ("median", "ms"): [load.p50_us / 1000 for load in loads[users]],
        }
        results += [
            Result(
                name,
                statistics.median(runs),
                unit,
                at=users,
                at_unit=BY_USERS,
                runs={"Roskva": runs},
            )
            for (name, unit), runs in figures.items()
        ]
    more = numbers[-1] / numbers[0]
    return [
        *results,
        Result(
            f"processor for {more:.0f} × the users",
            _last_to_first(results, "processor"),
            "×",
            note="the paper: for 23 ×",
            peers={PAPER: 3.0},
            why="The paper's baseline of 100,000 users carries costs that nobody in particular "
            "causes. Ours has hardly any, so the cost of the load itself is what grows.",
        ),
        must_not_rise(results, "per arrival", f"{more:.0f} × the users"),
    ]


def notification_rate(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    rates = RATES if settings.full else SHORT_RATES
    loads: dict[int, list[Load]] = {rate: [] for rate in rates}
    with (
        roskva(_new(directory), cores) as server,
        generator.population(
            server, subscribers=RATED_USERS, objects=EACH * RATED_USERS, each=EACH
        ) as clients,
    ):
        clients.connect()
        for _ in range(settings.repetitions):
            for rate in rates:
                settings.progress(f"{rate:,} notifications per second")
                clients.fresh(_QUIET_S)  # the rate before may have been too much
                seconds = 4.0 if settings.full else 1.2
                loads[rate].append(clients.measure(rate=rate, seconds=seconds, warmup=0.3))
    results = []
    for name, unit, of in (
        ("processor, each", "µs", lambda load: load.cpu_us),
        ("median delay", "ms", lambda load: load.p50_us / 1000),
        ("p99 delay", "ms", lambda load: load.p99_us / 1000),
        ("median, by the program", "ms", lambda load: load.program_p50_us / 1000),
        ("p99, by the program", "ms", lambda load: load.program_p99_us / 1000),
        ("delivered", "% of those published", _received),
    ):
        for rate in rates:
            runs = [of(load) for load in loads[rate]]
            results.append(
                Result(
                    name,
                    statistics.median(runs),
                    unit,
                    better="higher" if unit.startswith("%") else "lower",
                    at=rate,
                    at_unit=BY_RATE,
                    peers={PAPER: 650.0} if name == "median delay" else {},
                    runs={"Roskva": runs},
                )
            )
    more = rates[-1] / rates[0]
    return [
        *results,
        must_not_rise(results, "processor, each", f"{more:.0f} × the rate"),
        _curve(loads[CURVE_RATE]),
        Result(
            "received within a second",
            100
            * statistics.median(
                share_within(load.percentiles_us, 1e6) for load in loads[CURVE_RATE]
            ),
            "%",
            better="higher",
            peers={PAPER: 88.0},
        ),
    ]


def _received(load: Load) -> float:
    return 100 * load.deliveries / max(1, load.published)


def _curve(loads: Sequence[Load]) -> Result:
    """The repetition in the middle, by its median."""
    middle = sorted(loads, key=lambda load: load.p50_us)[len(loads) // 2]
    steps = len(middle.percentiles_us) - 1
    points = [(us / 1000, 100 * i / steps) for i, us in enumerate(middle.percentiles_us)]
    return Result("notifications received", middle.p50_us / 1000, "ms", curve=points)


def share_within(percentiles_us: Sequence[float], limit_us: float) -> float:
    return sum(us <= limit_us for us in percentiles_us) / len(percentiles_us)


def stages(
    settings: Settings, generator: Generator, directory: Path, cores: set[int]
) -> list[Result]:
    settings.progress("stages")
    place = _new(directory)
    (place / "roskva.toml").write_text(TRACED)
    with (
        roskva(place, cores, "--config", str(place / "roskva.toml")) as server,
        generator.population(server, subscribers=1000, objects=1000) as clients,
    ):
        clients.connect()
        clients.measure(rate=CURVE_RATE / 4, seconds=6.0 if settings.full else 3.0)
    found = mean_stages_ms(place / "data")
    whole = sum(found.values())
    return [
        Result(
            f"until {stage}, mean",
            milliseconds,
            "ms",
            note=f"{milliseconds / whole:.0%} of the time from published to acked",
        )
        for stage, milliseconds in found.items()
    ]


def _last_to_first(results: Sequence[Result], name: str) -> float:
    values = [result.value for result in results if result.name == name]
    return values[-1] / values[0]


def must_not_rise(results: Sequence[Result], name: str, more: str) -> Result:
    return Result(
        f"{name}: at {more}, to the least",
        _last_to_first(results, name),
        "×",
        1.1,
        note="must not rise; a tenth is left for what the machine does beside",
    )


def _new(directory: Path) -> Path:
    return Path(tempfile.mkdtemp(dir=directory))
