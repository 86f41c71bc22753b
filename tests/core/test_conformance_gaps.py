"""Conformance 73–75, 77 and 79–82: gaps, epochs, resets and declared versions."""

from tests.core.pair import Pair, knowing

from roskva.core.effects import (
    LoadObjects,
    NotifyUnknown,
    ObjectRow,
    Persist,
)
from roskva.model import Update

X = "app/x"


def test_c73_a_matcher_behind_its_client_in_the_same_epoch_sends_nothing_older() -> None:
    pair, client = knowing(X, 5)
    pair.shard.objects[X] = ObjectRow(3, epoch=pair.shard.matcher.epoch)
    pair.shard.crash()
    pair.run(200)
    client.lose_connection()
    pair.run(200)
    pair.publish(X, 4)
    pair.run(200)
    assert client.told(X) == []
    pair.publish(X, 6)
    pair.run(1)
    assert client.told(X) == [6]


def test_c73_who_is_behind_is_told_while_who_is_ahead_is_not() -> None:
    pair, ahead = knowing(X, 5)
    pair.shard.objects[X] = ObjectRow(3, epoch=pair.shard.matcher.epoch)
    pair.shard.crash()
    behind = pair.client()
    behind.register(X)
    pair.run(5)
    pair.publish(X, 4)
    pair.run(5)
    assert ahead.told(X) == []
    assert behind.told(X) == [3, 4]


def test_c74_a_new_epoch_with_a_version_not_newer_than_acked_is_unknown_not_silence() -> None:
    pair, client = knowing(X, 5)
    pair.shard.begin_feed_anew()
    pair.run(1)
    assert pair.shard.objects[X].version == 5
    assert client.told(X) == [None]
    pair.publish(X, 4)
    pair.run(200)
    assert client.told(X) == [None]
    pair.publish(X, 6)
    pair.run(1)
    assert client.told(X) == [None, 6]


def test_c74_a_client_away_during_the_change_of_epoch_is_told_when_it_is_back() -> None:
    pair, client = knowing(X, 5)
    client.reachable = False
    client.lose_connection()
    pair.run(100)
    pair.shard.begin_feed_anew()
    pair.run(100)
    client.reachable = True
    pair.run(200)
    assert client.told(X) == [None]


def lose_an_update_with_the_feed(pair: Pair, version: int) -> None:
    """Published and acknowledged, but gone with the feed before the matcher had read it."""
    pair.shard.fast_path = False
    pair.publish(X, version)
    pair.shard.begin_feed_anew()
    pair.shard.fast_path = True


def test_c74_a_client_that_was_behind_when_an_update_was_lost_is_told_unknown_too() -> None:
    pair, client = knowing(X, 5)
    client.reachable = False
    client.lose_connection()
    pair.run(1)
    pair.publish(X, 6)
    pair.settle()
    lose_an_update_with_the_feed(pair, 7)
    client.reachable = True
    pair.run(200)
    assert None in client.told(X)


def test_c74_who_registers_after_an_update_was_lost_is_told_unknown_too() -> None:
    pair, _ = knowing(X, 6)
    lose_an_update_with_the_feed(pair, 7)
    newcomer = pair.client()
    newcomer.register(X)
    pair.run(200)
    assert None in newcomer.told(X)


def test_c74_while_no_epoch_can_begin_nobody_is_told_anything_and_no_status_confirms() -> None:
    pair, client = knowing(X, 6)
    pair.shard.feed_full = True
    lose_an_update_with_the_feed(pair, 7)
    newcomer = pair.client()
    newcomer.register(X)
    pair.run(200)
    assert client.told(X) == newcomer.told(X) == []
    assert [message.statuses for message in newcomer.heard if message.statuses] == []
    pair.shard.feed_full = False
    pair.run(200)
    assert client.told(X) == newcomer.told(X) == [None]


def test_c75_an_ack_that_echoes_an_old_epoch_does_not_count_for_the_new_one() -> None:
    pair, client = knowing(X, 5)
    client.auto_ack = False
    pair.publish(X, 6)
    pair.settle()
    pair.shard.begin_feed_anew()
    pair.settle()
    client.ack(client.events[0])
    pair.run(5)
    [cells] = pair.shard.cells.values()
    assert cells[X].acked == 6
    client.clear()
    client.lose_connection()
    pair.run(5)
    assert client.told(X) == [None]
    client.ack(client.events[-1])
    pair.run(5)
    client.clear()
    client.lose_connection()
    pair.run(5)
    assert client.told(X) == []


def test_c77_a_version_not_yet_on_disk_is_the_answer_to_a_new_interest() -> None:
    pair = Pair()
    pair.shard.disk_held = True
    pair.publish(X, 5)
    pair.shard.take(Persist)
    pair.shard.disk_held = False
    client = pair.client()
    client.register(X)
    pair.run(5)
    assert X not in pair.shard.objects
    assert client.told(X) == [5]


def test_c77_a_load_that_returns_late_never_hides_a_newer_version() -> None:
    pair = Pair()
    pair.publish(X, 5)
    pair.settle()
    client = pair.client()
    pair.run(0.2)
    client.register(X)
    pair.shard.disk_held = True
    pair.run(0.2)
    load = pair.shard.take(LoadObjects)
    read = pair.shard.answer_to(load)
    pair.shard.disk_held = False
    pair.publish(X, 9)
    pair.run(1)
    assert client.told(X) == []
    pair.shard.step(read)
    pair.run(1)
    assert client.told(X) == [9]


def test_c77_a_load_that_failed_is_tried_again() -> None:
    pair = Pair()
    pair.publish(X, 5)
    client = pair.client()
    pair.run(0.2)
    client.register(X)
    pair.shard.disk_held = True
    pair.run(0.2)
    load = pair.shard.take(LoadObjects)
    pair.shard.disk_fails = True
    pair.shard.step(pair.shard.answer_to(load))
    pair.shard.disk_fails = pair.shard.disk_held = False
    pair.run(2)
    assert client.told(X) == [5]


def test_c79_an_update_that_never_reached_the_disk_is_delivered_by_catching_up() -> None:
    pair, client = knowing(X, 5)
    pair.shard.disk_held = True
    pair.registrar.cut()
    pair.publish(X, 6)
    pair.settle()
    pair.shard.crash()
    pair.shard.disk_held = False
    pair.registrar.join()
    pair.run(5)
    assert client.told(X) == [6]
    assert pair.shard.objects[X].version == 6


def test_c79_an_answer_never_covers_what_is_only_in_memory() -> None:
    pair, _ = knowing(X, 5)
    shard = pair.shard
    assert shard.stored is not None
    shard.disk_held = True
    shard.fast_path = False
    pair.publish(X, 6)
    shard.offer(2, 2, "first")
    pair.publish(X, 7)
    shard.offer(2, 3, "second")
    shard.offer(1, 1, "old")
    assert shard.answers == [("old", 1)]
    shard.answers.clear()
    shard.disk_held = False
    pair.settle()
    assert shard.answers == [
        ("first", 2),
        ("second", 3),
    ]
    assert shard.stored.applied == 3


def test_c79_a_write_that_failed_is_written_again_before_it_is_answered() -> None:
    pair, client = knowing(X, 5)
    shard = pair.shard
    shard.disk_fails = True
    pair.publish(X, 6)
    shard.offer(2, 2, "bridge")
    pair.run(2)
    assert client.told(X) == [6], "notifying does not wait for the disk"
    assert shard.answers == []
    shard.disk_fails = False
    pair.run(2)
    assert shard.answers == [("bridge", 2)]
    assert shard.objects[X].version == 6


def test_c80_a_gap_is_closed_from_the_feed_and_until_then_the_marker_stays() -> None:
    pair, client = knowing(X, 5)
    client.register("app/y")
    pair.run(1)
    shard = pair.shard
    shard.fast_path = False
    pair.publish("app/y", 1)
    pair.publish(X, 6)
    shard.disk_held = True
    shard.offer(3, 3, "bridge")
    pair.settle()
    assert client.told(X) == [6], "a newer version is never wrong"
    assert shard.answers == [("bridge", 1)]
    persist = shard.take(Persist)
    assert isinstance(persist, Persist)
    assert [w.applied for w in persist.writes if hasattr(w, "applied")] == [1]
    shard.disk_held = False
    pair.run(10)
    assert client.told("app/y") == [None, 1]
    assert client.told(X) == [6]


def test_c80_a_gap_seen_by_a_tick_of_the_feed_is_closed() -> None:
    pair, client = knowing(X, 5)
    pair.shard.fast_path = False
    pair.publish(X, 6)
    pair.run(5)
    assert client.told(X) == []
    pair.shard.tell_feed_end()
    pair.run(1)
    assert client.told(X) == [6]
    assert pair.shard.stored is not None
    assert pair.shard.stored.applied == 2


def test_c81_after_a_reset_unknown_is_told_then_the_next_version_however_small() -> None:
    pair, client = knowing(X, 5)
    pair.shard.publish(Update(X, 77, reset=True))
    pair.run(5)
    assert client.told(X) == [None]
    pair.publish(X, 1)
    pair.run(5)
    assert client.told(X) == [None, 1]
    pair.shard.crash()
    pair.registrar.crash()
    pair.run(60)
    assert client.told(X) == [None, 1]


def test_c81_a_version_published_right_after_the_reset_reaches_who_has_not_looked_yet() -> None:
    pair, client = knowing(X, 5)
    client.auto_ack = False
    pair.shard.publish(Update(X, 77, reset=True))
    pair.publish(X, 1)
    pair.settle()
    assert set(client.told(X)) == {None}
    client.ack(client.events[-1])
    pair.run(1)
    assert client.told(X)[-1] == 1


def test_c81_a_client_away_during_the_reset_is_told_when_it_is_back() -> None:
    pair, client = knowing(X, 5)
    client.reachable = False
    client.lose_connection()
    pair.run(100)
    pair.shard.publish(Update(X, 77, reset=True))
    pair.publish(X, 1)
    pair.run(5)
    client.reachable = True
    pair.run(200)
    assert client.told(X) == [None, 1]


def test_c82_a_declared_version_below_the_acked_one_means_that_version() -> None:
    pair, client = knowing(X, 5)
    client.register(X, version=3)
    pair.run(5)
    assert client.told(X) == [5]
    client.register(X, version=5)
    pair.run(60)
    assert client.told(X) == [5]


def test_c82_a_declared_version_of_an_object_never_published_is_unknown() -> None:
    pair = Pair()
    client = pair.client()
    client.register(X, version=3)
    pair.run(5)
    assert client.told(X) == [None]


def test_c82_a_declared_version_that_is_the_latest_is_left_alone() -> None:
    pair = Pair()
    pair.publish(X, 3)
    client = pair.client()
    client.register(X, version=3)
    pair.run(100)
    assert client.told(X) == []
    pair.publish(X, 4)
    pair.run(1)
    assert client.told(X) == [4]


def test_c82_a_declared_version_does_not_hide_a_change_of_epoch() -> None:
    pair, client = knowing(X, 5)
    client.reachable = False
    client.lose_connection()
    pair.run(10)
    client.register(X, version=5)
    pair.shard.begin_feed_anew()
    pair.run(10)
    client.reachable = True
    pair.run(200)
    assert any(isinstance(event, NotifyUnknown) for event in client.events)


def test_c82_a_registration_given_up_and_made_anew_before_it_was_sent_is_told_again() -> None:
    pair, client = knowing(X, 5)
    client.register(X, version=5)
    client.unregister(X)
    client.register(X)
    pair.run(60)
    assert client.told(X)
