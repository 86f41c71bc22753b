"""Pushes wait for newer ones of the same object, and nothing of their order changes."""

from tests.host.shards import LINEAGE, LINK, NOW, Asked
from tests.host.test_registrar import Asked as AskedRegistrar

from roskva.core.effects import (
    FromLink,
    LinkDown,
    Loaded,
    LoadObjects,
    ObjectRow,
    SendLink,
    Tick,
)
from roskva.host.batching import AUTO, Batching, Pace
from roskva.model import Loss, Update, epoch_record
from roskva.wire.links import Push, Pushes, Versions, Welcome

X, Y, OTHER = "app/x", "app/y", "other/z"


def asked() -> Asked:
    shard = Asked()
    shard.host.batching.batch_ms = {"app": 50, "other": 0}.__getitem__
    shard.watch(X, Y, OTHER)
    (load,) = shard.take(LoadObjects)
    shard.step(Loaded(load.id, {key: ObjectRow() for key in load.keys}))
    shard.effects.clear()
    return shard


def publish(shard: Asked, *updates: Update) -> None:
    shard.publish(1, *updates)
    shard.commit()


def said(shard: Asked) -> list[list[tuple[str, int]]]:
    """What registrars were told, a message each."""
    messages = [effect.message for effect in shard.take(SendLink)]
    pushes = [message.pushes for message in messages if isinstance(message, Pushes)]
    return [[(push.object, push.version) for push in some] for some in pushes]


def of_objects(shard: Asked) -> list[type]:
    kinds = [type(effect.message) for effect in shard.take(SendLink)]
    return [kind for kind in kinds if kind in (Pushes, Versions)]


def test_the_newest_of_a_window_is_told_when_it_closes() -> None:
    shard = asked()
    for version in (1, 2, 3):
        publish(shard, Update(X, version))
    publish(shard, Update(Y, 7))
    assert said(shard) == []

    shard.now = NOW + 0.05
    assert shard.host.next_deadline() == shard.now
    shard.step(Tick())
    assert said(shard) == [[(X, 3), (Y, 7)]]
    assert shard.host.batching.replaced == 2


def test_who_has_no_window_does_not_wait() -> None:
    shard = asked()
    publish(shard, Update(X, 1), Update(OTHER, 1))
    assert said(shard) == [[(OTHER, 1)]]


def test_what_is_held_goes_ahead_of_a_reset() -> None:
    shard = asked()
    publish(shard, Update(X, 8))
    publish(shard, Update(X, 0, reset=True))
    assert of_objects(shard) == [Pushes, Versions]


def test_what_is_held_goes_ahead_of_a_new_epoch() -> None:
    shard = asked()
    publish(shard, Update(X, 8))
    publish(shard, epoch_record(2, Loss(LINEAGE, 1, "damage"), 0))
    shard.step(Tick())
    assert of_objects(shard) == [Pushes, Versions]


def test_a_backlog_halves_the_pace_and_its_end_raises_it_step_by_step() -> None:
    pace = Pace()
    assert pace.next_window_s(backlog=False) == 0
    behind = [pace.next_window_s(backlog=True) for _ in range(10)]
    assert behind[:3] == [0.002, 0.004, 0.008]
    assert behind[-1] == 0.1
    back = [pace.next_window_s(backlog=False) for _ in range(20)]
    assert back == sorted(back, reverse=True)
    assert back[-1] == 0


def test_auto_waits_only_while_there_is_a_backlog() -> None:
    batching = Batching(lambda app: AUTO)
    push = Push(X, 1, 9)
    assert batching.hold(LINK, [push], NOW, backlog=False) == [push]
    assert batching.hold(LINK, [push], NOW, backlog=True) == []
    assert list(batching.closed(NOW + 0.001)) == []
    assert list(batching.closed(NOW + 0.002)) == [(LINK, [push])]


def test_what_is_held_of_a_link_goes_with_it() -> None:
    batching = Batching(lambda app: 50)
    batching.hold(LINK, [Push(X, 1, 9)], NOW, backlog=False)
    assert batching.take(LINK) == [Push(X, 1, 9)]
    assert list(batching.closed(NOW + 1)) == []


def test_a_registrar_holds_what_comes_and_drops_it_with_the_link() -> None:
    registrar = AskedRegistrar()
    registrar.host.batching.batch_ms = lambda app: 50
    registrar.step(FromLink(0, Welcome(0)))
    registrar.watch("conn")
    registrar.known(1)
    assert registrar.push(2) == []
    assert registrar.host.batching.windows
    registrar.step(LinkDown(0))
    assert not registrar.host.batching.take(0)
