"""Conformance 60–69: what a client is told, and what not."""

import pytest
from tests.core.client_side import ClientSide
from tests.core.pair import Pair, registered
from tests.core.registrar_side import HIGH_WATER

from roskva.core.effects import (
    RegistrationFailure,
    RegistrationStatus,
    Trouble,
)


def test_c60_the_author_of_a_change_is_not_told_it_neither_then_nor_later() -> None:
    pair = Pair()
    author, other = pair.client(application="author"), pair.client(application="other")
    for client in (author, other):
        client.register("app/x")
    pair.run(1)
    pair.publish("app/x", 1, source="author")
    pair.run(200)
    author.lose_connection()
    pair.run(200)
    assert author.told("app/x") == [None]
    assert other.told("app/x") == [None, 1]
    pair.publish("app/x", 2)
    pair.run(1)
    assert author.told("app/x") == [None, 2]


def test_c60_an_author_that_missed_the_version_before_is_told() -> None:
    pair = Pair()
    author = pair.client(application="author")
    author.register("app/x")
    pair.run(1)
    author.auto_ack = False
    pair.publish("app/x", 1)
    pair.settle()
    pair.publish("app/x", 2, source="author")
    pair.run(1)
    assert author.told("app/x") == [None, 1, 2]


def test_c60_an_author_that_registers_anew_is_told() -> None:
    pair = Pair()
    pair.publish("app/x", 1, source="author")
    author = pair.client(application="author")
    author.register("app/x")
    pair.run(1)
    assert author.told("app/x") == [1]


def test_c61_a_reconnect_with_nothing_changed_notifies_of_nothing() -> None:
    pair, client = registered("app/x", "app/never")
    pair.publish("app/x", 5)
    pair.run(5)
    client.clear()
    for _ in range(3):
        client.lose_connection()
        pair.run(100)
    assert not [n for message in client.heard for n in message.notifications]
    assert not client.operations()


def test_c62_offline_through_1000_updates_is_one_notification_the_last() -> None:
    pair, client = registered("app/x")
    client.reachable = False
    client.lose_connection()
    pair.run(100)
    for version in range(1000):
        pair.publish("app/x", version)
        pair.settle()
    client.reachable = True
    pair.run(200)
    assert client.told("app/x") == [999]
    assert sum(len(message.notifications) for message in client.heard) == 1


def test_c63_registered_before_the_first_publish_is_unknown_once_then_the_first_version() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(200)
    assert client.told("app/x") == [None]
    pair.publish("app/x", 0)
    pair.run(200)
    assert client.told("app/x") == [None, 0]


def two_clients_that_know_x_at_5() -> tuple[Pair, list[ClientSide]]:
    pair = Pair()
    clients = [pair.client(), pair.client()]
    for client in clients:
        client.register("app/x", "app/y")
    pair.run(1)
    pair.publish("app/x", 5)
    pair.run(5)
    for client in clients:
        client.clear()
    return pair, clients


def test_c64_a_new_epoch_is_told_as_unknown_once_and_a_restart_is_not() -> None:
    pair, clients = two_clients_that_know_x_at_5()
    for times in (1, 2):
        pair.shard.begin_feed_anew()
        pair.run(200)
        pair.shard.crash()
        pair.registrar.crash()
        pair.run(200)
        for client in clients:
            assert client.told("app/x") == [None] * times
            assert client.told("app/y") == [None] * times
    pair.publish("app/x", 6)
    pair.run(1)
    assert all(client.told("app/x") == [None, None, 6] for client in clients)


@pytest.mark.parametrize("readable", [True, False])
def test_c64_a_shard_that_lost_its_object_rows_tells_everybody_unknown_once(
    readable: bool,
) -> None:
    pair, clients = two_clients_that_know_x_at_5()
    pair.shard.readable_after = 0 if readable else len(pair.shard.feed)
    pair.shard.crash(losing="objects")
    pair.run(200)
    for client in clients:
        assert client.told("app/x") == [None]
        assert client.told("app/y") == [None]


def test_c64_an_unknown_is_repeated_only_if_its_ack_was_not_persisted() -> None:
    pair, client = registered("app/x")
    pair.publish("app/x", 5)
    pair.run(5)
    pair.shard.begin_feed_anew()
    pair.run(0.5)
    assert client.told("app/x") == [5, None]
    pair.registrar.crash()  # before it has written the ack
    client.restart()
    client.register("app/x")
    pair.run(60)
    assert client.told("app/x") == [5, None, None]
    client.restart()
    client.register("app/x")
    pair.run(60)
    assert client.told("app/x") == [5, None, None]


def test_c65_a_registrar_that_lost_its_state_misses_nothing() -> None:
    pair, client = registered("app/x", "app/y")
    pair.registrar.crash()
    pair.publish("app/x", 5)
    pair.run(200)
    assert client.told("app/x") == [5]
    assert client.told("app/y") == []


def test_c65_lost_client_rows_are_resent_because_digests_differ() -> None:
    """On purpose: the client keeps its id, and the digest brings its registrations back."""
    pair, client = registered("app/x", "app/y")
    [row] = pair.shard.heads
    pair.registrar.crash()
    pair.shard.crash(losing="clients")
    pair.publish("app/x", 5)
    pair.run(200)
    assert list(pair.shard.heads) == [row]
    assert set(pair.shard.cells[row]) == {"app/x", "app/y"}
    assert client.told("app/x") == [5]


def test_c66_with_everything_lost_registrations_come_back_and_everything_is_unknown() -> None:
    pair, client = registered("app/x", "app/y")
    pair.publish("app/x", 5)
    pair.run(5)
    client.clear()
    pair.shard.feed, pair.shard.lineage = [], 2
    pair.registrar.crash()
    pair.shard.crash(losing="everything")
    pair.run(200)
    assert client.told("app/x") == [None]
    assert client.told("app/y") == [None]
    pair.publish("app/x", 6)
    pair.run(1)
    assert client.told("app/x") == [None, 6]


def test_c67_of_two_sessions_of_one_client_the_newer_wins() -> None:
    pair = Pair(registrars=2)
    older = pair.client()
    older.register("app/x")
    pair.run(5)
    newer = pair.client(older.identity)
    newer.registrar = pair.registrars[1]
    newer.register("app/x")
    older.clear()
    pair.run(1)
    assert older.events == [Trouble("fenced", "")]
    assert older.conn is None
    assert pair.registrars[0].core.counters["fenced"] == 1
    pair.publish("app/x", 1)
    pair.run(5)
    assert newer.told("app/x") == [1]
    assert older.told("app/x") == []


def test_c68_a_slow_reader_costs_bounded_memory_and_reads_the_newest_when_it_drains() -> None:
    pair, client = registered("app/a", "app/b", "app/c")
    assert client.conn is not None
    client.conn.down.held = True
    backlog = 0
    for version in range(300):
        for key in ("app/a", "app/b", "app/c"):
            pair.publish(key, version, payload=b"." * 1000)
        pair.settle()
        backlog = max(backlog, client.conn.down.backlog())
    assert HIGH_WATER < backlog < HIGH_WATER + 4 * 1200
    client.conn.down.held = False
    pair.run(1)
    for key in ("app/a", "app/b", "app/c"):
        assert client.told(key)[-1] == 299
        assert len(client.told(key)) < 10


def test_c69_duplicate_and_reordered_updates_from_the_feed_change_nothing() -> None:
    pair, client = registered("app/x")
    pair.shard.fast_path = False
    for version in (3, 1, 2, 5, 4):
        pair.publish("app/x", version)
    for first, last in ((1, 1), (2, 3), (1, 5), (4, 4), (2, 5), (5, 5)):
        pair.shard.apply(first, last)
        pair.run(0.2)
    assert client.told("app/x") == [3, 5]
    pair.run(200)
    assert pair.shard.objects["app/x"].version == 5
    assert pair.shard.stored is not None
    assert pair.shard.stored.applied == 5
    assert client.told("app/x") == [3, 5]


def test_a_registration_that_could_not_be_written_is_confirmed_when_the_disk_is_back() -> None:
    pair, client = registered("app/x")
    pair.shard.disk_fails = True
    client.register("app/y")
    pair.run(30)
    assert RegistrationStatus("app/y", True) not in client.events
    pair.shard.disk_fails = False
    pair.run(130)
    assert RegistrationStatus("app/y", True) in client.events
    [cells] = pair.shard.cells.values()
    assert set(cells) == {"app/x", "app/y"}


def test_a_registration_no_longer_allowed_when_it_is_resent_fails_once_and_for_good() -> None:
    pair, client = registered("app/x", "app/secret")
    pair.registrar.denied = frozenset({"app/secret"})
    pair.shard.crash(losing="clients")
    client.lose_connection()
    pair.run(60)
    failures = [event for event in client.events if isinstance(event, RegistrationFailure)]
    assert failures == [RegistrationFailure("app/secret", False, "unauthorised")]
    client.clear()
    pair.run(60)
    assert not client.sent, "the two sides have come to rest"
