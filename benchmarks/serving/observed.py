"""What it costs a node to be observed: deliveries with metrics, sampling and prober as they are by
default, and somebody who reads /metrics, against a node without any of it.

Both share a core, and are under the same load at the same time: the difference is smaller than what
a machine varies by from second to second. Compared is what each delivers per second of processor
time.
Counters are additions to plain integers, in both. What the other node (`unobserved.py`) leaves out
is everything else: distributions, rates, samples, the prober, and being asked.
"""

import statistics
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.result import Result, Settings
from benchmarks.serving.generator import Generator, Load
from benchmarks.serving.servers import UNLIMITED, Server, roskva

_SUBSCRIBERS: Final = 1000
_WINDOW: Final = 1.5
_TURN_S: Final = 5.0
"""In which a node is probed once."""
_ASKED_EVERY_S: Final = 5.0
_WITHOUT: Final = "without"


def run(settings: Settings, generator: Generator, directory: Path, cores: set[int]) -> list[Result]:
    settings.progress("what being observed costs")
    plain, bare = directory / "observed", directory / "unobserved"
    for each in (plain, bare):
        each.mkdir()
    (bare / "roskva.toml").write_text(f'[node]\ntrace_one_in = "off"\n{UNLIMITED}')
    program = (sys.executable, str(Path(__file__).with_name("unobserved.py")))
    flags = ("--config", str(bare / "roskva.toml"))
    with (
        roskva(plain, cores, probe=True) as observed,
        roskva(bare, cores, *flags, program=program) as unobserved,
        _asked(observed),
        ThreadPoolExecutor(2) as both,
    ):

        def load(server: Server) -> Load:
            return generator.run(server, subscribers=_SUBSCRIBERS, window=_WINDOW, seconds=_TURN_S)

        turns = [tuple(both.map(load, (observed, unobserved))) for _ in range(settings.repetitions)]
    runs = {
        "Roskva": [1e6 / ours.cpu_us for ours, _ in turns],
        _WITHOUT: [1e6 / other.cpu_us for _, other in turns],
    }
    value, without = (statistics.median(some) for some in runs.values())
    ratios = [a / b for a, b in zip(*runs.values(), strict=True)]
    return [
        Result(
            "MQTT deliveries of an observed node, in a second of a core",
            value,
            "/s",
            better="higher",
            note=f"without {without:,.0f}/s",
            runs=runs,
        ),
        Result(
            "… to a node that is not",
            statistics.median(ratios),
            "×",
            0.97,
            "higher",
            f"{min(ratios):.3f} to {max(ratios):.3f}",
        ),
    ]


@contextmanager
def _asked(server: Server) -> Iterator[None]:
    over = threading.Event()

    def ask() -> None:
        while not over.wait(_ASKED_EVERY_S):
            urllib.request.urlopen(f"http://127.0.0.1:{server.http_port}/metrics").read()

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        yield
    finally:
        over.set()
        asking.join()
