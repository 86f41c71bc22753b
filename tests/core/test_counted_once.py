"""Counters of the core count what their text says, and each thing once."""

from tests.core.pair import Pair, registered
from tests.core.registrar_side import KEYS
from tests.core.test_attached import Device, X
from tests.core.test_standing import ALICE, keyed, pair_with

from roskva.core.effects import FromConnection, Lagging, Reloaded
from roskva.wire.messages import PROTOCOL, ClientMessage, Operation, Sync


def counters(pair: Pair) -> dict[str, int]:
    return pair.registrar.core.counters | pair.shard.host.rows.counters


def test_a_session_that_lags_has_begun_to_once() -> None:
    pair, client = registered(X)
    assert client.conn is not None
    for since in (5, None, 3):
        pair.registrar.step(Lagging(client.conn.id, since))
    assert counters(pair)["lagged"] == 1


def test_a_session_that_is_only_there_writes_nothing() -> None:
    pair, _ = registered(X)
    before = counters(pair)["writes"]
    pair.registrar.links[0].break_()  # its shard asks who is there
    pair.run(600)
    assert counters(pair)["writes"] == before


def test_rights_that_were_revoked_are_no_hello_that_was_refused() -> None:
    pair = pair_with(ALICE)
    pair.registrar.step(Reloaded(KEYS, keyed()))
    client = pair.client()
    client.register(X)
    pair.run(1)
    client.reachable = False
    pair.registrar.step(Reloaded(KEYS, keyed(101)))
    pair.settle()
    assert (counters(pair)["revoked"], counters(pair)["rejected_tokens"]) == (1, 0)


def test_who_gives_everything_up_by_itself_repairs_nothing() -> None:
    device = Device(pair := Pair())
    device.say(Operation(X))
    goodbye = ClientMessage(PROTOCOL, device.session, device.number + 1, syncs=[Sync(b"", [])])
    pair.registrar.step(FromConnection(device.id, goodbye))
    pair.settle()
    assert counters(pair)["syncs"] == 0


def test_a_change_that_nobody_is_there_to_hear_is_no_broadcast() -> None:
    pair, client = registered(X)
    assert client.conn is not None
    before = counters(pair)["broadcasts"]
    pair.registrar.step(Lagging(client.conn.id))
    pair.publish(X, 1)
    pair.settle()
    assert counters(pair)["broadcasts"] == before
