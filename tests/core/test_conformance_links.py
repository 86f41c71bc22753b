"""Conformance 76 and 78: links that break, and writes that come late."""

import pytest
from tests.core.client_side import ClientSide
from tests.core.pair import Pair, knowing

from roskva.core.effects import (
    RegistrationStatus,
)
from roskva.model import shard_of

X = "app/x"


def pair_with_row_and_object_apart() -> tuple[Pair, ClientSide, str]:
    """Two shards: one keeps the client's row, the other the object, which somebody else watches."""
    pair = Pair(shards=2)
    client = pair.client()
    pair.run(0.2)
    grant = client.heard[0].grant
    assert grant is not None
    row = shard_of(grant.client, 2)
    key = next(f"app/{i}" for i in range(99) if shard_of(f"app/{i}", 2) != row)
    other = pair.client()
    other.register(key)
    pair.run(1)
    return pair, client, key


@pytest.mark.parametrize("how", ["down", "half-open"])
def test_c76_without_its_shard_a_registration_is_not_confirmed_from_the_cache(how: str) -> None:
    """Half-open is what nobody can see at first: it counts after the link's timeout."""
    pair, client, key = pair_with_row_and_object_apart()
    shard = shard_of(key, 2)
    if how == "down":
        pair.registrar.cut(shard)
    else:
        pair.registrar.links[shard].hold()
        pair.registrar.cut_from.add(shard)
        pair.run(3)
    pair.publish(key, 9)
    client.register(key)
    pair.run(7)
    assert RegistrationStatus(key, True) not in client.events
    assert client.told(key) == []
    pair.registrar.join(shard)
    pair.run(30)
    assert RegistrationStatus(key, True) in client.events
    assert client.told(key) == [9]


def test_c76_after_the_link_is_back_every_online_session_is_compared_again() -> None:
    pair, client = knowing(X, 5)
    other = pair.client()
    other.register(X)
    pair.run(5)
    pair.registrar.cut()
    pair.publish(X, 6)
    pair.run(10)
    assert client.told(X) == []
    pair.registrar.join()
    pair.run(5)
    assert client.told(X) == [6]
    assert other.told(X)[-1] == 6


def test_c76_a_silent_link_is_given_up_and_opened_again() -> None:
    pair, client = knowing(X, 5)
    pair.registrar.links[0].hold()
    pair.publish(X, 6)
    pair.run(2.5)
    assert client.told(X) == []
    pair.run(4)
    assert client.told(X) == [6]


def test_a_lease_counts_from_when_it_was_asked_for_and_not_from_when_the_answer_came() -> None:
    pair, _ = knowing(X, 5)
    side, interests = pair.registrar, pair.registrar.core.interests
    link, watched = side.links[0], interests.watched[X]
    pinged_at = interests.links[0].leased_at
    pair.run(pinged_at + 1 - pair.now)
    side.cut_from.add(0)  # there will be no other link
    link.down.held = True
    pair.run(1.9)  # in which one more ping is sent and answered
    link.down.held, link.up.held = False, True
    pair.settle()
    assert interests.links[0].leased_at == pytest.approx(pinged_at + 2)
    pair.run(pinged_at + 4.9 - pair.now)
    assert interests.is_current(watched)
    pair.run(0.2)
    assert not interests.is_current(watched)


def test_pushes_make_no_lease_longer() -> None:
    """The shard does not hear the registrar any more, and so it may not know that it lost it."""
    pair, client = knowing(X, 5)
    link = pair.registrar.links[0]
    link.up.held = True
    for version in range(6, 10):
        pair.run(0.7)
        pair.publish(X, version)
    pair.run(0.9)
    assert pair.registrar.links[0] is not link
    assert client.told(X)[-1] == 9


def test_c101_an_owner_below_one_that_was_heard_of_is_not_believed() -> None:
    pair, _ = knowing(X, 5)
    side, host, interests = pair.registrar, pair.registrar.host, pair.registrar.core.interests
    pair.shard.crash()
    pair.run(1)
    assert (host.welcomed, interests.links[0].owner) == ({0}, 2)

    def dial_once() -> None:
        side.cut()
        pair.settle()
        side.join()
        side.dial()
        side.cut_from.add(0)
        pair.settle()

    # A machine wakes that had the shard before, and does not know that it lost it.
    pair.shard.matcher.owner = 1
    dial_once()
    assert (host.welcomed, side.links) == (set(), {})
    assert not interests.is_current(interests.watched[X])
    assert side.core.counters["old_owners"] == 1
    for later in (2, 3):
        pair.shard.matcher.owner = later
        dial_once()
        assert host.welcomed == {0}
        assert interests.is_current(interests.watched[X])


def test_c78_a_delayed_write_of_a_fenced_session_changes_nothing() -> None:
    pair = Pair(registrars=2)
    client = pair.client()
    client.register(X)
    pair.run(1)
    old_link = pair.registrars[0].links[0]
    old_link.hold()
    client.register("app/late")
    pair.run(0.1)
    client.registrar = pair.registrars[1]
    client.lose_connection()
    client.unregister("app/late")
    pair.run(1)
    [before] = pair.shard.cells.values()
    assert set(before) == {X}
    old_link.hold(False)
    pair.settle()
    assert pair.shard.rows.counters["fenced"] >= 1
    [after] = pair.shard.cells.values()
    assert set(after) == {X}
