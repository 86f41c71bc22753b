"""`plan`: how many processes a population needs, and what each of them would have to do.

From registrations and rates of updates, real ones or made up, the load is spread as a node spreads
it: a client lands on any registrar, an object belongs to a shard by its hash, and each matcher owns
a range of shards. Then it is counted, process by process.

What a unit of work costs is in `COSTS`: estimates, not measurements. A plan is as good as these are
for your machine, and says nothing of networks.
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from roskva.pipeline.jobs.audit import shard_of

BUSY: Final = 0.6
"""Of a core: beyond that, queues grow."""
MAX_SESSIONS: Final = 20_000
"""Of one registrar: open files, and the pauses of the collector."""


class Costs(msgspec.Struct, frozen=True):
    """Microseconds of a core, and bytes."""

    delivery_us: float = 15.0
    """A notification to one session, and its ack."""
    push_us: float = 20.0
    """An update to one interested registrar, over a link."""
    publish_us: float = 60.0
    """An update into the feed and the matcher."""
    process_bytes: int = 90 << 20
    session_bytes: int = 10_000
    """With its connection."""
    registration_bytes: int = 200
    watched_bytes: int = 600
    """An object that a registrar has interest in."""
    interest_bytes: int = 450
    """The same at its matcher."""
    shard_bytes: int = 80 << 20
    """Memtables and caches of a store."""


COSTS: Final = Costs()


class Layout(msgspec.Struct, frozen=True):
    registrars: int
    matchers: int
    shards: int


class Load(msgspec.Struct, frozen=True):
    """What one process would have to do."""

    process: str
    sessions: int
    registrations: int
    objects: int
    """Watched here, or of the shards here that anybody watches."""
    per_second: float
    """Notifications to clients, or pushes to registrars."""
    busy: float
    """Cores."""
    bytes: int


_LOAD: Final = (
    "process string, sessions long, registrations long, objects long, per_second double, "
    "busy double, bytes long"
)


class Plan(msgspec.Struct, frozen=True):
    clients: int
    registrations: int
    objects: int
    updates_per_second: float
    layout: Layout
    processes: list[Load]
    growth: list[tuple[int, int, int, int]]
    """So many times the clients: registrars, matchers, bytes over all."""


def plan(
    registrations: DataFrame,
    rates: DataFrame,
    layout: Layout,
    *,
    times: Sequence[int] = (1, 2, 5, 10),
) -> Plan:
    """`registrations`: client, object. `rates`: object, per_second."""
    spread = spread_out(registrations, rates, layout).persist()
    registrars = by_registrar(spread).orderBy("registrar").collect()
    matchers = by_matcher(spread, rates, layout).orderBy("matcher").collect()
    front = [_registrar_load(row) for row in registrars]
    state = [_matcher_load(row, layout) for row in matchers]
    total = spread.agg(
        F.count_distinct("client").alias("clients"),
        F.count("*").alias("registrations"),
        F.count_distinct("object").alias("objects"),
    ).first()
    updates = rates.agg(F.sum("per_second")).first()
    assert total is not None
    assert updates is not None
    return Plan(
        total.clients,
        total.registrations,
        total.objects,
        updates[0] or 0.0,
        layout,
        [*front, *state],
        [needed(front, state, layout, factor) for factor in times],
    )


def as_rows(spark: SparkSession, plan: Plan) -> DataFrame:
    """One per process."""
    loads = [msgspec.structs.astuple(load) for load in plan.processes]
    return spark.createDataFrame(loads, _LOAD)


def spread_out(registrations: DataFrame, rates: DataFrame, layout: Layout) -> DataFrame:
    """Each registration with its registrar, its matcher, and the rate of its object."""
    registrar = F.pmod(F.xxhash64("client"), F.lit(layout.registrars)).cast("int")
    return (
        registrations.select("client", "object")
        .join(rates, "object", "left")
        .select(
            "client",
            "object",
            F.coalesce("per_second", F.lit(0.0)).alias("per_second"),
            registrar.alias("registrar"),
            matcher_of("object", layout).alias("matcher"),
        )
    )


def matcher_of(column: str, layout: Layout) -> Column:
    """The shards are dealt out in ranges, as the supervisor does it."""
    upper = (shard_of(column, layout.shards) + 1) * layout.matchers
    return F.floor((upper - 1) / layout.shards).cast("int")


def by_registrar(spread: DataFrame) -> DataFrame:
    return spread.groupBy("registrar").agg(
        F.count_distinct("client").alias("sessions"),
        F.count("*").alias("registrations"),
        F.count_distinct("object").alias("objects"),
        F.sum("per_second").alias("per_second"),
    )


def by_matcher(spread: DataFrame, rates: DataFrame, layout: Layout) -> DataFrame:
    """An update is pushed once to each registrar that has a session for it."""
    interest = spread.groupBy("matcher", "object").agg(
        F.count_distinct("registrar").alias("registrars"), F.first("per_second").alias("per_second")
    )
    pushed = interest.groupBy("matcher").agg(
        F.count("*").alias("objects"),
        F.sum("registrars").alias("interest"),
        F.sum(F.col("per_second") * F.col("registrars")).alias("per_second"),
    )
    published = rates.groupBy(matcher_of("object", layout).alias("matcher")).agg(
        F.sum("per_second").alias("published")
    )
    return pushed.join(published, "matcher", "full").na.fill(0)


def needed(
    front: Sequence[Load], state: Sequence[Load], layout: Layout, factor: int
) -> tuple[int, int, int, int]:
    """For so many times the clients, registered for the same objects at the same rates."""
    sessions = factor * sum(load.sessions for load in front)
    busy = factor * sum(load.busy for load in front)
    registrars = max(1, math.ceil(sessions / MAX_SESSIONS), math.ceil(busy / BUSY))
    # Pushes follow the number of registrars, and not that of clients.
    growth = registrars / max(1, layout.registrars)
    matching = sum(load.busy for load in state) * max(1.0, growth)
    matchers = min(layout.shards, max(1, math.ceil(matching / BUSY)))
    per_client = sum(load.bytes - COSTS.process_bytes for load in front)
    memory = (
        registrars * COSTS.process_bytes
        + factor * per_client
        + matchers * COSTS.process_bytes
        + sum(load.bytes - COSTS.process_bytes for load in state)
    )
    return factor, registrars, matchers, int(memory)


def synthetic(
    spark: SparkSession, clients: int, each: int, objects: int, updates_per_second: float
) -> tuple[DataFrame, DataFrame]:
    """Registrations and rates as they mostly are: some objects are popular, and few are busy."""
    popular = F.floor(F.pow(F.rand(1), 3.0) * objects).cast("long")
    registrations = (
        spark.range(clients)
        .select(F.col("id").alias("client"), F.explode(F.sequence(F.lit(1), F.lit(each))))
        .select(
            F.col("client").cast("string").cast("binary").alias("client"),
            F.format_string("app/object-%d", popular).alias("object"),
        )
        .distinct()
    )
    weighted = spark.range(objects).select(
        F.format_string("app/object-%d", "id").alias("object"),
        (1 / (F.col("id") + 10.0)).alias("weight"),
    )
    total = weighted.agg(F.sum("weight").alias("total"))
    rates = weighted.crossJoin(F.broadcast(total)).select(
        "object", (F.col("weight") / F.col("total") * updates_per_second).alias("per_second")
    )
    return registrations, rates


def rates_of(feed: DataFrame, hours: float) -> DataFrame:
    """Updates per second and object, over the last so many hours that the feed has."""
    newest = feed.agg(F.max("appended_at").alias("newest"), F.min("appended_at").alias("oldest"))
    cut = F.greatest(F.col("oldest"), F.col("newest") - F.make_dt_interval(hours=F.lit(hours)))
    seconds = F.greatest(F.lit(1.0), F.col("newest").cast("double") - F.col("cut").cast("double"))
    since = F.broadcast(newest.withColumn("cut", cut).select("cut", seconds.alias("seconds")))
    return (
        feed.filter("NOT reset")
        .crossJoin(since)
        .filter("appended_at >= cut")
        .groupBy("object")
        .agg((F.count("*") / F.first("seconds")).alias("per_second"))
    )


def _registrar_load(row: Row) -> Load:
    memory = (
        COSTS.process_bytes
        + row.sessions * COSTS.session_bytes
        + row.registrations * COSTS.registration_bytes
        + row.objects * COSTS.watched_bytes
    )
    return Load(
        f"registrar-{row.registrar}",
        row.sessions,
        row.registrations,
        row.objects,
        row.per_second,
        row.per_second * COSTS.delivery_us / 1e6,
        memory,
    )


def _matcher_load(row: Row, layout: Layout) -> Load:
    memory = (
        COSTS.process_bytes
        + row.interest * COSTS.interest_bytes
        + layout.shards // layout.matchers * COSTS.shard_bytes
    )
    busy = (row.per_second * COSTS.push_us + row.published * COSTS.publish_us) / 1e6
    return Load(f"state-{row.matcher}", 0, 0, row.objects, row.per_second, busy, memory)
