"""Load, spread over processes as a node spreads it."""

import pytest
from pyspark.sql import SparkSession

from roskva.model import shard_of
from roskva.pipeline.jobs.plan import COSTS, Layout, matcher_of, plan, synthetic
from roskva.server.processes import _share


def test_shards_are_dealt_out_as_the_supervisor_does_it(spark: SparkSession) -> None:
    keys = [f"app/{number}" for number in range(60)]
    for shards, matchers in ((4, 1), (4, 3), (7, 4), (8, 8)):
        owners = {
            shard: matcher
            for matcher in range(matchers)
            for shard in _share(shards, matchers, matcher)
        }
        table = spark.createDataFrame([(key,) for key in keys], "object string")
        column = matcher_of("object", Layout(1, matchers, shards))
        found = [row[0] for row in table.select(column).collect()]
        assert found == [owners[shard_of(key, shards)] for key in keys]


def test_every_registration_and_update_is_counted_once(spark: SparkSession) -> None:
    registrations = spark.createDataFrame(
        [(bytearray([client]), f"app/{client % 3}") for client in range(30)],
        "client binary, object string",
    )
    rates = spark.createDataFrame(
        [("app/0", 10.0), ("app/1", 1.0), ("app/9", 5.0)], "object string, per_second double"
    )
    found = plan(registrations, rates, Layout(3, 2, 4))
    front = [load for load in found.processes if load.process.startswith("registrar")]
    state = [load for load in found.processes if load.process.startswith("state")]
    assert sum(load.sessions for load in front) == sum(load.registrations for load in front) == 30
    assert sum(load.per_second for load in front) == pytest.approx(110)
    assert sum(load.objects for load in state) == 3
    pushes = 11 * len(front)  # each registrar has clients for every object
    assert sum(load.per_second for load in state) == pytest.approx(pushes)
    busy = (pushes * COSTS.push_us + 16 * COSTS.publish_us) / 1e6
    assert sum(load.busy for load in state) == pytest.approx(busy)
    assert found.updates_per_second == 16


def test_more_clients_need_more_registrars_and_not_more_matchers(spark: SparkSession) -> None:
    found = plan(*synthetic(spark, 3_000, 3, 200, 10.0), Layout(1, 1, 4), times=(1, 20, 100))
    assert [registrars for _, registrars, _, _ in found.growth] == [1, 3, 15]
    assert [matchers for _, _, matchers, _ in found.growth] == [1, 1, 1]
    memory = [memory for *_, memory in found.growth]
    assert memory == sorted(memory)
    assert found.updates_per_second == pytest.approx(10)
