"""From a commit to the client that is told, through the direct flow: delays and the sustained rate.

A row carries when its statement ran, by the database's clock, which is ours; a client reads it from
the row that it is told. So a delay includes the database's own commit, with its sync. All is on the
same cores: database, reader, node, client, and whoever changes rows.

At 200 changes a second Debezium's engine has its turns as well: there the delay ends when its
program has the change, and nobody is told yet. While one has its turn, the other is paused.

The **sustained rate** is the highest of those that were tried, each in an open loop over 1,000
rows, at which 99 of 100 notifications come within a second and the client has the last version of
every row at the end. Where the database commits less than it is asked for, it is the limit, and
what it committed counts.
"""

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.result import Result, Settings
from benchmarks.serving.servers import Server
from benchmarks.sources import ours, peer
from benchmarks.sources.databases import TABLE, PostgresShop, postgres, scratch
from benchmarks.turns import OURS, Better, in_turns

TITLE: Final = "Sources: until clients are told"
RATE: Final = 200.0
RATES: Final = (500, 1000, 2000, 4000, 8000)
ROWS: Final = 1000
WRITERS: Final = 8
ASKED: Final = "changes/s asked for"
_WARM_S: Final = 2.0
_QUIET_S: Final = 1.0
_SOON_MS: Final = 1000.0

Stamps = Sequence[tuple[int, int]]
"""When a statement ran and when its change was there, in wall-clock microseconds."""


class Party(msgspec.Struct, frozen=True):
    name: str
    process: Server
    stamps: Callable[[], Stamps]
    """Since it was asked last."""


class Rate(msgspec.Struct, frozen=True):
    asked: float
    committed: float
    """Changes a second."""
    p50_ms: float
    p99_ms: float
    told: float
    """The share of changes that was told; what was overtaken was not."""


class Listener:
    """A client in a process of its own."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self._process = process
        self._seen = 0

    def await_ready(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"listening\n":
            raise RuntimeError("the client does not come so far as to listen")

    def stamps(self) -> Stamps:
        """Since it was asked last."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=list[tuple[int, int]])


def run(settings: Settings) -> list[Result]:
    with (
        scratch() as place,
        postgres(place) as shop,
        ours.node(place, {ours.NAME: shop.url}) as node,
        node.reading() as reader,
    ):
        reader.await_ready()
        with listening(node, ROWS) as listener:
            listener.await_ready()
            party = Party(OURS, reader.process, listener.stamps)
            delays, missing = _at_rest(settings, shop, place, party)
            rates = [_at(rate, settings, shop, listener) for rate in RATES]
    return [*results(delays, missing), *rated(rates)]


def _at_rest(
    settings: Settings, shop: PostgresShop, place: Path, party: Party
) -> tuple[dict[str, list[list[float]]], str]:
    seconds = 20.0 if settings.full else 6.0
    missing = peer.what_is_missing(shop.kind)
    with ExitStack() as stack:
        parties = [party]
        if not missing:
            found = stack.enter_context(peer.reading(place, shop.url, stamps=True))
            found.await_ready()
            parties.append(Party(peer.NAME, found.process, found.take_stamps))

        def measure(party: Party) -> list[float]:
            with _others_paused(parties, party):
                time.sleep(_QUIET_S)  # with what was changed while it was paused
                party.stamps()
                began = time.time()
                shop.open_loop(RATE, _WARM_S + seconds, ROWS)
                time.sleep(_QUIET_S)
                return delays_ms(party.stamps(), began + _WARM_S)

        found_delays = in_turns(parties, settings, measure, doing=f"{RATE:.0f} changes/s")
    return found_delays, missing


@contextmanager
def _others_paused(parties: Sequence[Party], but: Party) -> Iterator[None]:
    others = [party.process.pid for party in parties if party is not but]
    for pid in others:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in others:
            os.kill(pid, signal.SIGCONT)


def _at(rate: float, settings: Settings, shop: PostgresShop, listener: Listener) -> Rate:
    settings.progress(f"{rate:,} changes/s")
    seconds = 20.0 if settings.full else 5.0
    listener.stamps()
    began = time.time()
    committed = shop.open_loop(rate, seconds, ROWS, WRITERS)
    took = time.time() - began
    time.sleep(_QUIET_S + _SOON_MS / 1000)
    stamps = listener.stamps()
    delays = delays_ms(stamps, began)
    told = {sent for sent, _ in stamps}
    if any(sent >= began * 1e6 and sent not in told for sent in shop.last_stamps(ROWS)):
        raise RuntimeError("a client lacks the last version of a row")
    return Rate(
        rate,
        committed / took,
        statistics.median(delays),
        p99(delays),
        len(delays) / committed,
    )


def measured(
    shop: PostgresShop, listener: Listener, seconds: float, warm_s: float = _WARM_S
) -> list[float]:
    """Milliseconds until the client was told, in order."""
    listener.stamps()
    began = time.time()
    shop.open_loop(RATE, warm_s + seconds, ROWS)
    time.sleep(_QUIET_S)
    return delays_ms(listener.stamps(), began + warm_s)


def delays_ms(stamps: Stamps, since_s: float) -> list[float]:
    """Of changes since then, in order."""
    return sorted((there - sent) / 1000 for sent, there in stamps if sent >= since_s * 1e6)


def p99(ordered: Sequence[float]) -> float:
    return ordered[int(0.99 * len(ordered))]


@contextmanager
def listening(node: ours.Node, rows: int, prefix: str = f"{TABLE}/") -> Iterator[Listener]:
    """`prefix`: of the objects, which end in the numbers of rows."""
    process = subprocess.Popen(
        [
            *(sys.executable, str(Path(__file__).with_name("listening.py"))),
            *(f"http://127.0.0.1:{node.server.http_port}", ours.NAME, prefix, str(rows)),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        with process.stdin, process.stdout:
            yield Listener(process)
    finally:
        process.wait(30)


def results(delays: dict[str, list[list[float]]], missing: str) -> list[Result]:
    runs = {name: [statistics.median(turn) for turn in turns] for name, turns in delays.items()}
    tails = {name: [p99(turn) for turn in turns] for name, turns in delays.items()}
    count = sum(map(len, delays[OURS]))
    note = "; ".join(part for part in (f"{count:,} notifications", missing) if part)
    return [
        _medians(f"commit to client told at {RATE:.0f}/s, p50", runs, 5.0, note),
        _medians("… p99", tails, None, ""),
    ]


def _medians(name: str, runs: dict[str, list[float]], target: float | None, note: str) -> Result:
    medians = {party: statistics.median(some) for party, some in runs.items()}
    return Result(
        name,
        *(medians.pop(OURS), "ms", target),
        note=note,
        peers=medians,
        runs=runs,
        why="There nobody is told; ours has been synced twice and sent to a client by then.",
    )


def rated(rates: Sequence[Rate]) -> list[Result]:
    better: Better
    kept = [rate.committed for rate in rates if rate.p99_ms <= _SOON_MS]
    results = [
        Result(
            "sustained until a client is told",
            *(max(kept, default=0.0), "changes/s", None, "higher"),
            note=f"p99 within {_SOON_MS / 1000:.0f} s",
        )
    ]
    for name, unit, better, values in (
        ("committed", "/s", "neither", [rate.committed for rate in rates]),
        ("median", "ms", "lower", [rate.p50_ms for rate in rates]),
        ("p99", "ms", "lower", [rate.p99_ms for rate in rates]),
        ("told one by one", "%", "neither", [100 * rate.told for rate in rates]),
    ):
        results += [
            Result(name, value, unit, better=better, at=rate.asked, at_unit=ASKED)
            for rate, value in zip(rates, values, strict=True)
        ]
    return results
