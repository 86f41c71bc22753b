"""`gc`: rows of clients that will not come back.

What is expired is decided by the rule that the node's own collector has (`core/expiry.py`): a
client that was not seen for as long as its apps keep it, and a row that was never created, or only
half forgotten. It is the node that drops the rows, and it looks again first: whoever has opened a
session since the rows were read is kept. A client that comes back after all keeps its identity, and
what it registers for comes back from itself; it is told everything once more.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType

from roskva.core.expiry import KeepOf, ScannedClient, client_expires_at
from roskva.pipeline.node import Seen
from roskva.pipeline.state import State

AWAY: Final = "away"
ORPHANED: Final = "orphaned"


class Collected(msgspec.Struct, frozen=True):
    clients: int
    """All there are."""
    away: int
    orphaned: int
    registrations: int
    """Of those to be forgotten."""
    seen_at: datetime | None
    """When the one that has been away for longest was last seen."""
    forgotten: int | None
    """None: it was a dry run."""


def gc(
    spark: SparkSession,
    state: State,
    *,
    online: Sequence[bytes],
    keep_of: KeepOf,
    now: datetime,
    forget: Callable[[Mapping[int, Sequence[Seen]]], int] | None,
    out: Callable[[DataFrame], None] | None = None,
) -> Collected:
    """`forget`: how the node is told; None for a dry run. `out` is given those to be forgotten."""
    clients = state.table(spark, "clients").persist()
    here = spark.createDataFrame([(bytearray(client),) for client in online], "client binary")
    gone = to_forget(clients, here, keep_of, now).persist()
    if out is not None:
        out(gone.withColumn("client", F.lower(F.hex("client"))))
    counts = {row.reason: row for row in totals(gone).collect()}
    return Collected(
        clients.count(),
        counts[AWAY].clients if AWAY in counts else 0,
        counts[ORPHANED].clients if ORPHANED in counts else 0,
        sum(row.registrations for row in counts.values()),
        counts[AWAY].seen_at if AWAY in counts else None,
        None if forget is None else forget(by_shard(gone)),
    )


def to_forget(clients: DataFrame, online: DataFrame, keep_of: KeepOf, now: datetime) -> DataFrame:
    """With the `reason`."""

    def expires_at(seen_at: int | None, open: bool, expiry_s: int | None, apps: str) -> int | None:
        row = ScannedClient(b"", 0, True, seen_at or 0, open, expiry_s, 0, tuple(apps.split()))
        return client_expires_at(row, keep_of)

    rule = F.udf(expires_at, LongType(), useArrow=False)  # with it, Spark wants pandas as well
    orphaned = F.col("created_at").isNull()
    at = rule(F.unix_micros("seen_at"), "open", "expiry_s", "apps")
    away = at <= F.unix_micros(F.lit(now))
    return (
        clients.withColumn("reason", F.when(orphaned, ORPHANED).when(away, AWAY))
        .filter("reason IS NOT NULL")
        .join(F.broadcast(online), "client", "left_anti")
    )


def totals(gone: DataFrame) -> DataFrame:
    return gone.groupBy("reason").agg(
        F.count("*").alias("clients"),
        F.sum("registrations").alias("registrations"),
        F.min("seen_at").alias("seen_at"),
    )


def by_shard(gone: DataFrame) -> dict[int, list[Seen]]:
    found: dict[int, list[Seen]] = {}
    for row in gone.select("shard", "client", "session").toLocalIterator():
        found.setdefault(row.shard, []).append((bytes(row.client), row.session))
    return found
