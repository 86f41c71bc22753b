"""Acks of a channel that has no messages of ours: the event and the message do the same."""

from collections.abc import Callable

import pytest
from tests.core.client_side import ClientSide
from tests.core.pair import Pair
from tests.core.test_attached import CLIENT, Device, X

from roskva.core.effects import Acked, KeptBack, Notify, Recheck, Watching
from roskva.model import NO_EPOCH, NO_VERSION
from roskva.wire.links import Registered
from roskva.wire.messages import Ack, Operation


def told(pair: Pair) -> Device:
    pair.publish(X, 1)
    device = Device(pair)
    device.say(Operation(X))
    assert device.versions() == [1]
    return device


def ack(device: Device, version: int | None, epoch: int, by_event: bool) -> None:
    if by_event:
        known = NO_VERSION if version is None else version
        device.pair.registrar.step(Acked({(X, known, epoch): [device.id]}))
        device.pair.settle()
    else:
        device.say(acks=[Ack(X, version, epoch)])


@pytest.mark.parametrize("by_event", [True, False])
def test_what_was_acked_is_not_told_after_a_reconnect(by_event: bool) -> None:
    device = told(pair := Pair())
    ack(device, 1, device.notified[0].epoch, by_event)
    device.leave()
    assert Device(pair).versions() == []


@pytest.mark.parametrize("by_event", [True, False])
def test_an_ack_above_what_is_known_is_forged(by_event: bool) -> None:
    device = told(pair := Pair())
    ack(device, 2, device.notified[0].epoch, by_event)
    assert pair.registrar.core.counters["forged_acks"] == 1
    device.leave()
    assert Device(pair).versions() == [1]


@pytest.mark.parametrize("by_event", [True, False])
def test_an_ack_of_what_was_overtaken_leaves_the_latest_due(by_event: bool) -> None:
    device = told(pair := Pair())
    epoch = device.notified[0].epoch
    pair.publish(X, 2)
    pair.settle()
    ack(device, 1, epoch, by_event)
    assert pair.registrar.core.counters["acks"] == 1
    device.leave()
    back = Device(pair)
    assert back.versions() == [2]
    ack(back, 2, epoch, by_event)
    ack(back, 1, epoch, by_event)
    back.leave()
    assert Device(pair).versions() == []


def heard(client: ClientSide) -> list[int | None]:
    return [told.version for message in client.heard for told in message.notifications]


def test_what_is_not_acked_is_told_again_by_the_regular_check_and_counted() -> None:
    pair = Pair()
    pair.publish(X, 1)
    client = pair.client()
    client.auto_ack = False
    client.register(X)
    pair.run(150)
    assert heard(client) == [1] * 4, "first after ten seconds, then once a minute"
    assert pair.registrar.core.counters["notified_again"] == 3
    client.ack(next(event for event in client.events if isinstance(event, Notify)))
    pair.run(150)
    assert heard(client) == [1] * 4
    assert pair.registrar.core.counters["notified_again"] == 3


def watching(pair: Pair) -> Device:
    pair.publish(X, 1)
    return Device(pair, Watching, registered=[Registered(X, NO_VERSION, NO_EPOCH)])


@pytest.mark.parametrize("begun", [told, watching])
def test_over_a_channel_that_repeats_nothing_the_regular_check_tells_nothing_again(
    begun: Callable[[Pair], Device],
) -> None:
    device = begun(pair := Pair())
    pair.run(150)
    assert device.versions() == [1]
    assert pair.registrar.core.counters["notified_again"] == 0


@pytest.mark.parametrize("begun", [told, watching])
def test_what_was_kept_back_is_told_by_the_regular_check(begun: Callable[[Pair], Device]) -> None:
    device = begun(pair := Pair())
    pair.registrar.step(KeptBack(device.id, X))
    pair.registrar.step(KeptBack(device.id, "app/another"))
    pair.run(150)
    assert device.versions() == [1, 1]
    assert pair.registrar.core.counters["notified_again"] == 0, "it had not been told"


def test_what_is_not_acked_is_told_once_more_when_all_is_compared_anew() -> None:
    device = told(pair := Pair())
    pair.registrar.step(Recheck())
    pair.run(5)
    assert device.versions() == [1, 1]
    assert pair.registrar.core.counters["notified_again"] == 0, "these are the regular check's"


@pytest.mark.parametrize("by_event", [True, False])
def test_an_ack_that_was_not_written_before_a_crash_is_asked_for_once_more(by_event: bool) -> None:
    device = told(pair := Pair())
    epoch = device.notified[0].epoch
    ack(device, 1, epoch, by_event)
    crash(pair)
    back = Device(pair)
    assert back.versions() == [1]
    ack(back, 1, epoch, by_event)
    pair.run(5)
    crash(pair)
    assert Device(pair).versions() == []


def crash(pair: Pair) -> None:
    """Of the whole node; the devices hear nothing of it."""
    pair.registrar.conns.clear()
    pair.registrar.crash()
    pair.shard.crash()
    pair.run(5)


def one_behind(pair: Pair, last: int, by_event: bool) -> Device:
    """Each ack is heard when the next version has been told."""
    device = told(pair)
    epoch = device.notified[0].epoch
    for version in range(2, last + 1):
        pair.publish(X, version)
        pair.settle()
        ack(device, version - 1, epoch, by_event)
        pair.run(1)
    return device


@pytest.mark.parametrize("by_event", [True, False])
def test_acks_that_are_always_one_behind_reach_the_row(by_event: bool) -> None:
    one_behind(pair := Pair(), 20, by_event)
    assert pair.shard.cells[CLIENT][X].acked >= 15


@pytest.mark.parametrize("by_event", [True, False])
def test_who_was_one_behind_and_ahead_of_a_loss_is_told_to_look(by_event: bool) -> None:
    device = one_behind(pair := Pair(), 20, by_event)
    before = len(device.notified)
    pair.shard.crash(losing="objects")
    pair.shard.begin_feed_anew()
    pair.publish(X, 10)
    pair.run(30)
    assert [notification.version for notification in device.notified[before:]] == [None]


def test_an_ack_on_a_connection_that_is_gone_changes_nothing() -> None:
    device = told(pair := Pair())
    epoch = device.notified[0].epoch
    device.leave()
    assert pair.registrar.core.step(Acked({(X, 1, epoch): [device.id]}), pair.now) == []
    assert Device(pair).versions() == [1]
