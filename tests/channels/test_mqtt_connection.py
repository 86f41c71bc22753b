"""From CONNECT to the end of a connection: who is let in, on what terms, and how it ends."""

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels import mqtt_side as side
from tests.channels.mqtt_side import (
    DISCONNECT,
    PINGREQ,
    SESSION,
    RecordingFront,
    Side,
    X,
)
from tests.loops import in_loop

from roskva.core.effects import Attached, Closed
from roskva.errors import BadInput, Overloaded, Unauthorised
from roskva.model import Principal
from roskva.wire.messages import PROTOCOL, ServerError, ServerMessage, Sync
from roskva.wire.mqtt import fields as p
from roskva.wire.mqtt.codes import V3, V5
from roskva.wire.mqtt.fields import Reader

both_versions = pytest.mark.parametrize("version", [V3, V5])


def row(app: str, name: str, client: str) -> bytes:
    parts = [part.encode() for part in (app, name, client)]
    return hashlib.sha256(b"".join(len(x).to_bytes(4) + x for x in parts)).digest()[:16]


def connack_properties(data: bytes) -> dict[int, int | bytes]:
    """The fixed-size ones we send, and the assigned client id."""
    reader, found = Reader(data[4:]), dict[int, int | bytes]()
    reader.varint()
    while reader.left():
        id = reader.u8()
        match id:
            case p.RECEIVE_MAXIMUM | p.SERVER_KEEP_ALIVE:
                found[id] = reader.u16()
            case p.MAXIMUM_PACKET_SIZE | p.SESSION_EXPIRY:
                found[id] = reader.u32()
            case p.ASSIGNED_CLIENT_ID:
                found[id] = reader.binary()
            case _:
                found[id] = reader.u8()
    return found


# The handshake.


@both_versions
@in_loop
async def test_connack_waits_for_the_session(version: int) -> None:
    one = Side(version)
    one.receive(side.connect(version, client="me", keep_alive=10))
    assert one.taken() == []
    (event,) = one.front.events
    assert event == Attached(one.delivery, row("", "", "me"), "me", resume=False, keep=False)
    one.grant()
    (connack,) = one.taken()
    assert connack[:1] == b"\x20"
    assert connack[2:4] == b"\0\0"
    assert one.transport.watermarks == (0, None)


@pytest.mark.parametrize(
    ("version", "clean", "expiry", "resume", "keep"),
    [
        (V3, True, None, False, False),
        (V3, False, None, True, True),
        (V5, True, None, False, False),
        (V5, True, 60, False, True),
        (V5, False, 0, True, False),
        (V5, False, 0xFFFFFFFF, True, True),
    ],
)
@in_loop
async def test_clean_sessions_and_expiry_decide_what_is_resumed_and_kept(
    version: int, clean: bool, expiry: int | None, resume: bool, keep: bool
) -> None:
    one = Side(version)
    said = {} if expiry is None else {p.SESSION_EXPIRY: expiry}
    one.receive(side.connect(version, clean=clean, said=said))
    (event,) = one.events(Attached)
    assert (event.resume, event.keep, event.expiry_s) == (resume, keep, expiry or None)
    one.grant()
    if version == V5:
        told = connack_properties(one.taken()[0]).get(p.SESSION_EXPIRY)
        assert told is None, "it is kept for as long as it has asked for"


@in_loop
async def test_a_client_that_asks_for_more_than_it_gets_is_told_how_long_it_is_kept() -> None:
    one = Side(V5)
    one.front.kept_s = 3600.0
    one.receive(side.connect(V5, said={p.SESSION_EXPIRY: 0xFFFFFFFF}))
    one.grant()
    assert connack_properties(one.taken()[0])[p.SESSION_EXPIRY] == 3600


@in_loop
async def test_a_client_that_leaves_may_say_how_long_it_wants_to_be_kept() -> None:
    one = Side(V5)
    one.receive(side.connect(V5, said={p.SESSION_EXPIRY: 3600}))
    one.grant()
    one.receive(bytes.fromhex("e0 07 00 05 11 00000007"))
    one.lose()
    assert one.events(Closed)[-1].expiry_s == 7


@both_versions
@pytest.mark.parametrize("count", [0, 3])
@in_loop
async def test_session_present_says_whether_anything_was_resumed(version: int, count: int) -> None:
    one = Side(version)
    one.receive(side.connect(version, clean=False))
    one.grant(count)
    assert one.taken()[0][2] == (count > 0)


@in_loop
async def test_mqtt_5_is_told_what_there_is_and_what_not() -> None:
    one = Side(V5, receive_maximum=7, max_keep_alive_s=30)
    one.receive(side.connect(V5, client="", keep_alive=0))
    one.grant()
    said = connack_properties(one.taken()[0])
    assigned = said.pop(p.ASSIGNED_CLIENT_ID)
    assert isinstance(assigned, bytes)
    assert one.events(Attached)[0].client == row("", "", assigned.decode())
    assert said == {
        p.RECEIVE_MAXIMUM: 7,
        p.MAXIMUM_PACKET_SIZE: 65536,
        p.WILDCARDS_AVAILABLE: 0,
        p.SUBSCRIPTION_IDS_AVAILABLE: 0,
        p.SHARED_AVAILABLE: 0,
        p.SERVER_KEEP_ALIVE: 30,
    }


@in_loop
async def test_clients_without_an_id_are_told_apart() -> None:
    rows = set()
    for _ in range(3):
        one = Side(V3)
        one.receive(side.connect(V3, client=""))
        rows.add(one.events(Attached)[0].client)
    assert len(rows) == 3


@in_loop
async def test_a_session_to_be_kept_needs_a_client_id_on_3() -> None:
    one = Side(V3)
    one.receive(side.connect(V3, client="", clean=False))
    assert one.taken() == [b"\x20\x02\x00\x02"]
    assert one.transport.closed
    assert one.front.events == []


@in_loop
async def test_the_row_belongs_to_app_principal_and_client_together() -> None:
    front = RecordingFront()
    front.principal = Principal("alice", "home")
    one = Side(V3, front)
    one.receive(side.connect(V3, client="d", user="u", password=b"secret"))
    assert front.identified == [("u", "secret")]
    assert one.events(Attached)[0].client == row("home", "alice", "d")
    assert row("home", "alice", "d") != row("homealice", "", "d")


@pytest.mark.parametrize(
    ("version", "user", "error", "expected"),
    [
        (V3, None, Unauthorised("no"), "20 02 00 05"),
        (V3, "u", Unauthorised("no"), "20 02 00 04"),
        (V3, None, Overloaded("no"), "20 02 00 03"),
        (V3, None, BadInput("no"), ""),
        (V5, None, Unauthorised("no"), "20 03 00 87 00"),
        (V5, "u", Unauthorised("no"), "20 03 00 86 00"),
        (V5, None, Overloaded("no"), "20 03 00 89 00"),
    ],
)
@in_loop
async def test_who_is_not_let_in_is_told_why(
    version: int, user: str | None, error: Exception, expected: str
) -> None:
    front = RecordingFront()
    front.principal = error  # type: ignore[assignment]
    one = Side(version, front)
    one.receive(side.connect(version, user=user, will=(X, b"1")) + PINGREQ)
    assert b"".join(one.taken()) == bytes.fromhex(expected)
    assert one.transport.closed
    one.lose()
    assert front.events == [], "there never was a session, nor a will"
    assert front.published == []


@pytest.mark.parametrize(
    ("packet", "expected"),
    [
        (side.packet(0x10, b"\0\x04MQTT\x03\x02\0\x3c\0\x01a"), "20 02 00 01"),
        (side.packet(0x10, b"\0\x04MQTT\x06\x02\0\x3c\0\0\x01a"), "20 03 00 84 00"),
        (side.packet(0x10, b"\0\x06MQIsdp\x03\x02\0\x3c\0\x01a"), ""),
        (PINGREQ, ""),
        (side.packet(0x10, b"\0\x04MQTT\x04\x03\0\x3c\0\x01a"), ""),
    ],
)
@in_loop
async def test_other_versions_and_no_connect_at_all(packet: bytes, expected: str) -> None:
    one = Side()
    one.receive(packet)
    assert b"".join(one.taken()) == bytes.fromhex(expected)
    assert one.transport.closed


@in_loop
async def test_enhanced_authentication_is_refused_by_name() -> None:
    one = Side(V5)
    one.receive(side.connect(V5, said={p.AUTHENTICATION_METHOD: "SCRAM"}))
    assert one.taken() == [bytes.fromhex("20 03 00 8c 00")]


@both_versions
@in_loop
async def test_what_is_sent_before_connack_is_taken_after_it(version: int) -> None:
    one = Side(version)
    one.receive(side.connect(version) + side.subscribe(version, 3, (X, 1)) + PINGREQ)
    assert not one.transport.reading
    assert one.front.messages == []
    one.grant()
    assert one.transport.reading
    assert [packet[0] >> 4 for packet in one.taken()] == [2, 13]
    assert {operation.object for operation in one.operations()} == {X}
    assert {message.session for message in one.front.messages} == {SESSION}
    assert [message.number for message in one.front.messages] == [1, 2]


@both_versions
@in_loop
async def test_a_second_connect_is_a_violation(version: int) -> None:
    one = Side(version)
    one.open()
    one.receive(side.connect(version))
    assert [packet[:3] for packet in one.taken()] == ([] if version == V3 else [b"\xe0\x15\x82"])
    assert one.transport.closed


# The end.


@both_versions
@in_loop
async def test_c67_a_session_taken_over_is_told_and_closed(version: int) -> None:
    one = Side(version)
    one.open()
    one.send(error=ServerError("fenced"))
    one.conn.close()
    assert one.taken() == ([] if version == V3 else [bytes.fromhex("e0 02 8e 00")])
    assert one.transport.closed
    one.lose()
    assert one.front.events[-1] == Closed(one.delivery)
    assert len(one.events(Closed)) == 1


@in_loop
async def test_a_node_that_stops_says_so_and_publishes_no_will() -> None:
    one = Side(V5)
    one.open(will=(X, b"1"))
    one.send(not_before_ms=100, error=ServerError("unavailable"))
    one.conn.close()
    assert one.taken() == [bytes.fromhex("e0 02 8b 00")]
    one.lose()
    await one.mqtt.close()
    assert one.front.published == []


@pytest.mark.parametrize(
    ("version", "code", "expected"),
    [
        (V3, "unavailable", "20 02 00 03"),
        (V5, "unavailable", "20 03 00 88 00"),
        (V5, "overloaded", "20 03 00 89 00"),
    ],
)
@in_loop
async def test_a_session_that_is_not_granted_is_refused(
    version: int, code: str, expected: str
) -> None:
    one = Side(version)
    one.receive(side.connect(version))
    one.conn.send(ServerMessage(PROTOCOL, error=ServerError(code)))
    one.conn.close()
    assert one.taken() == [bytes.fromhex(expected)]


@in_loop
async def test_a_connection_that_ends_before_connect_was_never_there() -> None:
    one = Side()
    one.lose()
    assert one.front.events == []


@in_loop
async def test_nothing_is_written_to_a_connection_that_is_gone() -> None:
    one = Side()
    one.open()
    one.subscribe((X, 1))
    one.lose()
    one.notify(X, 1)
    one.broadcast(X, 2)
    one.conn.close()
    assert one.taken() == []


@in_loop
async def test_a_session_may_be_given_up_with_disconnect() -> None:
    one = Side(V5)
    one.receive(side.connect(V5, clean=False, said={p.SESSION_EXPIRY: 60}))
    one.grant(2)
    one.receive(bytes.fromhex("e0 07 00 05 11 00000000"))
    assert one.front.messages[-1].syncs == [Sync(b"", [])]
    assert one.transport.closed


@in_loop
async def test_a_session_may_not_be_kept_as_an_afterthought() -> None:
    one = Side(V5)
    one.open()
    one.receive(bytes.fromhex("e0 07 00 05 11 00000001"))
    assert one.taken()[0][2] == 0x82


# Presence.


@both_versions
@in_loop
async def test_a_ping_is_answered_and_the_core_hears_of_it(version: int) -> None:
    one = Side(version)
    one.open()
    one.receive(PINGREQ)
    assert one.taken() == [b"\xd0\x00"]
    (message,) = one.front.messages
    assert not message.operations
    assert not message.acks


@both_versions
@in_loop
async def test_silence_of_one_and_a_half_keep_alives_is_the_end(version: int) -> None:
    one = Side(version)
    one.open(keep_alive=10)
    for _ in range(15):
        one.mqtt.next_turn()
    assert not one.transport.closed
    for _ in range(3):
        one.mqtt.next_turn()
    assert one.transport.closed
    assert one.taken() == ([] if version == V3 else [bytes.fromhex("e0 02 8d 00")])


@in_loop
async def test_any_packet_is_a_sign_of_life() -> None:
    one = Side()
    one.open(keep_alive=10)
    for _ in range(10):
        for _ in range(14):
            one.mqtt.next_turn()
        one.receive(side.puback(77))
    assert not one.transport.closed


@in_loop
async def test_a_client_without_keep_alive_stays_and_the_core_is_told_it_is_there() -> None:
    one = Side(V3)
    one.open(keep_alive=0)
    for _ in range(3000):
        one.mqtt.next_turn()
    assert not one.transport.closed
    assert 4 <= len(one.front.messages) <= 6


@in_loop
async def test_a_connection_that_says_nothing_is_closed() -> None:
    one = Side(handshake_timeout_s=3)
    for _ in range(3):
        one.mqtt.next_turn()
    assert one.transport.closed


@in_loop
async def test_a_client_that_does_not_take_its_last_words_is_cut_off() -> None:
    one = Side(V5, closing_timeout_s=3)
    one.open()
    one.receive(b"\xf0\x00")
    assert not one.transport.aborted
    for _ in range(3):
        one.mqtt.next_turn()
    assert one.transport.aborted


@in_loop
async def test_nothing_is_remembered_of_connections_that_ended() -> None:
    mqtt = side.channel()
    for _ in range(10):
        one = Side(V3, RecordingFront(), mqtt)
        one.open()
        one.receive(DISCONNECT)
        one.lose()
    assert mqtt._visits == {}


# Whatever arrives.


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.sampled_from([V3, V5]),
    st.booleans(),
)
@settings(max_examples=200)
def test_any_bytes_end_a_connection_at_worst(chunks: list[bytes], version: int, open: bool) -> None:
    @in_loop
    async def run() -> None:
        one = Side(version)
        if open:
            one.open()
        for chunk in chunks:
            if not one.transport.closed:
                one.receive(chunk)
        one.lose()
        await one.mqtt.close()

    run()


PACKETS = st.sampled_from(
    [
        PINGREQ,
        side.puback(1),
        side.pubrel(2),
        side.subscribe(V3, 1, (X, 1), ("#", 0)),
        side.unsubscribe(V3, 2, X, "a"),
        side.publish(V3, X, b"1", 1, 3),
        side.publish(V3, X, b"x", 2, 4),
        side.publish(V3, "nonsense", b"", 0),
    ]
)


@given(st.lists(PACKETS, max_size=20), st.lists(st.integers(1, 50), min_size=1))
@settings(max_examples=100)
def test_valid_packets_in_any_order_and_pieces_keep_the_connection(
    packets: list[bytes], sizes: list[int]
) -> None:
    @in_loop
    async def run() -> None:
        one = Side()
        one.open()
        data = b"".join(packets)
        for i in range(1000):
            if not data:
                break
            size = sizes[i % len(sizes)]
            one.receive(data[:size])
            data = data[size:]
        assert not one.transport.closed
        await one.mqtt.close()

    run()
