"""Acks of a channel that has no messages of ours: the event and the message do the same."""

import pytest
from tests.core.pair import Pair
from tests.core.test_attached import CLIENT, Device, X

from roskva.core.effects import Acked
from roskva.model import NO_VERSION
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


def test_what_is_not_acked_is_told_again_by_the_regular_check_and_counted() -> None:
    device = told(pair := Pair())
    pair.run(150)
    again = len(device.versions()) - 1
    assert again >= 2
    assert pair.registrar.core.counters["notified_again"] == again
    ack(device, 1, device.notified[0].epoch, by_event=True)
    pair.run(150)
    assert pair.registrar.core.counters["notified_again"] == again


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
