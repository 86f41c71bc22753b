"""Conformance 29–33, 38, 39, 50, 52 and 53: sessions end, identities last, state gets lost."""

from tests.core.lone import CLIENT_ID, IDENTITY, SESSION, LoneClient
from tests.core.pair import Pair, registered
from tests.digests import sum_of

from roskva.core.client import ClientConfig
from roskva.core.effects import (
    Disconnected,
    Notify,
    Register,
    RegistrationStatus,
    ReissueRegistrations,
)
from roskva.core.identity import unpack_identity
from roskva.wire import codec
from roskva.wire.messages import (
    Grant,
    Notification,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerError,
)


def test_c29_unfinished_operations_are_resent_under_the_new_session() -> None:
    client = LoneClient()
    client.register("app/x")
    client.greet()
    client.run(0.1)
    assert client.operations() == [Operation("app/x")]
    client.step(Disconnected())
    client.clear()
    client.run(0.1)
    client.grant(session=SESSION + 1)
    client.run(0.1)
    [message] = client.messages()
    assert message.session == SESSION + 1
    assert message.operations == [Operation("app/x")]


def test_c30_an_old_sessions_message_is_ignored_by_the_client() -> None:
    client = LoneClient()
    client.register("app/x")
    client.greet()
    client.step(Disconnected())
    client.run(0.1)
    client.grant(session=SESSION + 1)
    client.run(0.1)
    client.clear()
    client.hear(session=SESSION, statuses=[OperationStatus("app/x", True, 9)])
    assert not client.events


def test_c30_an_old_sessions_message_is_ignored_by_the_registrar() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    old = codec.encode(client.messages()[0])
    client.lose_connection()
    pair.run(1)
    client.unregister("app/x")
    pair.run(1)
    assert client.conn is not None
    client.conn.up.frames.append(old)
    pair.run(1)
    assert pair.registrar.core.counters["stale_messages"] == 1
    assert pair.shard.cells[client.heard[0].grant.client] == {}  # type: ignore[union-attr]


def vanish_under_the_session(pair: Pair) -> None:
    """The shard starts again without its client rows, and no session is told."""
    pair.shard.crash(losing="clients")
    pair.run(1)


def test_c31_a_client_forgotten_while_offline_keeps_its_id_and_is_healed_by_the_digest() -> None:
    """On purpose: no new identity is needed where the digests tell what is missing. What the
    client has acked itself in this epoch is not told again."""
    pair = Pair()
    client = pair.client()
    client.register("app/same", "app/changed")
    pair.publish("app/same", 5)
    pair.publish("app/changed", 5)
    pair.run(5)
    client.reachable = False
    client.lose_connection()
    pair.run(100)
    identity = client.identity
    assert identity is not None
    [row] = pair.shard.heads
    pair.shard.forget(row)
    pair.publish("app/changed", 6)
    pair.run(1)
    assert not pair.shard.heads
    client.clear()
    client.reachable = True
    pair.run(300)
    assert list(pair.shard.heads) == [row]
    assert set(pair.shard.cells[row]) == {"app/same", "app/changed"}
    assert client.told("app/changed") == [6]
    assert client.told("app/same") == []
    assert client.events[0] != ReissueRegistrations()


def test_c31_a_client_whose_row_vanished_under_its_session_starts_anew_and_is_told_all() -> None:
    """On purpose: what is newer than acked comes as a version, everything else as unknown."""
    pair = Pair()
    client = pair.client()
    client.register("app/same", "app/changed", "app/never")
    pair.publish("app/same", 5)
    pair.publish("app/changed", 5)
    pair.run(5)
    [before] = pair.shard.heads
    vanish_under_the_session(pair)
    client.clear()
    pair.publish("app/changed", 6)
    pair.run(30)
    [after] = pair.shard.heads
    assert after != before
    assert set(pair.shard.cells[after]) == {"app/same", "app/changed", "app/never"}
    assert client.told("app/changed")[0] == 6
    assert client.told("app/same") == [None]
    assert client.told("app/never") == [None]


def test_c32_a_client_that_lost_session_and_identity_behaves_like_a_new_one() -> None:
    client = LoneClient(identity=IDENTITY)
    client.greet()
    client.register("app/x")
    client.run(0.1)
    client.hear(session=SESSION, statuses=[OperationStatus("app/x", True, 1)])
    client.clear()
    client.step(Disconnected())
    client.run(0.1)
    assert client.hellos()[-1].token is not None
    client.hear(error=ServerError("token_rejected"))
    client.run(0.1)
    assert client.saved() == [None]
    hello = client.hellos()[-1]
    assert (hello.app, hello.token) == ("app", None)
    grant = Grant(b"d" * 16, b"token of d", hello.nonce)
    client.hear(session=9, grant=grant, digest=ServerDigest(0, 0, 0))
    client.run(0.1)
    assert client.operations() == [Operation("app/x")]
    client.hear(notifications=[Notification("app/x", 5, 9)])
    assert client.events[-1] == Notify("app/x", 5, 9)


def test_c33_unknown_client_for_another_session_is_ignored() -> None:
    client = LoneClient()
    client.greet()
    client.clear()
    client.hear(session=SESSION + 1, error=ServerError("unknown_client"))
    assert not client.effects
    client.hear(session=SESSION, error=ServerError("unknown_client"))
    assert client.saved() == [None]


def test_c38_identity_survives_a_restart() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(5)
    [row] = pair.shard.heads
    client.restart()
    client.register("app/x")
    pair.run(5)
    pair.publish("app/x", 5)
    pair.run(1)
    assert list(pair.shard.heads) == [row]
    assert client.told("app/x")[-1] == 5


def test_c39_damaged_state_means_a_new_client() -> None:
    damaged = bytearray(IDENTITY)
    damaged[-1] ^= 1
    for stored in (bytes(damaged), b"", b"short", IDENTITY[:-1]):
        client = LoneClient(identity=stored)
        client.run(1)
        [hello] = client.hellos()
        assert (hello.app, hello.token) == ("app", None)


def test_c39_the_state_of_another_app_means_a_new_client() -> None:
    client = LoneClient(ClientConfig("elsewhere"), identity=IDENTITY)
    client.run(1)
    assert client.hellos()[0].token is None


def test_c50_a_restarted_client_whose_digest_matches_never_resends() -> None:
    pair, client = registered("app/a", "app/b")
    client.restart()
    client.register("app/a", "app/b")
    pair.run(3000)
    assert not client.operations()
    assert not [message for message in client.messages() if message.syncs]
    assert RegistrationStatus("app/a", True) in client.events
    pair.publish("app/a", 1)
    pair.run(1)
    assert client.told("app/a") == [1]


def test_c50_a_restarted_client_that_wants_more_sends_it_once_it_has_seen_the_digest() -> None:
    pair, client = registered("app/a")
    client.restart()
    client.register("app/a", "app/b")
    pair.run(60)
    assert {operation.object for operation in client.operations()} >= {"app/b"}
    [cells] = pair.shard.cells.values()
    assert set(cells) == {"app/a", "app/b"}


def test_c50_a_restarted_client_sends_no_registrations_before_it_has_seen_the_digest() -> None:
    client = LoneClient(identity=IDENTITY)
    client.register("app/x")
    client.greet()
    client.run(3)
    assert not client.operations()
    client.hear(session=SESSION, digest=ServerDigest(0, 0, 0))
    client.run(3)
    assert client.operations() == [Operation("app/x")]


def test_c50_a_restarted_application_has_a_while_to_restate_its_registrations() -> None:
    pair, client = registered("app/a", "app/b")
    [row] = pair.shard.heads
    client.restart()
    pair.run(2)
    assert set(pair.shard.cells[row]) == {"app/a", "app/b"}
    client.register("app/a", "app/b")
    pair.run(60)
    assert not client.operations()
    assert client.told("app/a") == []


def test_c50_a_register_with_a_version_is_always_sent() -> None:
    client = LoneClient(identity=IDENTITY)
    client.step(Register("app/x", 3))
    client.run(0.1)
    client.grant(digest=ServerDigest(1, sum_of(["app/x"]), 0))
    client.run(1)
    assert client.operations() == [Operation("app/x", version=3)]


def test_c50_what_a_restarted_client_was_told_before_it_registered_again_is_not_lost() -> None:
    pair, client = registered("app/a")
    client.reachable = False
    client.restart()
    pair.publish("app/a", 7)
    client.reachable = True
    pair.run(3)
    assert client.told("app/a") == []
    client.register("app/a")
    pair.run(1)
    assert client.told("app/a") == [7]


def test_c52_a_destroyed_token_leads_to_a_new_handshake_with_a_fresh_nonce() -> None:
    client = LoneClient()
    client.greet()
    old = client.hellos()[0]
    client.clear()
    client.hear(session=SESSION, error=ServerError("token_rejected"))
    client.run(1)
    [new] = client.hellos()
    assert client.saved() == [None]
    assert new.token is None
    assert new.nonce != old.nonce


def test_c53_a_token_renewed_within_the_session_is_accepted_and_kept() -> None:
    client = LoneClient()
    client.greet()
    client.clear()
    client.hear(session=SESSION, grant=Grant(CLIENT_ID, b"the newer token"))
    [saved] = client.saved()
    assert saved is not None
    identity = unpack_identity(saved, "app")
    assert identity is not None
    assert identity.token == b"the newer token"
    client.register("app/x")
    client.run(1)
    assert client.messages()[-1].session == SESSION
