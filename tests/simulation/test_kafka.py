"""Kafka as the simulator has it: what a cluster may rely on, and what it may not."""

from collections.abc import Iterable

import pytest

from roskva.simulation.kafka import (
    FencedProducer,
    Fetched,
    OutOfRange,
    Partition,
    Position,
    SimulatedKafka,
    Truncated,
    UnknownTopic,
    proposed,
)

MOST = 1000


def kafka_with_rows() -> tuple[SimulatedKafka, Partition]:
    kafka = SimulatedKafka()
    kafka.create("rows", 1)
    return kafka, kafka.partition("rows", 0)


def values(*texts: str) -> list[tuple[bytes | None, bytes | None]]:
    return [(None, text.encode()) for text in texts]


def cells(**values: str | None) -> list[tuple[bytes | None, bytes | None]]:
    return [
        (key.encode(), None if value is None else value.encode()) for key, value in values.items()
    ]


def fetched(partition: Partition, after: Position | None = None, most: int = MOST) -> Fetched:
    found = partition.read(after or Position(partition.topic, 0), most)
    assert isinstance(found, Fetched)
    return found


def texts(found: Fetched) -> list[str]:
    return [record.value.decode() for record in found.records if record.value is not None]


def read(partition: Partition) -> list[str]:
    return texts(fetched(partition))


def test_who_reads_on_from_where_it_is_misses_nothing() -> None:
    _, rows = kafka_with_rows()
    assert rows.append(values("a", "b", "c"), 0.0) == 0
    first = fetched(rows, most=2)
    assert texts(first) == ["a", "b"]
    assert texts(fetched(rows, first.next)) == ["c"]
    assert rows.append(values("d"), 0.0) == 3


def test_an_open_transaction_hides_what_follows_until_it_ends() -> None:
    kafka, rows = kafka_with_rows()
    one, two = kafka.begin("one", 0.0), kafka.begin("two", 0.0)
    rows.append(values("before"), 0.0)
    kafka.write(one, rows, values("a"), 0.0)
    kafka.write(two, rows, values("b"), 0.0)
    kafka.end(two, "commit", 0.0)
    assert read(rows) == ["before"]
    kafka.end(one, "commit", 0.0)
    assert read(rows) == ["before", "a", "b"]


def test_nobody_reads_what_was_aborted_and_marks_take_offsets() -> None:
    kafka, rows = kafka_with_rows()
    owner = kafka.begin("owner", 0.0)
    kafka.write(owner, rows, values("a"), 0.0)
    kafka.end(owner, "abort", 0.0)
    kafka.write(owner, rows, values("b"), 0.0)
    kafka.end(owner, "commit", 0.0)
    found = fetched(rows)
    assert texts(found) == ["b"]
    assert found.next.offset == found.end == 4


def test_who_begins_fences_whoever_was_before_and_aborts_what_it_had_open() -> None:
    kafka, rows = kafka_with_rows()
    zombie = kafka.begin("owner", 0.0)
    kafka.write(zombie, rows, values("lost"), 0.0)
    owner = kafka.begin("owner", 0.0)
    with pytest.raises(FencedProducer):
        kafka.write(zombie, rows, values("late"), 0.0)
    with pytest.raises(FencedProducer):
        kafka.end(zombie, "commit", 0.0)
    kafka.write(owner, rows, values("kept"), 0.0)
    kafka.end(owner, "commit", 0.0)
    assert read(rows) == ["kept"]


def test_the_late_end_of_one_transaction_ends_the_next() -> None:
    """Why a producer whose commit is in doubt must not be used again."""
    kafka, rows = kafka_with_rows()
    owner = kafka.begin("owner", 0.0)
    kafka.write(owner, rows, values("half of the next"), 0.0)
    kafka.end(owner, "commit", 0.0)  # meant for the one before
    assert read(rows) == ["half of the next"]


def test_offsets_are_used_again_after_a_truncation_and_the_leader_epoch_tells() -> None:
    _, rows = kafka_with_rows()
    rows.append(values("a", "b", "c"), 0.0)
    reader = fetched(rows).next
    assert rows.elect(keeps=1) == 2
    assert rows.read(reader, MOST) == Truncated(1)
    rows.append(values("x", "y", "z"), 0.0)
    assert rows.read(reader, MOST) == Truncated(1)
    blind = Position(reader.topic, reader.offset)
    assert isinstance(rows.read(blind, MOST), Fetched)
    assert read(rows) == ["a", "x", "y", "z"]


def test_an_election_that_loses_nothing_is_none_of_a_readers_business() -> None:
    _, rows = kafka_with_rows()
    rows.append(values("a"), 0.0)
    reader = fetched(rows).next
    assert rows.elect() == 0
    rows.append(values("b"), 0.0)
    assert texts(fetched(rows, reader)) == ["b"]


def test_a_truncation_opens_a_transaction_again_whose_end_is_gone() -> None:
    kafka, rows = kafka_with_rows()
    owner = kafka.begin("owner", 0.0)
    kafka.write(owner, rows, values("a"), 0.0)
    kafka.end(owner, "commit", 0.0)
    rows.elect(keeps=1)
    assert read(rows) == []
    kafka.begin("owner", 0.0)
    assert read(rows) == []
    assert rows.stable_end == rows.end == 2


def test_retention_and_another_topic_of_the_name_are_said() -> None:
    kafka, rows = kafka_with_rows()
    rows.append(values("a", "b", "c"), 0.0)
    reader = Position(rows.topic, 1, 0)
    rows.expire(2)
    assert rows.read(reader, MOST) == OutOfRange(2)
    kafka.create("rows", 1)
    again = kafka.partition("rows", 0)
    again.append(values("other", "records"), 0.0)
    assert again.read(reader, MOST) == UnknownTopic(again.topic)


def test_compaction_keeps_the_last_of_a_key_and_forgets_old_tombstones() -> None:
    _, rows = kafka_with_rows()
    rows.append(cells(a="1", b="1"), 0.0)
    rows.append(cells(a="2"), 1.0)
    rows.append(cells(b=None), 2.0)
    rows.compact(5.0, spared_s=1.0, tombstones_s=10.0)
    assert [(record.key, record.value) for record in rows.records] == [(b"a", b"2"), (b"b", None)]
    rows.compact(20.0, spared_s=1.0, tombstones_s=10.0)
    found = fetched(rows)
    assert [(record.key, record.value) for record in found.records] == [(b"a", b"2")]
    assert found.next.offset == rows.end == 4


def test_compaction_touches_nothing_young_and_nothing_behind_an_open_transaction() -> None:
    kafka, rows = kafka_with_rows()
    rows.append(cells(a="1"), 0.0)
    owner = kafka.begin("owner", 0.0)
    kafka.write(owner, rows, cells(a="2"), 0.0)
    rows.append(cells(a="3"), 0.0)
    rows.compact(100.0, spared_s=1.0, tombstones_s=1.0)
    assert len(rows.records) == 3
    kafka.end(owner, "abort", 100.0)
    rows.compact(100.5, spared_s=1.0, tombstones_s=1.0)
    assert [record.value for record in rows.records] == [b"3", None]  # the mark is young


def even(given: dict[str, list[int]], partitions: int) -> bool:
    sizes = [len(each) for each in given.values()]
    everything = sorted(number for each in given.values() for number in each)
    return max(sizes) - min(sizes) <= 1 and everything == list(range(partitions))


@pytest.mark.parametrize("partitions", [1, 4, 7, 16])
def test_a_group_moves_few_partitions(partitions: int) -> None:
    def moved(before: dict[str, list[int]], after: dict[str, list[int]]) -> int:
        stayed = (set(before.get(m, ())) & set(given) for m, given in after.items())
        return partitions - sum(map(len, stayed))

    def given_to(members: Iterable[str], had: dict[str, list[int]]) -> dict[str, list[int]]:
        found = proposed(partitions, list(members), dict(had))
        assert even(found, partitions)
        return found

    three = given_to("abc", {})
    two = given_to("ac", three)
    assert moved(three, two) == len(three["b"])
    again = given_to("acd", two)
    assert moved(two, again) == len(again["d"])
