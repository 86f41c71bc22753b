"""Who is forgotten, and who is not."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.population import NOW_US, write_population
from pyspark.sql import SparkSession

from roskva.model import shard_of
from roskva.pipeline.jobs.gc import gc, to_forget
from roskva.pipeline.node import Seen
from roskva.pipeline.state import State


def test_who_was_away_for_long_and_who_never_was_is_to_be_forgotten(spark: SparkSession) -> None:
    now = datetime(2024, 1, 1)
    clients = spark.createDataFrame(
        [
            (bytearray(b"away"), now, now - timedelta(days=91)),
            (bytearray(b"here"), now, now - timedelta(days=91)),
            (bytearray(b"late"), now, now - timedelta(days=89)),
            (bytearray(b"orphan"), None, None),
        ],
        "client binary, created_at timestamp, seen_at timestamp",
    )
    online = spark.createDataFrame([(bytearray(b"here"),)], "client binary")
    gone = to_forget(clients, online, now - timedelta(days=90)).collect()
    assert {bytes(row.client): row.reason for row in gone} == {
        b"away": "away",
        b"orphan": "orphaned",
    }


def test_the_node_is_told_shard_by_shard_and_a_dry_run_tells_nobody(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_population(tmp_path, clients=1_100, each=2, objects=50, shards=2)
    told: dict[int, Sequence[Seen]] = {}

    def forget(clients: Mapping[int, Sequence[Seen]]) -> int:
        told.update(clients)
        return 3

    away_since = datetime.fromtimestamp(NOW_US / 1e6, UTC) - timedelta(microseconds=1_000)
    found = gc(spark, State(tmp_path), online=[], away_since=away_since, forget=forget)
    assert (found.clients, found.away, found.orphaned, found.forgotten) == (1_100, 98, 2, 3)
    assert sum(map(len, told.values())) == 100
    assert all(shard_of(client, 2) == shard for shard in told for client, _ in told[shard])
    dry = gc(spark, State(tmp_path), online=[], away_since=away_since, forget=None)
    assert dry.forgotten is None
    assert dry.registrations == found.registrations > 0
