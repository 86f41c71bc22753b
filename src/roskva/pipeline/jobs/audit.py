"""`audit`: who has not heard, and why?

Every registration is compared with what its object stands at, by the table of `core/freshness.py`.
An object stands at what its row says, or at what the feed has beyond the shard's marker.

    fresh      the client has acked the object's version, in its epoch
    unknown    it was told that nobody knows the version, and has acked that
    pending    it is due a notification, and is not online, or has not had the time to ack it
    slow       it is online and known to the node for a slow reader: it does not take what it is
               sent, and is told the newest version when it does
    stale      it is online, was due a notification, and has not acked it a while later
    orphaned   its row was never created, or only half forgotten: `gc` removes it

Pending is what an offline client costs: nothing. Slow is what a client does to itself. Stale is
what must not be. Whether a client that is due something is stale cannot be seen by looking once:
acks are written down with a delay, and registrations are made all the time. So who is online and
due something is looked at again after a while, and is stale if it has still not acked what it was
due at the first look.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import datetime
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from roskva.model import NO_GENERATION
from roskva.pipeline.state import State

FRESH, UNKNOWN, PENDING = "fresh", "unknown", "pending"
SLOW, STALE, ORPHANED = "slow", "stale", "orphaned"
STATES: Final = (FRESH, UNKNOWN, PENDING, SLOW, STALE, ORPHANED)
NOTHING, VERSION, NOT_KNOWN = "nothing", "version", "unknown"

DUE: Final = f"""
    CASE WHEN coalesce(version, -1) > coalesce(acked, -1) THEN '{VERSION}'
         WHEN epoch <> coalesce(acked_epoch, 0) THEN '{NOT_KNOWN}'
         ELSE '{NOTHING}' END
"""
"""The table, over what was acked and what the object stands at."""

STATE: Final = f"""
    CASE WHEN NOT created THEN '{ORPHANED}'
         WHEN due <> '{NOTHING}' THEN '{PENDING}'
         WHEN version IS NULL THEN '{UNKNOWN}'
         ELSE '{FRESH}' END
"""

STATE_LATER: Final = f"""
    CASE WHEN there IS NULL THEN '{PENDING}'
         WHEN due = '{NOTHING}' AND version IS NULL THEN '{UNKNOWN}'
         WHEN due = '{NOTHING}' THEN '{FRESH}'
         WHEN here AND (slow OR slow_now) THEN '{SLOW}'
         WHEN here THEN '{STALE}'
         ELSE '{PENDING}' END
"""
"""Of who was due something, and is looked at again. Who was slow at either look could not be told
what it was due, or not for long."""

MARK: Final = """
    CASE WHEN app_generation = 0 THEN mark ELSE 1 + (mark + app_generation) % 1048575 END
"""
"""`model.mark_under`."""

COMPARED: Final = ("acked", "acked_epoch", "version", "epoch")


_SHOWN: Final = 10


def with_tail(objects: DataFrame, tail: DataFrame) -> DataFrame:
    """The object rows as they will be when the matcher has caught up."""
    row, tail = objects.alias("row"), tail.alias("tail")
    reset = F.col("tail.mark").isNotNull()
    newer = F.expr(
        "struct(coalesce(tail.generation, 0), coalesce(tail.version, -1)) > "
        "struct(coalesce(row.generation, 0), coalesce(row.version, -1))"
    )

    def either(column: str, of_tail: Column) -> Column:
        return F.when(reset | newer, of_tail).otherwise(F.col(f"row.{column}")).alias(column)

    return row.join(tail, "object", "full").select(
        "object",
        either("version", F.col("tail.version")),
        F.coalesce("tail.mark", "row.mark", F.lit(0)).alias("mark"),
        either("epoch", F.col("tail.epoch")),
        either("generation", F.col("tail.generation")),
        either("published_at", F.col("tail.published_at")),
    )


class Look(msgspec.Struct, frozen=True):
    """How the audit sees a node."""

    state: Callable[[], AbstractContextManager[State]]
    """As it is now, for as long as the context lasts."""
    online: Callable[[], dict[bytes, bool]]
    """The clients that have a session now, and whether each is known for a slow reader."""
    recheck: Callable[[], int]
    """Have the node compare all sessions with its shards, and send again what is due."""


class Worst(msgspec.Struct, frozen=True):
    """An object, and how many of its registrations are due something."""

    object: str
    due: int
    registrations: int
    since: datetime | None


class Audit(msgspec.Struct, frozen=True):
    registrations: int
    objects: int
    """That anybody is registered for."""
    states: dict[str, int]
    pending_since: datetime | None
    """When the oldest version was published that somebody is still due."""
    worst: list[Worst]
    stale: list[tuple[str, str]]
    """Some of them: object and client."""
    repaired: int = 0
    """Stale at first, and not any more after the node had checked again."""


def audit(
    spark: SparkSession,
    look: Look,
    *,
    grace_s: float,
    repair: bool = False,
    out: Callable[[DataFrame], None] | None = None,
    per_object: Callable[[DataFrame], None] | None = None,
) -> Audit:
    """`out` is given all registrations that are not fresh, `per_object` what `by_object` counts."""
    with look.state() as state:
        compared = comparison(spark, state)
        online = look.online()
        if online:
            compared = compared.persist()
        counted = by_object(compared).persist()
        again, repaired = None, 0
        if online:
            suspects = suspects_of(compared, _clients(spark, online)).persist()
            again, repaired = _look_again(spark, look, suspects, grace_s, repair)
        if out is not None:
            out(not_fresh(compared, again))
        if per_object is not None:
            per_object(counted)
        return _report(counted, again, repaired)


def comparison(spark: SparkSession, state: State) -> DataFrame:
    """All registrations of a state, judged."""
    shards = state.table(spark, "shards").persist()
    count = len(state.shards())
    objects = state.table(spark, "objects").drop("shard", "source", "payload")
    tail = state.table(spark, "tail").persist()
    if not tail.isEmpty():
        objects = with_tail(objects, tail)
    apps = state.table(spark, "apps").persist()
    registrations = state.table(spark, "registrations")
    return judged(registrations, known(objects, shards, apps, count), shards, apps, count)


def known(objects: DataFrame, shards: DataFrame, apps: DataFrame, count: int) -> DataFrame:
    """What registrars are told of the objects that have a row: a version that was applied in an
    earlier epoch of its shard, or generation of its app, is not known any more."""
    current = "epoch = shard_epoch AND coalesce(generation, 0) = app_generation"
    return placed(objects.withColumn("shard", shard_of("object", count)), shards, apps).selectExpr(
        "object",
        f"CASE WHEN {current} THEN version END AS version",
        f"shiftleft(IF(version IS NULL, absent, shard_epoch), 20) | {MARK} AS epoch",
        f"CASE WHEN {current} THEN published_at END AS published_at",
    )


def placed(objects: DataFrame, shards: DataFrame, apps: DataFrame) -> DataFrame:
    """With the epochs of their shards, and the generations of their apps there."""
    epochs = shards.select("shard", F.col("epoch").alias("shard_epoch"), "absent")
    generations = apps.select("shard", "app", F.col("generation").alias("app_generation"))
    return (
        objects.withColumn("app", F.substring_index("object", "/", 1))
        .join(F.broadcast(epochs), "shard")
        .join(F.broadcast(generations), ["shard", "app"], "left")
        .fillna(NO_GENERATION, ["app_generation"])
    )


def judged(
    registrations: DataFrame, known: DataFrame, shards: DataFrame, apps: DataFrame, count: int
) -> DataFrame:
    """Every registration with what it is `due`, and its state as far as one look can tell."""
    wanted = registrations.withColumnRenamed("epoch", "acked_epoch").withColumn(
        "shard", shard_of("object", count)
    )
    bare = f"shiftleft(absent, 20) | {MARK.replace('mark', '0')}"
    return (
        placed(wanted, shards, apps)
        .withColumn("bare_epoch", F.expr(bare))
        .join(known, "object", "left")
        .withColumn("epoch", F.coalesce("epoch", "bare_epoch"))
        .withColumn("due", F.expr(DUE))
        .withColumn("state", F.expr(STATE))
        .select("client", "object", "state", "due", *COMPARED, "published_at", "seen_at")
    )


def suspects_of(compared: DataFrame, online: DataFrame) -> DataFrame:
    """Who is online, and due something; and who of them is slow."""
    pending = compared.filter(F.col("state") == PENDING)
    return pending.join(F.broadcast(online), "client")


def second_look(suspects: DataFrame, registrations: DataFrame, online: DataFrame) -> DataFrame:
    """The suspects with the state they are in by then, measured by what they were due before."""
    later = registrations.filter("created").select(
        "client", "object", "acked", F.col("epoch").alias("acked_epoch"), F.lit(True).alias("there")
    )
    here = F.broadcast(online.selectExpr("client", "slow AS slow_now", "true AS here"))
    return (
        suspects.drop("acked", "acked_epoch")
        .join(later, ["client", "object"], "left")
        .join(here, "client", "left")
        .withColumn("due", F.expr(DUE))
        .withColumn("state", F.expr(STATE_LATER))
        .drop("there", "here", "slow_now")
    )


def by_object(compared: DataFrame) -> DataFrame:
    """How many registrations of each object are in each state, and the oldest version of them."""
    return compared.groupBy("object", "state").agg(
        F.count("*").alias("count"), F.min("published_at").alias("since")
    )


def worst(by_object: DataFrame, count: int) -> DataFrame:
    """The objects that most clients still have to hear of."""
    due = F.col("state") == PENDING
    return (
        by_object.groupBy("object")
        .agg(
            F.sum(F.when(due, F.col("count"))).alias("due"),
            F.sum("count").alias("registrations"),
            F.min(F.when(due, F.col("since"))).alias("since"),
        )
        .filter("due > 0")
        .orderBy(F.desc("due"), "since", "object")
        .limit(count)
    )


def not_fresh(compared: DataFrame, again: DataFrame | None) -> DataFrame:
    """With clients as text, for people and files."""
    if again is not None:
        later = again.select("client", "object", F.col("state").alias("later"))
        compared = (
            compared.join(later, ["client", "object"], "left")
            .withColumn("state", F.coalesce("later", "state"))
            .drop("later")
        )
    return compared.filter(F.col("state") != FRESH).withColumn("client", F.lower(F.hex("client")))


def shard_of(column: str, count: int) -> Column:
    """`model.shard_of` of an object."""
    return F.expr(f"CAST(crc32(CAST({column} AS BINARY)) % {count} AS INT)")


def _clients(spark: SparkSession, clients: dict[bytes, bool]) -> DataFrame:
    rows = [(bytearray(client), slow) for client, slow in clients.items()]
    return spark.createDataFrame(rows, "client binary, slow boolean")


def _look_again(
    spark: SparkSession, look: Look, suspects: DataFrame, grace_s: float, repair: bool
) -> tuple[DataFrame | None, int]:
    """The suspects after a while, if there are any, and how many were stale until they were
    repaired."""
    if suspects.isEmpty():
        return None, 0
    again = _after(spark, look, suspects, grace_s)
    stale = again.filter(F.col("state") == STALE)
    if not repair or stale.isEmpty():
        return again, 0
    look.recheck()
    repaired = _after(spark, look, stale, grace_s)
    others = again.filter(F.col("state") != STALE)
    left = repaired.filter(F.col("state") == STALE).count()
    return others.unionByName(repaired), stale.count() - left


def _after(spark: SparkSession, look: Look, suspects: DataFrame, grace_s: float) -> DataFrame:
    time.sleep(grace_s)
    with look.state() as state:
        online = _clients(spark, look.online())
        found = second_look(suspects, state.table(spark, "registrations"), online).persist()
        found.count()  # now, while the state is there to be read
        return found


def _report(by_object: DataFrame, again: DataFrame | None, repaired: int) -> Audit:
    """Every question is a job of Spark, which takes a while however little there is to count."""
    totals = {
        row.state: row
        for row in by_object.groupBy("state")
        .agg(F.sum("count").alias("total"), F.min("since").alias("since"))
        .collect()
    }
    states = {state: int(totals[state].total) if state in totals else 0 for state in STATES}
    stale = []
    if again is not None:
        for row in again.groupBy("state").agg(F.count("*").alias("total")).collect():
            states[PENDING] -= row.total
            states[row.state] += row.total
        stale = again.filter(F.col("state") == STALE).limit(_SHOWN).collect()
    is_due = PENDING in totals
    return Audit(
        sum(states.values()),
        by_object.select("object").distinct().count(),
        states,
        totals[PENDING].since if is_due else None,
        [Worst(*row) for row in worst(by_object, _SHOWN).collect()] if is_due else [],
        [(row.object, row.client.hex()) for row in stale],
        repaired,
    )
