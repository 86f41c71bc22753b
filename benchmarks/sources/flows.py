"""Flows of one source: how often the database is read for them, how long those on Spark take, and
what a flow that is far behind does to others.

**Read amplification**: what the database sends to its reader, counted by a relay between them, for
each byte of its log, while rows are changed and every flow passes them on. One flow is the direct
one; the others are ingests on Spark, each with a filter of its own. With 5 and 20 flows it should
be what it is with one: the target is their ratio.

**Through Spark**: as under "until clients are told", but the client is registered for what a flow
on Spark makes of the rows.

**Far behind**: the direct flow of a second source begins a million changes of 100,000 rows before
the end of its log, which the benchmark has written. How fast it comes to the end is timed from the
start of its process until the last word on each row is in the feeds. Meanwhile a client of the
first source is told of 200 changes a second, and in every second turn nobody is behind: the ratio
is that of neighbouring turns, in the middle of at least seven of them.
"""

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.result import Result, Settings
from benchmarks.sources import ours, told
from benchmarks.sources.databases import ROWS, TABLE, PostgresShop, postgres, scratch
from benchmarks.sources.relay import Relay, relayed
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
from roskva.sources.changes import DIRECTORY, LOG, ChangesLog, Slice
from roskva.sources.flow import NAME as DIRECT

TITLE: Final = "Sources: flows"
FLOWS: Final = (1, 5, 20)
BEHIND: Final = 1_000_000
TURNS: Final = 7
LAGGARD: Final = "archive"
_TOGETHER: Final = 10_000
_SETTLE_S: Final = 2.0
_BESIDE_S: Final = 3.0
"""About as long as a flow takes to come to the end."""
_CHANGES: Final = 20_000
_SPARK_S: Final = 240.0
_FLOW: Final = """
[ingest.flow-{number}]
format = "roskva-changes"
path = "shop"
table = "products"
columns = "id BIGINT, price INT, sent_us BIGINT"
app = "'shop'"
name = "concat('flow-{number}/', row.id)"
payload = "to_json(struct(row.sent_us AS sent_us))"
filter = "row.id % {every} = 0"
"""


def run(settings: Settings) -> list[Result]:
    missing = what_is_missing()
    results = _far_behind(settings)
    amplified: dict[int, float] = {}
    for flows in FLOWS if missing is None else FLOWS[:1]:
        settings.progress(f"flows: {flows}")
        with _with_flows(flows) as running:
            amplified[flows] = running.amplification()
            if flows == FLOWS[1]:
                results += running.told(settings)
    return [*amplification(amplified, missing or ""), *results]


class Turn(msgspec.Struct, frozen=True):
    quiet_ms: float
    """The median of what others are told."""
    beside_ms: float
    """The same while a flow catches up."""
    per_s: float
    """Changes, of that flow."""


# Several flows.


class Running(msgspec.Struct, frozen=True):
    """A source with flows, all of which are at work."""

    shop: PostgresShop
    relay: Relay
    node: ours.Node
    reader: ours.Reader

    def amplification(self) -> float:
        """Bytes that were read for each byte of the database's log."""
        read, log = self.relay.said, self.shop.wal_position()
        self.shop.transactions(_CHANGES, 10)
        log = self.shop.wal_position() - log
        self.await_flows(_SPARK_S)
        return (self.relay.said - read) / log

    def await_flows(self, patience_s: float) -> None:
        """Until every flow has passed on all that was changed."""
        place = self.node.data / DIRECTORY / ours.NAME / LOG

        def there() -> bool:
            if self.reader.changes() < self.shop.changed:
                return False
            end = LogReader(RealDisk(), str(place)).end()
            markers, _ = read_markers(RealDisk(), str(place))
            return len(markers) == self.flows() and all(m.offset >= end for m in markers.values())

        ours.await_that(there, f"a flow does not come to the end: {place}", patience_s)

    def flows(self) -> int:
        return 1 + self.node.settings.read_text().count("[ingest.")

    def told(self, settings: Settings) -> list[Result]:
        settings.progress("told through Spark")
        with told.listening(self.node, told.ROWS, "flow-1/") as listener:
            listener.await_ready()
            delays = told.measured(self.shop, listener, 20.0 if settings.full else 8.0)
        return [
            Result(
                f"commit to client told through a flow on Spark at {told.RATE:.0f}/s, p50",
                *(statistics.median(delays), "ms", 300.0),
                note=f"{len(delays):,} notifications, {self.flows()} flows",
            ),
            Result("… p99", told.p99(delays), "ms"),
        ]


@contextmanager
def _with_flows(flows: int) -> Iterator[Running]:
    more = "".join(_FLOW.format(number=i, every=1 if i == 1 else 10) for i in range(1, flows))
    with (
        scratch() as place,
        postgres(place) as shop,
        relayed(shop.server.port) as relay,
        ours.node(
            place,
            {ours.NAME: shop.url.replace(str(shop.server.port), str(relay.port))},
            more=more,
            pipeline=flows > 1,
        ) as node,
        node.reading() as reader,
    ):
        reader.await_ready()
        shop.single_rows(100)
        running = Running(shop, relay, node, reader)
        running.await_flows(_SPARK_S)
        yield running


def amplification(found: Mapping[int, float], missing: str) -> list[Result]:
    """`found`: by the number of flows."""
    one = found[FLOWS[0]]
    note = f"more flows: {missing}" if missing else ""
    results = [
        Result("bytes read from the database for each of its log, one flow", one, "", note=note)
    ]
    for flows, value in found.items():
        if flows > 1:
            results.append(
                Result(f"… with {flows} flows, to one", value / one, "×", 1.1, note=f"{value:.2f}")
            )
    return results


# A flow that is far behind.


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
    return behind(turns)


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
        config = LogConfig(retention=Retention(max_age_us=None))
        place = str(Path(self._log).parent)
        log = ChangesLog.open(
            RealDisk(), place, LAGGARD, lineage=1, now_us=wall_clock_us(), config=config
        )
        assert log.position is not None
        for first in range(0, BEHIND, _TOGETHER):
            changes = [_change(i) for i in range(first, first + _TOGETHER)]
            log.append([Slice(str(first), changes, log.position)], wall_clock_us())
        log.close(wall_clock_us())

    @contextmanager
    def catching_up(self) -> Iterator[list[float]]:
        """When the block has ended there is one figure in the list: changes per second."""
        reader = LogReader(RealDisk(), self._log)
        write_marker(RealDisk(), self._log, DIRECT, Marker(reader.lineage, START + 1))
        before, found, began_us = self._feeds.ends(), list[float](), wall_clock_us()
        with self._node.reading(LAGGARD):
            yield found
            ours.await_that(lambda: self._passed() >= reader.end(), "the flow stays behind")
        found.append(BEHIND / (self._last_us(before) - began_us) * 1e6)

    def _passed(self) -> int:
        return read_markers(RealDisk(), self._log)[0][DIRECT].offset

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


def _change(number: int) -> Change:
    row = msgspec.json.encode({"id": number % ROWS, "name": f"product {number}", "price": number})
    return Change(TABLE, "update", (str(number % ROWS),), msgspec.Raw(row), NULL, wall_clock_us())


def behind(turns: Sequence[Turn]) -> list[Result]:
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
