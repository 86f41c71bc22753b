"""A flow that is a million changes behind: how fast it comes to the end, and what others notice.

**The direct flow**: that flow of a second source begins a million changes of 100,000 rows before
the end of its log, which the benchmark has written. How fast it comes to the end is timed from the
start of its process until the last word on each row is in the feeds. Meanwhile a client of the
first source is told of 200 changes a second, and in every second turn nobody is behind: the ratio
is that of neighbouring turns, in the middle of at least seven of them.

**On Spark**: the same million, for the flow of an ingest, from when Spark is there and has yet to
plan its query, until the marker is at the end; one turn, for it takes a JVM that starts.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
import msgspec

from benchmarks.pipeline_node import pipeline
from benchmarks.result import Result, Settings
from benchmarks.sources import ours, told
from benchmarks.sources.databases import ROWS, TABLE, postgres, scratch
from benchmarks.sources.flows import FLOW, SELDOM_S, SPARK_S
from benchmarks.turns import OURS
from roskva.disk import RealDisk
from roskva.feed.base import START, Batch, Marker
from roskva.feed.commit import wall_clock_us
from roskva.feed.log import LogConfig
from roskva.feed.reader import LogReader
from roskva.feed.record import read_markers, write_marker
from roskva.feed.upkeep import Retention
from roskva.pipeline.feeds import Feeds
from roskva.pipeline.machine import what_is_missing
from roskva.sources.change import NULL, Change
from roskva.sources.changes import DIRECTORY, LOG, ChangesLog, Slice, marker_of_ingest
from roskva.sources.flow import NAME as DIRECT

TITLE: Final = "Sources: a flow that is far behind"
BEHIND: Final = 1_000_000
TURNS: Final = 7
LAGGARD: Final = "archive"
_MARKER: Final = marker_of_ingest("flow-1")
_TOGETHER: Final = 10_000
_SETTLE_S: Final = 2.0
_BESIDE_S: Final = 3.0
"""About as long as a flow takes to come to the end."""


def run(settings: Settings) -> list[Result]:
    results = _far_behind(settings)
    if what_is_missing() is None:
        results += _spark_behind(settings)
    return results


class Turn(msgspec.Struct, frozen=True):
    quiet_ms: float
    """The median of what others are told."""
    beside_ms: float
    """The same while a flow catches up."""
    per_s: float
    """Changes, of that flow."""


def _far_behind(settings: Settings) -> list[Result]:
    with scratch() as place, postgres(place) as shop:
        shop.server.run(f"CREATE PUBLICATION roskva_{LAGGARD} FOR TABLE products")
        urls = {ours.NAME: shop.url, LAGGARD: shop.url}
        with ours.node(place, urls) as node, node.reading() as reader:
            reader.await_ready()
            laggard = Laggard(node)
            laggard.begin()
            with told.listening(node, told.ROWS) as listener:
                listener.await_ready()
                turns = []
                for turn in range(max(TURNS, settings.repetitions)):
                    settings.progress(f"far behind, turn {turn + 1}")
                    quiet = told.measured(shop, listener, _BESIDE_S)
                    with laggard.catching_up() as per_s:
                        beside = told.measured(shop, listener, _BESIDE_S, warm_s=0.0)
                    turns.append(
                        Turn(statistics.median(quiet), statistics.median(beside), per_s[0])
                    )
    return results(turns)


class Laggard:
    """A source whose direct flow is sent back to the beginning of its log, again and again."""

    def __init__(self, node: ours.Node) -> None:
        self._node = node
        self._log = str(node.data / DIRECTORY / LAGGARD / LOG)
        self._feeds = Feeds(str(node.data))

    def begin(self) -> None:
        """It attaches, as any source does; a million changes are written behind that."""
        with self._node.reading(LAGGARD) as reading:
            reading.await_ready()
            reading.await_changes(1)
            time.sleep(_SETTLE_S)
        write_changes(self._log, LAGGARD)

    @contextmanager
    def catching_up(self) -> Iterator[list[float]]:
        """When the block has ended there is one figure in the list: changes per second."""
        reader = LogReader(RealDisk(), self._log)
        write_marker(RealDisk(), self._log, DIRECT, Marker(reader.lineage, START + 1))
        before, found, began_us = self._feeds.ends(), list[float](), wall_clock_us()
        with self._node.reading(LAGGARD):
            yield found
            ours.await_that(
                lambda: self._passed() >= reader.end(), "the flow stays behind", every_s=SELDOM_S
            )
        found.append(BEHIND / (self._last_us(before) - began_us) * 1e6)

    def _passed(self) -> int:
        return _marker(self._log, DIRECT)

    def _last_us(self, after: Mapping[int, Marker]) -> int:
        """When the last of what it has published was appended to a feed."""
        last = 0
        for shard, marker in after.items():
            reader = self._feeds.reader(shard)
            assert reader is not None
            while isinstance(read := reader.read(marker), Batch):
                if read.rows["object"][-1].as_py().startswith(f"{LAGGARD}/"):
                    last = read.appended_at
                marker = Marker(marker.lineage, read.last)
        return last


def write_changes(path: str, app: str) -> None:
    """A million, behind what the log has; no reader has it open."""
    config = LogConfig(retention=Retention(max_age_us=None))
    place = str(Path(path).parent)
    log = ChangesLog.open(RealDisk(), place, app, lineage=1, now_us=wall_clock_us(), config=config)
    assert log.position is not None
    for first in range(0, BEHIND, _TOGETHER):
        changes = [_change(i) for i in range(first, first + _TOGETHER)]
        log.append([Slice(str(first), changes, log.position)], wall_clock_us())
    log.close(wall_clock_us())


def _change(number: int) -> Change:
    row = msgspec.json.encode({"id": number % ROWS, "price": number, "sent_us": number})
    return Change(TABLE, "update", (str(number % ROWS),), msgspec.Raw(row), NULL, wall_clock_us())


def results(turns: Sequence[Turn]) -> list[Result]:
    ratios = [turn.beside_ms / turn.quiet_ms for turn in turns]
    return [
        Result(
            f"a flow {BEHIND:,} changes behind comes to the end",
            statistics.median(turn.per_s for turn in turns),
            "changes/s",
            500_000,
            "higher",
            f"with the start of its process; of {ROWS:,} rows",
            runs={OURS: [turn.per_s for turn in turns]},
        ),
        Result(
            "… p50 of others meanwhile, to that of quiet turns",
            statistics.median(ratios),
            "×",
            1.2,
            note=f"{len(turns)} turns, {min(ratios):.2f} to {max(ratios):.2f}",
            runs={OURS: ratios},
        ),
    ]


def _spark_behind(settings: Settings) -> list[Result]:
    """The flow of an ingest begins with the log as it is, and that is a million changes."""
    settings.progress("far behind on Spark")
    with scratch() as place, postgres(place) as shop:
        with ours.node(place, {ours.NAME: shop.url}) as node, node.reading() as reader:
            reader.await_ready()
            reader.await_changes(1)
            time.sleep(_SETTLE_S)
        path = str(node.data / DIRECTORY / ours.NAME / LOG)
        write_changes(path, ours.NAME)
        more = FLOW.format(number=1, every=1)
        with ours.node(place, {ours.NAME: shop.url}, more=more, pipeline=True) as node:
            end = LogReader(RealDisk(), path).end()
            url = f"http://127.0.0.1:{node.server.http_port}"
            ours.await_that(
                lambda: _is_there(url, "ingest flow-1"), "Spark does not begin", SPARK_S, SELDOM_S
            )
            began = time.monotonic()
            ours.await_that(
                lambda: _marker(path, _MARKER) >= end, "it stays behind", SPARK_S, SELDOM_S
            )
            per_s = BEHIND / (time.monotonic() - began)
    name = f"a flow on Spark {BEHIND:,} changes behind comes to the end"
    return [Result(name, per_s, "changes/s", 500_000, "higher", f"of {ROWS:,} rows")]


def _is_there(url: str, part: str) -> bool:
    try:
        parts = pipeline(url).get("parts", [])
    except httpx.TransportError:
        return False
    return any(found["name"] == part for found in parts)


def _marker(path: str, name: str) -> int:
    found, _ = read_markers(RealDisk(), path)
    return found[name].offset if name in found else START
