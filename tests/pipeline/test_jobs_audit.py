"""The audit, against the table of the core and against plain computation."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import product
from pathlib import Path

import pytest
from benchmarks.population import plain_states, write_population
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from roskva.core.freshness import due
from roskva.model import MAX_VERSION, NO_EPOCH, NO_VERSION
from roskva.pipeline.jobs.audit import DUE, Look, audit, second_look, with_tail
from roskva.pipeline.state import State

Combination = tuple[int | None, int | None, int | None, int]
"""acked, acked_epoch, version, epoch"""

_SCHEMA = "acked long, acked_epoch long, version long, epoch long"
versions = st.none() | st.integers(0, 5) | st.integers(0, MAX_VERSION)
epochs = st.integers(1, 4) | st.integers(1, 2**60)


def in_sql(spark: SparkSession, combinations: list[Combination]) -> list[str]:
    table = spark.createDataFrame(combinations, _SCHEMA)
    return [row.due for row in table.selectExpr(f"{DUE} AS due").collect()]


def in_python(combination: Combination) -> str:
    acked, acked_epoch, version, epoch = combination
    held = (NO_VERSION if acked is None else acked, acked_epoch or NO_EPOCH)
    return due(held, (NO_VERSION if version is None else version, epoch)).name.lower()


def test_the_table_in_sql_is_the_table_of_the_core_for_every_small_combination(
    spark: SparkSession,
) -> None:
    some: list[int | None] = [None, 0, 1, 2]
    combinations = list(product(some, [None, 1, 2], some, [1, 2]))
    assert in_sql(spark, combinations) == [in_python(each) for each in combinations]


@settings(max_examples=5, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    combinations=st.lists(
        st.tuples(versions, st.none() | epochs, versions, epochs), min_size=50, max_size=300
    )
)
def test_the_table_in_sql_is_the_table_of_the_core(
    spark: SparkSession, combinations: list[Combination]
) -> None:
    assert in_sql(spark, combinations) == [in_python(each) for each in combinations]


def look_at(path: Path) -> Look:
    @contextmanager
    def state() -> Iterator[State]:
        yield State(path)

    return Look(state, dict, lambda: 0)


def test_the_audit_agrees_with_a_plain_computation(spark: SparkSession, tmp_path: Path) -> None:
    write_population(tmp_path, clients=2_000, each=5, objects=300, shards=3)
    written: list[DataFrame] = []
    found = audit(spark, look_at(tmp_path), grace_s=0, out=written.append)
    places = {place.shard: place.store for place in State(tmp_path).shards()}
    expected = plain_states(places)
    assert {state: count for state, count in found.states.items() if count} == expected
    assert min(expected.values()) > 0, "the population has all states that one look can see"
    assert found.registrations == sum(expected.values())
    assert found.worst[0].due == max(worst.due for worst in found.worst)
    assert found.pending_since is not None
    assert written[0].count() == found.registrations - expected["fresh"]


def test_a_suspect_is_stale_unless_it_has_acked_what_it_was_due(spark: SparkSession) -> None:
    """Not what the object stands at by then: an object that never rests is never caught up with."""
    suspects = spark.createDataFrame(
        [
            (bytearray([n]), "app/x", "pending", n == 7, 4, 1, None if n == 5 else 5, 1)
            for n in range(8)
        ],
        f"client binary, object string, state string, slow boolean, {_SCHEMA}",
    )
    later = spark.createDataFrame(
        [
            (bytearray([0]), "app/x", 4, 1, True),  # nothing happened
            (bytearray([1]), "app/x", 5, 1, True),  # acked, though there may be a 6 by now
            (bytearray([2]), "app/x", 4, 1, True),  # offline by now
            (bytearray([3]), "app/y", 4, 1, True),  # not registered any more
            (bytearray([4]), "app/x", 4, 1, False),  # forgotten
            (bytearray([5]), "app/x", 4, 1, True),  # was told unknown, and has acked that
            (bytearray([6]), "app/x", 4, 1, True),  # does not read what it is sent
            (bytearray([7]), "app/x", 4, 1, True),  # did not at the first look
        ],
        "client binary, object string, acked long, epoch long, created boolean",
    )
    online = spark.createDataFrame(
        [(bytearray([n]), n == 6) for n in (0, 1, 3, 4, 5, 6, 7)], "client binary, slow boolean"
    )
    states = {row.client[0]: row.state for row in second_look(suspects, later, online).collect()}
    assert states == {
        0: "stale",
        1: "fresh",
        2: "pending",
        3: "pending",
        4: "pending",
        5: "unknown",
        6: "slow",
        7: "slow",
    }


@pytest.mark.parametrize(
    ("row", "tail", "expected"),
    [
        ((3, 0, 7), (4, None, 8), (4, 0, 8)),
        ((4, 0, 7), (4, None, 7), (4, 0, 7)),
        ((5, 0, 7), (4, None, 8), (5, 0, 7)),
        ((5, 0, 7), (None, 9, None), (None, 9, None)),
        ((5, 0, 7), (2, 9, 8), (2, 9, 8)),
        ((None, 3, None), (1, None, 8), (1, 3, 8)),
        (None, (1, None, 8), (1, 0, 8)),
        ((5, 3, 7), None, (5, 3, 7)),
    ],
)
def test_what_the_feed_has_beyond_the_marker_lies_over_the_rows(
    spark: SparkSession,
    row: tuple[object, ...] | None,
    tail: tuple[object, ...] | None,
    expected: tuple[object, ...],
) -> None:
    at = datetime(2024, 1, 1)
    objects = spark.createDataFrame(
        [("app/x", *row, 0, at)] if row else [],
        "object string, version long, mark int, epoch long, generation long, "
        "published_at timestamp",
    )
    beyond = spark.createDataFrame(
        [("app/x", *tail, 0, at)] if tail else [],
        "object string, version long, mark int, epoch long, generation long, "
        "published_at timestamp",
    )
    [laid] = with_tail(objects, beyond).collect()
    assert (laid.version, laid.mark, laid.epoch) == expected
