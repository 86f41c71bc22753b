"""Flows of one source: how often the database is read for them, and how long those on Spark take.

**Read amplification**: what the database sends to its reader, counted by a relay between them, for
each byte of its log, while rows are changed and every flow passes them on. One flow is the direct
one; the others are ingests on Spark, each with SQL of its own. However many there are, it should be
what it is with one: the target is their ratio.

**Through Spark**: as under "until clients are told", but the client is registered for what a flow
on Spark makes of the rows.
"""

import statistics
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from benchmarks.result import Result, Settings
from benchmarks.sources import ours, told
from benchmarks.sources.databases import PostgresShop, postgres, scratch
from benchmarks.sources.relay import Relay, relayed
from roskva.disk import RealDisk
from roskva.feed.reader import LogReader
from roskva.feed.record import read_markers
from roskva.pipeline.machine import what_is_missing
from roskva.sources.changes import DIRECTORY, LOG

TITLE: Final = "Sources: flows"
FLOWS: Final = (1, 2, 5, 20)
_FEW: Final = 2
_UNIT: Final = "flows, one of them the direct one"
_WARM_S: Final = 8.0
"""A JVM compiles what it does often, and this is the first that it does often."""
_CHANGES: Final = 20_000
SPARK_S: Final = 600.0
SELDOM_S: Final = 0.05
FLOW: Final = """
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
    amplified: dict[int, float] = {}
    delays: dict[int, list[float]] = {}
    for flows in FLOWS if missing is None else FLOWS[:1]:
        settings.progress(f"flows: {flows}")
        with _with_flows(flows) as running:
            amplified[flows] = running.amplification()
            if flows > 1:
                settings.progress(f"flows: {flows}, until a client is told")
                delays[flows] = running.delays(20.0 if settings.full else 8.0)
    return [*amplification(amplified, missing or ""), *through_spark(delays)]


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
        self.await_flows(SPARK_S)
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

        ours.await_that(there, f"a flow does not come to the end: {place}", patience_s, SELDOM_S)

    def flows(self) -> int:
        return 1 + self.node.settings.read_text().count("[ingest.")

    def delays(self, seconds: float) -> list[float]:
        """Until a client of a flow on Spark is told, in milliseconds."""
        with told.listening(self.node, told.ROWS, "flow-1/") as listener:
            listener.await_ready()
            return told.measured(self.shop, listener, seconds, _WARM_S)


@contextmanager
def _with_flows(flows: int) -> Iterator[Running]:
    more = "".join(FLOW.format(number=i, every=1 if i == 1 else 10) for i in range(1, flows))
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
        running.await_flows(SPARK_S)
        yield running


def amplification(found: Mapping[int, float], missing: str) -> list[Result]:
    """`found`: by the number of flows."""
    one = found[FLOWS[0]]
    note = f"more flows: {missing}" if missing else ""
    return [
        Result("bytes read for each of the database's log, one flow", one, "", note=note),
        *(
            Result(f"… with {flows} flows, to one", value / one, "×", 1.1, note=f"{value:.2f}")
            for flows, value in found.items()
            if flows > 1
        ),
    ]


def through_spark(delays: Mapping[int, list[float]]) -> list[Result]:
    """`delays`: by the number of flows."""
    return [
        Result(name, of(some), "ms", target if flows == _FEW else None, at=flows, at_unit=_UNIT)
        for name, of, target in (
            ("commit to client told through Spark, p50", statistics.median, 300.0),
            ("p99", told.p99, None),
        )
        for flows, some in delays.items()
    ]
