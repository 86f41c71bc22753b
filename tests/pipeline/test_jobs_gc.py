"""Who is forgotten, and who is not."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.population import NOW_US, write_population
from pyspark.sql import SparkSession

from roskva.core.expiry import DAY_S, Keep
from roskva.model import shard_of
from roskva.pipeline.jobs.gc import gc, to_forget
from roskva.pipeline.node import Seen
from roskva.pipeline.state import State


def _keep(app: str) -> Keep:
    return Keep(None if app == "archive" else 90 * DAY_S)


def test_who_was_away_for_long_and_who_never_was_is_to_be_forgotten(spark: SparkSession) -> None:
    now = datetime(2024, 1, 1)
    clients = spark.createDataFrame(
        [
            (bytearray(b"away"), now, now - timedelta(days=91), False, None, "app"),
            (bytearray(b"here"), now, now - timedelta(days=91), False, None, "app"),
            (bytearray(b"late"), now, now - timedelta(days=89), False, None, "app"),
            (bytearray(b"soon"), now, now - timedelta(days=1), False, 60, "app"),
            (bytearray(b"kept"), now, now - timedelta(days=900), False, None, "app archive"),
            (bytearray(b"orphan"), None, None, False, None, ""),
        ],
        "client binary, created_at timestamp, seen_at timestamp, open boolean, expiry_s long, "
        "apps string",
    )
    online = spark.createDataFrame([(bytearray(b"here"),)], "client binary")
    gone = to_forget(clients, online, _keep, now).collect()
    assert {bytes(row.client): row.reason for row in gone} == {
        b"away": "away",
        b"soon": "away",
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

    now = datetime.fromtimestamp(NOW_US / 1e6, UTC) - timedelta(microseconds=1_000)
    rule: dict[str, Any] = {"keep_of": lambda app: Keep(0.0), "now": now}
    found = gc(spark, State(tmp_path), online=[], forget=forget, **rule)
    assert (found.clients, found.away, found.orphaned, found.forgotten) == (1_100, 99, 2, 3)
    assert sum(map(len, told.values())) == 101
    assert all(shard_of(client, 2) == shard for shard in told for client, _ in told[shard])
    dry = gc(spark, State(tmp_path), online=[], forget=None, **rule)
    assert dry.forgotten is None
    assert dry.registrations == found.registrations > 0
