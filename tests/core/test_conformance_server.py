"""Conformance 47–49, 55 and 56: how the two sides agree on what is registered and acked."""

from tests.core.client_side import ClientSide
from tests.core.lone import SESSION, LoneClient
from tests.core.pair import Pair, registered
from tests.digests import sum_of

from roskva.core.effects import (
    Notify,
    RegistrationFailure,
    RegistrationStatus,
)
from roskva.wire import codec
from roskva.wire.messages import (
    PROTOCOL,
    Ack,
    ClientMessage,
    Digest,
    Notification,
    OperationStatus,
    ServerDigest,
)


def test_c47_a_matching_digest_confirms_what_is_pending() -> None:
    client = LoneClient()
    client.register("app/a", "app/b")
    client.greet()
    client.run(0.1)
    client.clear()
    both = sum_of(["app/a", "app/b"])
    client.hear(session=SESSION, digest=ServerDigest(2, both, number=0))
    assert not client.events, "the server had not seen our message yet"
    client.hear(session=SESSION, digest=ServerDigest(2, both, number=1))
    assert client.events == [RegistrationStatus("app/a", True), RegistrationStatus("app/b", True)]
    client.run(60)
    assert not client.operations()


def test_c48_a_status_that_contradicts_the_wish_is_a_transient_failure() -> None:
    client = LoneClient()
    client.register("app/x")
    client.greet()
    client.run(0.1)
    client.clear()
    client.hear(session=SESSION, statuses=[OperationStatus("app/x", False, 1)])
    [event] = client.of_kind(RegistrationFailure)
    assert (event.object, event.transient) == ("app/x", True)


def test_c49_a_failed_operation_removes_the_object_from_the_wanted_set() -> None:
    client = LoneClient()
    client.register("app/kept", "app/failed")
    client.greet()
    client.run(0.1)
    status = OperationStatus("app/failed", False, 1, code="limit_exceeded")
    client.hear(session=SESSION, statuses=[OperationStatus("app/kept", True, 1), status])
    client.clear()
    client.run(2000)
    client.hear(notifications=[Notification("app/failed", 5, 9)])
    assert client.messages()[0].digest == Digest(1, sum_of(["app/kept"]))
    assert not client.of_kind(Notify)


def test_c49_a_refusal_that_comes_twice_does_not_undo_a_later_registration() -> None:
    client = LoneClient()
    client.register("app/x")
    client.greet()
    client.run(0.1)
    refusal = OperationStatus("app/x", False, 1, code="unauthorised")
    client.hear(session=SESSION, statuses=[refusal])
    client.register("app/x")
    client.run(0.1)
    client.hear(session=SESSION, statuses=[OperationStatus("app/x", True, 2)])
    client.clear()
    client.hear(session=SESSION, statuses=[refusal])
    assert not client.events


def inject(pair: Pair, client: ClientSide, *acks: Ack) -> None:
    """As if the client had sent these acks."""
    assert client.conn is not None
    session = client.messages()[-1].session
    number = client.messages()[-1].number
    message = ClientMessage(PROTOCOL, session, number, acks=list(acks))
    client.conn.up.frames.append(codec.encode(message))
    pair.settle()


def test_c55_forged_and_stale_acks_are_counted_and_ignored() -> None:
    pair, client = registered("app/x")
    pair.publish("app/x", 5)
    pair.run(1)
    [event] = [event for event in client.events if isinstance(event, Notify)]
    inject(pair, client, Ack("app/x", 99, event.epoch))
    assert pair.registrar.core.counters["forged_acks"] == 1
    inject(pair, client, Ack("app/elsewhere", 1, event.epoch))
    assert pair.registrar.core.counters["stale_acks"] == 1
    inject(pair, client, Ack("app/x", 3, event.epoch))
    pair.publish("app/x", 6)
    pair.run(60)
    assert client.told("app/x") == [5, 6]


def test_c56_a_version_not_newer_than_acked_is_not_delivered_again_but_unknown_is() -> None:
    pair, client = registered("app/x")
    pair.publish("app/x", 5)
    pair.run(1)
    [event] = [event for event in client.events if isinstance(event, Notify)]
    assert client.conn is not None
    for version in (5, 4, None, None):
        message = Notification("app/x", version, event.epoch)
        frame = codec.encode(type(client.heard[-1])(PROTOCOL, notifications=[message]))
        client.conn.down.frames.append(frame)
    pair.run(1)
    assert client.told("app/x") == [5, None, None]
