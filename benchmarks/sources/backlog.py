"""A reader that was away: how fast it takes what it has missed, beside Debezium's engine (3.6.1 for
PostgreSQL, and 3.5.0 for MariaDB).

The same database, in turns: one reader is started while the other is stopped, each with a place in
the database's log of its own. The **cold** figure is from the start of the program until the last
change is there; the **warm** one from when it goes on after a pause, which a JVM has had time to
compile for by then.

*There* means different things: a change of ours is synced in `changes`; for Debezium it means that
a program which counts and does nothing else has it. **Published** has the direct flow at work
beside the reader, and the node that it publishes to on the same cores. The databases have their
default settings, and sync their logs; Debezium has its own, but is told to look every 5 ms for what
has come, and not every 500.

**Memory** is that of the process: at rest after it has connected, and the most it has had with a
backlog, and with all of it in one transaction.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, Protocol

import msgspec

from benchmarks.result import Result, Settings
from benchmarks.serving.servers import Server
from benchmarks.sources import ours, peer
from benchmarks.sources.databases import ROWS, Shop, mariadb, postgres, scratch
from benchmarks.turns import OURS, figure, in_turns, ratio

TITLE: Final = "Sources: a backlog"
PUBLISHED: Final = "published"
_ROWS_OF_LARGE: Final = 1000
_REST_S: Final = 2.0
_WHY: Final = (
    "Its compiled code works on several threads, and hands changes to a program that forgets them; "
    "ours is Python, on one thread, and syncs them."
)


class Reading(Protocol):
    """A reader at work."""

    process: Server

    def await_ready(self) -> None:
        """Until it reads."""

    def await_changes(self, count: int) -> list[ours.Progress]:
        """Counted from its start."""


class Place(msgspec.Struct):
    """In the database's log."""

    read: int = 0
    """Of what was changed so far."""


class Party(msgspec.Struct, frozen=True):
    name: str
    start: Callable[[], AbstractContextManager[Reading]]
    place: Place


class Turn(msgspec.Struct, frozen=True):
    cold_per_s: float
    warm_per_s: float
    large_per_s: float
    cpu_us: float
    """Of the reader, for each change, warm."""
    busy: float
    """Cores that it used meanwhile."""
    rest_mb: float
    backlog_mb: float
    huge_mb: float


def run(settings: Settings) -> list[Result]:
    results = []
    with scratch() as place, postgres(place) as shop:
        results += _measured(settings, place, shop, 500_000 if settings.full else 100_000)
    with scratch() as place, mariadb(place) as shop:
        results += _measured(settings, place, shop, 100_000 if settings.full else 20_000)
    return results


def _measured(settings: Settings, place: Path, shop: Shop, count: int) -> list[Result]:
    with ours.node(place, {ours.NAME: shop.url}) as node:
        own = Place()
        parties = [
            Party(OURS, lambda: node.reading(publishing=False), own),
            Party(PUBLISHED, node.reading, own),
        ]
        missing = peer.what_is_missing(shop.kind)
        if not missing:
            theirs = place / "debezium"
            theirs.mkdir()
            parties.append(Party(peer.NAME, lambda: peer.reading(theirs, shop.url), Place()))
        for party in parties:
            settings.progress(f"{party.name} takes its place")
            with party.start() as reading:
                reading.await_ready()
                shop.single_rows(1)  # MariaDB keeps no place for who has not read anything yet
                reading.await_changes(1)
                time.sleep(_REST_S)
            party.place.read = shop.changed
        turns = in_turns(
            parties, settings, lambda party: _turn(shop, party, count), doing=shop.kind
        )
    return results_of(shop.kind, count, turns, missing)


def _turn(shop: Shop, party: Party, count: int) -> Turn:
    _catch_up(shop, party)
    with party.start() as reading:
        reading.await_ready()
        time.sleep(_REST_S)
        rest_mb = reading.process.rss_bytes() / 2**20
    shop.single_rows(count)
    began = time.monotonic()
    with party.start() as reading:
        cold_per_s = _rate(began, reading.await_changes(count), count)
        with _paused(reading):
            shop.single_rows(count)
        began, cpu_s = time.monotonic(), reading.process.cpu_s()
        taken = reading.await_changes(2 * count)
        warm_per_s, cpu_s = _rate(began, taken, count), reading.process.cpu_s() - cpu_s
        backlog_mb = reading.process.peak_bytes() / 2**20
        with _paused(reading):
            shop.transactions(count, _ROWS_OF_LARGE)
        began = time.monotonic()
        large_per_s = _rate(began, reading.await_changes(3 * count), count)
    party.place.read = shop.changed
    shop.one_transaction()
    with party.start() as reading:
        reading.await_changes(ROWS)
        huge_mb = reading.process.peak_bytes() / 2**20
    party.place.read = shop.changed
    return Turn(
        cold_per_s=cold_per_s,
        warm_per_s=warm_per_s,
        large_per_s=large_per_s,
        cpu_us=cpu_s / count * 1e6,
        busy=cpu_s * warm_per_s / count,
        rest_mb=rest_mb,
        backlog_mb=backlog_mb,
        huge_mb=huge_mb,
    )


def _catch_up(shop: Shop, party: Party) -> None:
    """With what was changed in the turns of others."""
    if party.place.read < shop.changed:
        with party.start() as reading:
            reading.await_changes(shop.changed - party.place.read)
        party.place.read = shop.changed


def _rate(began: float, taken: list[ours.Progress], count: int) -> float:
    return count / (taken[-1].at - began)


@contextmanager
def _paused(reading: Reading) -> Iterator[None]:
    os.kill(reading.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(reading.process.pid, signal.SIGCONT)


def results_of(kind: str, count: int, turns: dict[str, list[Turn]], missing: str) -> list[Result]:
    target = {"PostgreSQL": 40_000.0, "MariaDB": 2000.0}[kind]
    note = "; ".join(part for part in (f"a backlog of {count:,}", missing) if part)
    warm = figure(
        f"{kind}: changes in transactions of one row, warm",
        "/s",
        turns,
        lambda turn: turn.warm_per_s,
        note=note,
        why=_WHY,
    )
    busy = ", ".join(f"{name} {some[-1].busy:.2f} cores" for name, some in turns.items())

    def rate(name: str, of: Callable[[Turn], float]) -> Result:
        return figure(f"{kind}: {name}", "/s", turns, of, why=_WHY)

    def memory(name: str, of: Callable[[Turn], float]) -> Result:
        return figure(name, "MiB", turns, of, why="Ours has Arrow and the flows' code loaded.")

    return [
        msgspec.structs.replace(warm, target=target),
        *ratio(warm, peer.NAME),
        figure(
            "… processor of the reader, each",
            *("µs", turns, lambda turn: turn.cpu_us),
            note=busy,
            why=_WHY,
        ),
        rate("the same, cold", lambda turn: turn.cold_per_s),
        rate(f"in transactions of {_ROWS_OF_LARGE:,} rows, warm", lambda turn: turn.large_per_s),
        memory(f"{kind}: memory of the reader at rest", lambda turn: turn.rest_mb),
        memory("… at most, with a backlog", lambda turn: turn.backlog_mb),
        memory(f"… at most, with one transaction of {ROWS:,} rows", lambda turn: turn.huge_mb),
    ]
