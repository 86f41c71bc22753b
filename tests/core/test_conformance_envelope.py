"""Conformance 1–13 and 58, 59: what a message is, and which are let through."""

import contextlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.lone import CLIENT_ID, IDENTITY, SESSION, LoneClient
from tests.core.pair import Pair
from tests.digests import sum_of

from roskva.core.backoff import Rate
from roskva.core.client import ClientConfig
from roskva.core.digest import DigestSum, hash_of
from roskva.core.effects import (
    Acknowledge,
    Deliver,
    Notify,
    Register,
    RegistrationFailure,
    RegistrationStatus,
    SaveIdentity,
    Trouble,
    Unregister,
)
from roskva.errors import BadConfig, BadMessage, BadName, TooLarge, WrongProtocol
from roskva.model import MAX_VERSION, parse_key
from roskva.wire import codec
from roskva.wire.messages import (
    PROTOCOL,
    Ack,
    ClientMessage,
    Grant,
    Hello,
    Notification,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerError,
    ServerMessage,
    SessionConfig,
    Sync,
    SyncRequest,
)


def test_c01_a_new_client_opens_with_one_hello_after_the_batching_delay() -> None:
    client = LoneClient()
    client.run(0.049)
    assert not client.effects
    client.run(5)
    [hello] = client.hellos()
    assert len(client.sent) == 1
    assert len(hello.nonce) == 8
    assert hello.app == "app"
    assert hello.token is None


def test_c02_a_grant_with_another_nonce_is_ignored() -> None:
    client = LoneClient()
    client.run(0.1)
    client.hear(session=SESSION, grant=Grant(CLIENT_ID, b"token", b"notours!"))
    client.register("app/x")
    client.run(5)
    assert not client.saved()
    assert not client.messages()


def test_c03_what_waits_together_leaves_together_and_the_last_operation_wins() -> None:
    client = LoneClient()
    client.register("app/told")
    client.greet()
    client.run(1)
    client.hear(notifications=[Notification("app/told", 3, 9)])
    client.clear()
    for event in (
        Register("app/a"),
        Register("app/b"),
        Unregister("app/a"),
        Register("app/c", 4),
        Register("app/c", 5),
        Acknowledge("app/told", 3, 9),
    ):
        client.step(event)
    client.hear(session=SESSION, sync_request=SyncRequest())
    client.run(1)
    [message] = client.messages()
    assert message.operations == [
        Operation("app/b"),
        Operation("app/a", register=False),
        Operation("app/c", version=5),
    ]
    assert message.acks == [Ack("app/told", 3, 9)]
    [sync] = message.syncs
    assert set(sync.objects) == {"app/told", "app/b", "app/c"}
    assert message.digest is not None
    assert message.digest.sum == sum_of(sync.objects)


@pytest.mark.parametrize("register", [True, False])
def test_c03_an_operation_said_after_a_sync_was_asked_for_is_not_undone_by_the_sync(
    register: bool,
) -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/old", *([] if register else ["app/x"]))
    pair.run(1)
    pair.shard.crash(losing="clients")
    client.lose_connection()
    pair.run_until(lambda: any(message.sync_request for message in client.heard))
    (client.register if register else client.unregister)("app/x")
    pair.run(30)
    assert RegistrationStatus("app/x", register) in client.events
    assert not [event for event in client.events if isinstance(event, RegistrationFailure)]
    [cells] = pair.shard.cells.values()
    assert ("app/x" in cells) is register


def test_c04_the_parts_of_a_message_are_dispatched_in_a_fixed_order() -> None:
    client = LoneClient()
    client.greet()
    client.step(Register("app/a"))
    client.step(Register("app/b", 3))
    client.run(0.1)
    wanted = sum_of(["app/a", "app/b"])
    effects = client.hear(
        error=ServerError("overloaded", "later"),
        statuses=[OperationStatus("app/b", True, 1)],
        notifications=[Notification("app/a", 5, 9)],
        digest=ServerDigest(2, wanted, 1),
        sync_request=SyncRequest(),
        grant=Grant(CLIENT_ID, b"newer token"),
        config=SessionConfig(heartbeat_ms=5000),
        session=SESSION,
    )
    assert isinstance(effects[0], SaveIdentity)
    assert effects[1:] == [
        Deliver(RegistrationStatus("app/a", True)),
        Deliver(Notify("app/a", 5, 9)),
        Deliver(RegistrationStatus("app/b", True)),
        Deliver(Trouble("overloaded", "later")),
    ]
    client.run(0.1)
    assert client.messages()[-1].syncs


def test_c04_the_order_of_dispatch_is_the_order_of_the_fields() -> None:
    assert ServerMessage.__struct_fields__[3:] == (
        *("config", "grant", "digest", "notifications", "statuses", "sync_request", "error"),
    )


def frame_of(message: object, **changes: object) -> bytes:
    parts = {**msgspec.to_builtins(message, builtin_types=(bytes,)), **changes}
    present = {name: value for name, value in parts.items() if value is not None}
    return msgspec.msgpack.encode(present)


@pytest.mark.parametrize(
    ("version", "dropped"),
    [
        pytest.param(None, 1, id="c05 no version"),
        pytest.param("2.0", 1, id="c06 another major version"),
        pytest.param("10.0", 1, id="c06 a major version that begins alike"),
        pytest.param("1.9", 0, id="c07 another minor version"),
    ],
)
def test_c05_c06_c07_only_messages_of_our_major_version_are_let_in(
    version: str | None, dropped: int
) -> None:
    pair = Pair()
    client = pair.client()
    pair.run(0.2)
    assert client.conn is not None
    answers = len(client.heard)
    session = client.heard[0].session
    assert session is not None
    client.conn.up.frames.append(frame_of(ClientMessage(PROTOCOL, session, 1), v=version))
    pair.settle()
    assert client.conn.up.dropped == dropped
    assert len(client.heard) == answers + 1 - dropped
    client.conn.down.frames.append(frame_of(ServerMessage(PROTOCOL, session), v=version))
    pair.settle()
    assert client.conn.down.dropped == dropped
    assert client.conn is not None


def test_c06_another_major_version_is_refused_by_name() -> None:
    with pytest.raises(WrongProtocol, match=r"2\.0"):
        codec.decode_from_client(frame_of(Hello("2.0", bytes(8), "app")))


def test_c08_not_before_is_honoured_even_in_a_message_that_is_not_ours() -> None:
    client = LoneClient()
    client.greet()
    client.run(1)
    client.clear()
    client.hear(session=SESSION + 1, not_before_ms=5000, error=ServerError("overloaded"))
    client.register("app/x")
    client.run(4.99)
    assert not client.sent
    assert not client.of_kind(Trouble)
    client.run(1)
    assert client.operations() == [Operation("app/x")]


def test_c08_not_before_holds_back_a_handshake_too() -> None:
    client = LoneClient()
    client.run(0.1)
    nonce = b"notours!"
    client.hear(session=1, not_before_ms=60_000, grant=Grant(CLIENT_ID, b"token", nonce))
    client.clear()
    client.run(59)
    assert not client.sent
    client.run(60)
    assert client.hellos()


def test_c08_not_before_holds_back_the_handshake_after_a_rejected_token() -> None:
    client = LoneClient(identity=IDENTITY)
    client.run(0.1)
    client.clear()
    client.hear(not_before_ms=30_000, error=ServerError("token_rejected"))
    client.run(29)
    assert not client.sent
    client.run(60)
    assert client.hellos()


def test_c09_an_error_message_reaches_the_application() -> None:
    client = LoneClient()
    client.greet()
    client.hear(session=SESSION, error=ServerError("overloaded", "come back later"))
    assert client.of_kind(Trouble) == [Trouble("overloaded", "come back later")]


def test_c10_a_message_for_another_session_is_rejected_by_the_core() -> None:
    client = LoneClient()
    client.register("app/x")
    client.greet()
    client.run(0.1)
    client.clear()
    client.hear(
        session=SESSION + 1,
        notifications=[Notification("app/x", 3, 9)],
        statuses=[OperationStatus("app/x", True, 1)],
    )
    assert not client.events
    assert client.core.counters["ignored"] == 1


def test_c11_nothing_but_hello_is_sent_without_a_token() -> None:
    client = LoneClient()
    client.register("app/x", "app/y")
    client.run(300)
    assert len(client.hellos()) > 1
    assert not client.messages()


def test_c12_a_frame_over_the_limit_is_not_sent() -> None:
    operations = [Operation(f"app/{i:0250}") for i in range(300)]
    with pytest.raises(TooLarge):
        codec.encode(ClientMessage(PROTOCOL, 1, 1, None, operations))


@pytest.mark.parametrize(
    ("key", "version"), [("no slash", None), ("app/", None), ("app/a+b", None), ("app/x", -1)]
)
def test_c12_what_the_server_would_refuse_to_read_is_not_sent(
    key: str, version: int | None
) -> None:
    client = LoneClient()
    client.greet()
    client.step(Register(key, version))
    client.register("app/fine")
    client.run(1)  # every frame passes the server's decoder in here
    assert client.operations() == [Operation("app/fine")]


@given(st.binary(max_size=200))
def test_c13_garbage_is_no_message_and_nothing_worse(garbage: bytes) -> None:
    for decode in (
        codec.decode_from_client,
        codec.decode_from_server,
        codec.decode_to_shard,
        codec.decode_from_shard,
    ):
        with contextlib.suppress(BadMessage):
            decode(garbage)


def test_c13_garbage_is_dropped_and_counted_and_the_connection_survives() -> None:
    pair = Pair()
    client = pair.client()
    client.register("app/x")
    pair.run(1)
    conn = client.conn
    assert conn is not None
    for garbage in (b"\xff" * 30, b"\x00", codec.encode(ServerMessage(PROTOCOL))):
        conn.up.frames.append(garbage)
        conn.down.frames.append(garbage if len(garbage) < 10 else b"\xc1garbage")
    pair.run(1)
    assert conn.up.dropped == 3
    assert conn.down.dropped == 3
    pair.publish("app/x", 1)
    pair.run(1)
    assert client.conn is conn
    assert client.told("app/x") == [None, 1]


def test_c58_the_digest_of_the_empty_set_is_zero_on_both_sides() -> None:
    assert (DigestSum().count, DigestSum().sum) == (0, 0)
    pair = Pair()
    client = pair.client()
    pair.run(1)
    assert client.heard[0].digest == ServerDigest(0, 0, 0)


def test_c58_register_and_unregister_lead_back_to_zero() -> None:
    digest = DigestSum()
    digest.add(hash_of("app/x"))
    digest.remove(hash_of("app/x"))
    assert (digest.count, digest.sum) == (0, 0)


@pytest.mark.parametrize(
    "hello",
    [
        Hello(PROTOCOL, bytes(8)),
        Hello(PROTOCOL, bytes(8), "app", b"token"),
        Hello(PROTOCOL, b"short", "app"),
    ],
    ids=["neither", "both", "nonce too short"],
)
def test_c59_a_hello_names_an_app_or_shows_a_token(hello: Hello) -> None:
    """On purpose: "hello xor token" is about the two ways into a hello, for ours always is one."""
    with pytest.raises(BadMessage):
        codec.decode_from_client(codec.encode(hello))


@pytest.mark.parametrize("version", [-1, MAX_VERSION + 1])
def test_c59_versions_are_0_to_2_to_the_63_minus_1(version: int) -> None:
    for message in (
        ClientMessage(PROTOCOL, 1, 1, None, [Operation("app/x", version=version)]),
        ClientMessage(PROTOCOL, 1, 1, None, [], [Ack("app/x", version, 1)]),
    ):
        with pytest.raises(BadMessage):
            codec.decode_from_client(codec.encode(message))
    with pytest.raises(BadMessage):
        codec.decode_from_server(
            codec.encode(ServerMessage(PROTOCOL, notifications=[Notification("app/x", version, 1)]))
        )


@pytest.mark.parametrize("name", ["", "a" * 256, "ä" * 128, "tab\t", "a+b", "a#b"], ids=repr)
def test_c59_names_are_1_to_255_bytes_of_plain_text(name: str) -> None:
    with pytest.raises(BadName):
        parse_key(f"app/{name}")
    for message in (
        ClientMessage(PROTOCOL, 1, 1, None, [Operation(f"app/{name}")]),
        ClientMessage(PROTOCOL, 1, 1, None, [], [], [Sync(b"", [f"app/{name}"])]),
    ):
        with pytest.raises(BadMessage):
            codec.decode_from_client(codec.encode(message))


def test_c59_a_rate_has_a_window_of_at_least_its_count() -> None:
    assert ClientConfig("app", rate=Rate(1, 1)).rate.count == 1
    for count, window_ms in ((2, 1), (0, 1), (-1, 10), (1, 0)):
        with pytest.raises(BadConfig):
            ClientConfig("app", rate=Rate(count, window_ms))
