"""Conformance 14–28 and 40: the client's side of a session."""

from itertools import pairwise

from tests.core.lone import SESSION, LoneClient
from tests.core.pair import Pair
from tests.digests import sum_of

from roskva.core.client import ClientConfig
from roskva.core.effects import (
    Acknowledge,
    Notify,
    NotifyUnknown,
    RegistrationFailure,
    RegistrationStatus,
    ReissueRegistrations,
    Trouble,
    Unregister,
)
from roskva.model import NO_EPOCH
from roskva.wire import codec
from roskva.wire.messages import (
    Ack,
    Grant,
    Notification,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerError,
    SessionConfig,
    SyncRequest,
)


def test_c14_a_start_is_state_hello_grant_and_an_invitation_to_register() -> None:
    pair = Pair()
    client = pair.client()
    assert not client.sent
    pair.run(0.2)
    [hello] = client.hellos()
    assert client.heard[0].grant is not None
    assert client.heard[0].grant.nonce == hello.nonce
    assert client.events == [ReissueRegistrations()]
    assert client.identity is not None
    again = pair.client(client.identity)
    pair.run(0.2)
    assert again.hellos()[0].token == client.heard[0].grant.token


def test_c15_nonces_are_unique() -> None:
    nonces: list[bytes] = []
    for seed in range(20):
        client = LoneClient(seed=seed)
        client.run(600)
        nonces += [hello.nonce for hello in client.hellos()]
    assert len(nonces) > 200
    assert len(set(nonces)) == len(nonces)


def test_c16_three_registers_are_one_message_and_three_statuses() -> None:
    pair = Pair()
    client = pair.client()
    pair.run(0.2)
    client.clear()
    client.register("app/a", "app/b", "app/c")
    pair.run(1)
    assert [message.operations for message in client.messages() if message.operations] == [
        [Operation("app/a"), Operation("app/b"), Operation("app/c")]
    ]
    statuses = [event for event in client.events if isinstance(event, RegistrationStatus)]
    assert statuses == [RegistrationStatus(f"app/{name}", True) for name in "abc"]


def test_c17_acks_are_batched_and_carry_no_payload() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/a", "app/b")
    pair.run(1)
    client.clear()
    pair.publish("app/a", 1, payload=b"what it says")
    pair.publish("app/b", 2, payload=b"what it says")
    pair.run(1)
    told = [event for event in client.events if isinstance(event, Notify)]
    assert [(event.version, event.payload) for event in told] == [
        (1, b"what it says"),
        (2, b"what it says"),
    ]
    [message] = client.messages()
    assert [(ack.object, ack.version) for ack in message.acks] == [("app/a", 1), ("app/b", 2)]
    assert b"what it says" not in codec.encode(message)


def test_c18_a_sync_request_is_answered_with_the_registrations() -> None:
    client = LoneClient()
    client.greet()
    client.register("app/a", "app/b")
    client.run(1)
    client.hear(
        session=SESSION,
        statuses=[OperationStatus("app/a", True, 1), OperationStatus("app/b", True, 1)],
    )
    client.clear()
    client.hear(session=SESSION, sync_request=SyncRequest())
    client.run(1)
    [message] = client.messages()
    [sync] = message.syncs
    assert (sync.prefix, sorted(sync.objects)) == (b"", ["app/a", "app/b"])


def test_c18_a_sync_by_bucket_is_answered_with_the_buckets_that_differ() -> None:
    client = LoneClient()
    client.greet()
    keys = [f"app/{i}" for i in range(1000)]
    client.register(*keys)
    client.run(2)
    client.clear()
    sums = [0] * 256
    for key in keys:
        h = sum_of([key])
        sums[h >> 56] = (sums[h >> 56] + h) % 2**64
    missing = keys[500]
    sums[sum_of([missing]) >> 56] -= 1
    client.hear(session=SESSION, sync_request=SyncRequest(sums))
    client.run(1)
    [sync] = client.messages()[0].syncs
    assert missing in sync.objects
    assert set(sync.objects) == {k for k in keys if sum_of([k]) >> 56 == sync.prefix[0]}


def test_c19_an_error_becomes_an_event_and_the_session_goes_on() -> None:
    client = LoneClient()
    client.greet()
    client.hear(session=SESSION, error=ServerError("internal", "a fault"))
    assert client.events[-1] == Trouble("internal", "a fault")
    client.register("app/x")
    client.run(1)
    assert client.messages()[-1].session == SESSION


def test_c20_an_authorisation_failure_fails_every_registration_for_good() -> None:
    client = LoneClient()
    client.register("app/a", "app/b")
    client.greet()
    client.run(1)
    client.clear()
    client.hear(session=SESSION, error=ServerError("unauthorised", "who are you"))
    assert client.events == [
        Trouble("unauthorised", "who are you"),
        RegistrationFailure("app/a", False, "unauthorised"),
        RegistrationFailure("app/b", False, "unauthorised"),
    ]
    client.run(100)
    assert not client.operations()


def test_a_version_from_before_a_reset_that_comes_late_is_a_reason_to_look() -> None:
    """What was published by mistake, and overtaken by the reset on a channel that reorders."""
    before, after = (5 << 20) | 1, (5 << 20) | 2
    client = LoneClient()
    client.register("app/a")
    client.settle()
    client.hear(notifications=[Notification("app/a", 1, before)])
    client.step(Acknowledge("app/a", 1, before))
    client.hear(notifications=[Notification("app/a", None, after)])
    client.step(Acknowledge("app/a", None, after))
    client.hear(notifications=[Notification("app/a", 2, after)])
    client.step(Acknowledge("app/a", 2, after))
    client.clear()
    client.hear(notifications=[Notification("app/a", 10**15, before)])
    assert client.events == [NotifyUnknown("app/a", before)]
    client.hear(notifications=[Notification("app/a", 3, after)])
    assert client.events[1:] == [Notify("app/a", 3, after)]


def test_however_often_it_comes_and_whatever_is_acked_between() -> None:
    """An ack of what was late is no reason to believe the next copy."""
    before, after = (5 << 20) | 1, (5 << 20) | 2
    client = LoneClient()
    client.register("app/a")
    client.settle()
    for version, epoch in ((1, before), (None, after), (2, after)):
        client.hear(notifications=[Notification("app/a", version, epoch)])
        client.step(Acknowledge("app/a", version, epoch))
    client.clear()
    for _ in range(3):
        client.hear(notifications=[Notification("app/a", 10**15, before)])
        client.step(Acknowledge("app/a", None, before))
    assert client.events == 3 * [NotifyUnknown("app/a", before)]
    client.hear(notifications=[Notification("app/a", 2, after)])
    assert len(client.events) == 3  # the latest is acked, and stays so


def test_a_late_version_from_an_epoch_never_heard_of_makes_no_session_repeat_itself() -> None:
    """It looks like a reset, so what is current looks late from then on: the client is told to look
    each time, and the server hears that it has."""
    before, after = (5 << 20) | 1, (5 << 20) | 2
    client = LoneClient()
    client.register("app/a")
    client.settle()
    for version, epoch in ((2, after), (1, before)):
        client.hear(notifications=[Notification("app/a", version, epoch)])
        client.step(Acknowledge("app/a", version if epoch == after else None, epoch))
    client.clear()
    client.hear(notifications=[Notification("app/a", 3, after)])
    assert client.events == [NotifyUnknown("app/a", after)]
    client.step(Acknowledge("app/a", None, after))
    client.run(1)
    assert [ack for message in client.messages() for ack in message.acks][-1:] == [
        Ack("app/a", 3, after)
    ]


def keep_alive(client: LoneClient, seconds: float) -> None:
    """The server answers, but never about the registration."""
    for _ in range(int(seconds)):
        client.run(1)
        client.hear(session=SESSION)


def test_c21_an_unanswered_register_is_retried_after_a_timeout_with_backoff() -> None:
    client = LoneClient(ClientConfig("app", answer_timeout=4, backoff_first=2, backoff_cap=16))
    client.register("app/x")
    client.greet()
    keep_alive(client, 300)
    times = client.operation_times()
    waits = [later - earlier for earlier, later in pairwise(times)]
    assert len(client.hellos()) == 1
    assert all(0.8 * 4 <= wait <= 1.2 * (4 + 16) + 0.1 for wait in waits)
    assert waits[0] <= 1.2 * 4 + 0.1
    assert max(waits[4:]) > 8


def test_c21_a_register_is_retried_until_it_is_answered_and_no_longer() -> None:
    pair = Pair()
    client = pair.client()
    pair.run(1)
    assert client.conn is not None
    client.conn.up.lossy = lambda: True
    client.register("app/x")
    pair.run(9)
    client.conn.up.lossy = lambda: False
    pair.run(60)
    assert RegistrationStatus("app/x", True) in client.events
    client.clear()
    pair.run(600)
    assert not client.operations()


def test_c22_a_message_without_a_digest_changes_nothing_of_what_we_know() -> None:
    client = LoneClient()
    client.register("app/x")
    client.greet()
    client.run(0.1)
    client.clear()
    client.hear(session=SESSION)
    assert not client.effects
    client.hear(session=SESSION, digest=ServerDigest(1, sum_of(["app/x"]), 1))
    assert client.events == [RegistrationStatus("app/x", True)]


def test_c23_heartbeats_go_at_the_interval_set_by_the_server() -> None:
    pair = Pair(heartbeat=100.0)
    client = pair.client()
    pair.run(1)
    client.clear()
    pair.run(1000)
    assert 1000 / 120 - 1 <= len(client.messages()) <= 1000 / 80 + 1
    assert all(not message.operations for message in client.messages())
    assert all(message.digest is not None for message in client.messages())


def test_c24_a_token_for_another_client_is_ignored() -> None:
    client = LoneClient()
    client.greet()
    client.clear()
    client.hear(session=SESSION, grant=Grant(b"d" * 16, b"not for us"))
    assert not client.effects


def test_c25_the_server_can_change_the_heartbeat_interval() -> None:
    client = LoneClient()
    client.greet()
    client.run(1)
    client.clear()
    client.hear(session=SESSION, config=SessionConfig(heartbeat_ms=2000))
    for _ in range(20):
        client.run(1)
        client.hear(session=SESSION)
    assert 20 / 2.4 - 2 <= len(client.messages()) <= 20 / 1.6


def test_c26_after_unregistering_nothing_more_is_told() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x", "app/y")
    pair.run(1)
    client.unregister("app/x")
    pair.run(1)
    assert client.events[-1] == RegistrationStatus("app/x", False)
    [cells] = pair.shard.cells.values()
    assert set(cells) == {"app/y"}
    client.clear()
    pair.publish("app/x", 1)
    pair.publish("app/y", 1)
    pair.run(100)
    assert client.told("app/x") == []
    assert client.told("app/y") == [1]
    assert not client.operations()


def test_who_leaves_and_is_back_before_that_is_confirmed_looks_for_itself() -> None:
    """Somebody else with its identity may have been told and acked, and the leave may be lost."""
    client = LoneClient()
    client.register("app/a")
    client.settle()
    client.step(Unregister("app/a"))
    client.register("app/a")
    assert client.events == [NotifyUnknown("app/a", NO_EPOCH)]


def test_c27_a_refused_registration_is_one_event_and_no_resend() -> None:
    pair = Pair()
    pair.registrar.denied = frozenset({"app/secret"})
    client = pair.client()
    client.register("app/secret", "other/x", "app/x")
    pair.run(1)
    pair.run(3000)
    failures = [event for event in client.events if isinstance(event, RegistrationFailure)]
    assert failures == [
        RegistrationFailure("app/secret", False, "unauthorised"),
        RegistrationFailure("other/x", False, "unauthorised"),
    ]
    assert len(client.operations()) == 3
    [cells] = pair.shard.cells.values()
    assert set(cells) == {"app/x"}


def test_c28_an_ack_goes_out_only_after_the_application_acked() -> None:
    pair = Pair()
    client = pair.client()
    client.auto_ack = False
    client.register("app/x")
    pair.run(1)
    assert isinstance(client.events[-1], NotifyUnknown)
    pair.run(10)
    assert not [message for message in client.messages() if message.acks]
    client.ack(client.events[-1])
    pair.run(1)
    assert client.messages()[-1].acks == [Ack("app/x", None, client.events[-1].epoch)]


def test_c40_registering_twice_without_a_version_sends_nothing_the_second_time() -> None:
    client = LoneClient()
    client.greet()
    client.register("app/x", "app/x")
    client.run(0.1)
    client.register("app/x")
    client.hear(session=SESSION, statuses=[OperationStatus("app/x", True, 1)])
    client.register("app/x")
    client.run(5)
    assert client.operations() == [Operation("app/x")]
    assert client.events[-1] == RegistrationStatus("app/x", True)
