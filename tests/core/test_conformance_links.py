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
