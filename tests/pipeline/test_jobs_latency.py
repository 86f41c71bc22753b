"""Sampled times as the table and the pictures of `latency`."""

from pathlib import Path

import pytest
from benchmarks.traces import write_traces
from pyspark.sql import SparkSession

from roskva.errors import BadInput
from roskva.feed.trace import DIRECTORY, Trace
from roskva.model import PROBE_APP
from roskva.pipeline.history import TraceReader, traces
from roskva.pipeline.jobs.latency import deliveries, latency, stage_times
from roskva.pipeline.jobs.plots import draw

_SCHEMA = "object string, version long, stage string, at long"


def test_an_update_makes_a_delivery_for_each_ack(spark: SparkSession) -> None:
    noted = spark.createDataFrame(
        [
            ("a/x", 1, "published", 1_000),
            ("a/x", 1, "appended", 3_000),
            ("a/x", 1, "matched", 3_500),
            ("a/x", 1, "sent", 4_500),
            ("a/x", 1, "acked", 6_500),
            ("a/x", 1, "acked", 9_500),
            ("a/y", 1, "published", 1_000),  # nobody is online for it
            ("a/y", 1, "appended", 2_000),
            ("a/z", 1, "acked", 2_000),  # sampled from the middle on
        ],
        _SCHEMA,
    )
    timed = stage_times(deliveries(noted)).orderBy("total").collect()
    assert [(row.appended, row.bridged, row.matched, row.sent, row.acked) for row in timed] == [
        (2.0, 0.0, 0.5, 1.0, 2.0),
        (2.0, 0.0, 0.5, 1.0, 5.0),
    ]
    found = latency(noted)
    assert (found.deliveries, found.updates) == (2, 1)
    assert (found.acked.mean, found.acked.longest, found.sent.mean) == (7.0, 8.5, 3.5)
    assert [stage.stage for stage in found.stages] == ["appended", "matched", "sent", "acked"]
    assert sum(stage.share for stage in found.stages) == pytest.approx(1)


def test_clocks_that_disagree_take_no_time(spark: SparkSession) -> None:
    noted = spark.createDataFrame(
        [
            ("a/x", 1, "published", 5_000),
            ("a/x", 1, "appended", 3_000),
            ("a/x", 1, "sent", 6_000),
            ("a/x", 1, "acked", 4_000),
        ],
        _SCHEMA,
    )
    [timed] = stage_times(deliveries(noted)).collect()
    assert (timed.appended, timed.sent, timed.acked, timed.total) == (0.0, 1.0, 0.0, 1.0)


def test_a_bridge_that_comes_after_the_fast_path_holds_up_nobody(spark: SparkSession) -> None:
    noted = spark.createDataFrame(
        [
            ("a/x", 1, "published", 1_000),
            ("a/x", 1, "matched", 2_000),
            ("a/x", 1, "sent", 3_000),
            ("a/x", 1, "acked", 4_000),
            ("a/x", 1, "bridged", 90_000),
        ],
        _SCHEMA,
    )
    [timed] = stage_times(deliveries(noted)).collect()
    assert (timed.bridged, timed.matched, timed.total) == (0.0, 1.0, 3.0)


def test_no_deliveries_are_a_sentence(spark: SparkSession) -> None:
    with pytest.raises(BadInput, match="no sampled update was acked"):
        latency(spark.createDataFrame([], _SCHEMA))


def test_what_a_node_noted_becomes_a_table_and_two_pictures(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_traces(tmp_path, 200, bridged=True)
    found = latency(traces(spark, tmp_path))
    assert (found.deliveries, found.updates) == (600, 200)
    assert [stage.stage for stage in found.stages][1] == "bridged"
    assert found.acked.curve == sorted(found.acked.curve)
    assert found.acked.curve[100] == pytest.approx(found.acked.percentiles[0])
    made = draw(found, tmp_path)
    assert [path.name for path in made] == [
        "latency-cdf.svg",
        "latency-cdf.png",
        "latency-stages.svg",
        "latency-stages.png",
    ]
    assert all(path.stat().st_size > 10_000 for path in made)


def test_all_processes_sample_the_same_updates(tmp_path: Path) -> None:
    one, other = (Trace(tmp_path / DIRECTORY / name, 8, 0) for name in ("one", "other"))
    for version in range(800):
        for trace, stage in ((one, "matched"), (other, "sent")):
            if trace.wants("a/x", version):
                trace.note(stage, "a/x", version, version)
    one.close(0)
    other.close(0)
    reader = TraceReader(tmp_path)
    noted = [
        [(row["version"], row["at"]) for batch in reader.read(part) for row in batch.to_pylist()]
        for part in reader.partitions()
    ]
    assert noted[0] == noted[1]
    assert 50 < len(noted[0]) < 200


def test_what_the_prober_publishes_is_followed_and_counts_nowhere(tmp_path: Path) -> None:
    trace = Trace(tmp_path / DIRECTORY / "node", 1_000_000, 0)
    for stage, at_us in (("published", 0), ("sent", 5), ("acked", 9), ("acked", 10)):
        assert trace.wants(f"{PROBE_APP}/x", 1)
        trace.note(stage, f"{PROBE_APP}/x", 1, at_us)
    assert [stage for _, _, stage, _ in trace.recent()] == ["published", "sent", "acked"]
    assert sum(trace.since_published["acked"].counts) == 0
    assert trace.sent == {f"{PROBE_APP}/x": 1}
    assert trace.take() == []
    trace.close(0)


def test_a_node_that_does_not_sample_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="has no traces"):
        TraceReader(tmp_path).partitions()
