"""`latency`: how long it takes from publish to ack, and which stage takes how much of it.

From the sampled times that the processes of a node note (`feed/trace.py`), an update and a client
that acked it make one *delivery*. An update that nobody was online for makes none.

Stages follow each other: what is counted for a stage is the time since the one before it that the
update has passed. Clocks of processes on one machine agree. Those of several machines do not, and a
stage that seems to lie before the one before it counts as no time.
"""

from datetime import datetime
from typing import Final

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from roskva.errors import BadInput
from roskva.feed.trace import STAGES

PERCENTILES: Final = (0.5, 0.9, 0.99, 0.999)
POINTS: Final = 200
"""Of the curve."""
GROUPS: Final = {
    "fastest half": 0.5,
    "p50 to p90": 0.9,
    "p90 to p99": 0.99,
    "slowest 1 %": 1.0,
}
"""Deliveries by how long they took, for who wants to know what makes the slow ones slow."""


class Stage(msgspec.Struct, frozen=True):
    """Milliseconds from the stage before to this one."""

    stage: str
    mean: float
    percentiles: list[float]
    share: float
    """Of the mean of the whole."""


class Whole(msgspec.Struct, frozen=True):
    """Milliseconds from published on."""

    mean: float
    percentiles: list[float]
    """p50, p90, p99, p99.9"""
    longest: float
    curve: list[float]
    """At equal steps from 0 to 1."""


class Latency(msgspec.Struct, frozen=True):
    deliveries: int
    updates: int
    first: datetime
    last: datetime
    acked: Whole
    sent: Whole
    stages: list[Stage]
    groups: dict[str, list[float]]
    """Mean milliseconds of each stage until it was sent, by how long that took."""


def latency(traces: DataFrame) -> Latency:
    timed = stage_times(deliveries(traces)).persist()
    passed = [stage for stage in STAGES[1:] if not timed.filter(F.col(stage) > 0).isEmpty()]
    whole = timed.agg(
        F.count("*").alias("count"),
        F.count_distinct("object", "version").alias("updates"),
        F.timestamp_micros(F.min("published_at")).alias("first"),
        F.timestamp_micros(F.max("published_at")).alias("last"),
    ).first()
    if whole is None or not whole["count"]:
        raise BadInput("no sampled update was acked by anybody yet")
    acked = _whole(timed, "total")
    return Latency(
        whole["count"],
        whole.updates,
        whole.first,
        whole.last,
        acked,
        _whole(timed, "until_sent"),
        _stages(timed, passed, acked.mean),
        _groups(timed, [stage for stage in passed if stage != "acked"]),
    )


def deliveries(traces: DataFrame) -> DataFrame:
    """One row per update and ack: when it passed each stage, in microseconds; null: it did not."""
    once = [stage for stage in STAGES if stage != "acked"]
    updates = traces.groupBy("object", "version").agg(
        *(
            F.min(F.when(F.col("stage") == stage, F.col("at"))).alias(f"{stage}_at")
            for stage in once
        )
    )
    # The bridge may look at what the fast path has brought already: that held up nobody.
    late = F.col("bridged_at") > F.col("matched_at")
    updates = updates.withColumn("bridged_at", F.when(late, None).otherwise(F.col("bridged_at")))
    acks = traces.filter("stage = 'acked'").select(
        "object", "version", F.col("at").alias("acked_at")
    )
    return updates.join(acks, ["object", "version"]).filter("published_at IS NOT NULL")


def stage_times(deliveries: DataFrame) -> DataFrame:
    """Milliseconds per stage, `until_sent`, and in `total`: that of all stages together."""
    timed = deliveries
    before: Column = F.col("published_at")
    for stage in STAGES[1:]:
        at = F.greatest(before, F.coalesce(F.col(f"{stage}_at"), before))
        timed = timed.withColumn(stage, (at - before) / 1000)
        if stage == "sent":
            timed = timed.withColumn("until_sent", (at - F.col("published_at")) / 1000)
        before = at
    return timed.withColumn("total", (before - F.col("published_at")) / 1000)


def _whole(timed: DataFrame, column: str) -> Whole:
    figures = timed.agg(
        F.mean(column),
        F.percentile(column, F.lit(list(PERCENTILES))),
        F.max(column),
        F.percentile(column, F.lit([i / POINTS for i in range(POINTS + 1)])),
    ).first()
    assert figures is not None
    return Whole(*figures)


def _stages(timed: DataFrame, passed: list[str], whole: float) -> list[Stage]:
    figures = timed.agg(
        *(F.mean(stage).alias(stage) for stage in passed),
        *(
            F.percentile(stage, F.lit(list(PERCENTILES))).alias(f"{stage}_percentiles")
            for stage in passed
        ),
    ).first()
    assert figures is not None
    return [
        Stage(
            stage,
            figures[stage],
            figures[f"{stage}_percentiles"],
            figures[stage] / whole if whole else 0.0,
        )
        for stage in passed
    ]


def _groups(timed: DataFrame, passed: list[str]) -> dict[str, list[float]]:
    cuts = timed.agg(F.percentile("until_sent", F.lit(list(GROUPS.values()))).alias("cuts")).first()
    assert cuts is not None
    group = F.lit(None).cast("string")
    for name, cut in reversed(list(zip(GROUPS, cuts.cuts, strict=True))):
        group = F.when(F.col("until_sent") <= cut, name).otherwise(group)
    means = timed.groupBy(group.alias("group")).agg(*(F.mean(stage) for stage in passed))
    found = {row[0]: list(row[1:]) for row in means.collect()}
    return {name: found[name] for name in GROUPS if name in found}
