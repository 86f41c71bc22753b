"""Packets in bytes: those of the standard, all that can be made up, and what is none."""

import time
from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.channels import mqtt_side as side

from roskva.wire.mqtt import encode
from roskva.wire.mqtt import fields as p
from roskva.wire.mqtt.codes import PUBACK, PUBCOMP, PUBREC, V3, V5, BadPacket, Reason
from roskva.wire.mqtt.decode import (
    ConnectPacket,
    Decoder,
    DisconnectPacket,
    Filter,
    Packet,
    PingReq,
    PubAck,
    PublishPacket,
    PubRel,
    Subscribe,
    Unsubscribe,
    UnsupportedVersion,
    Will,
)
from roskva.wire.mqtt.fields import string, u16

MAX = 64 * 1024


def decode(data: bytes, version: int = V3, max_packet_bytes: int = MAX) -> list[Packet]:
    decoder = Decoder(max_packet_bytes)
    decoder.version = version
    decoder.feed(data)
    packets: list[Packet] = []
    while (packet := decoder.next()) is not None:
        packets.append(packet)
    return packets


def refusal(data: bytes, version: int = V3, max_packet_bytes: int = MAX) -> Reason:
    with pytest.raises(BadPacket) as caught:
        decode(data, version, max_packet_bytes)
    return caught.value.reason


# Golden bytes.

WILL_5 = Will("app/w", b"9", 1, True, {p.WILL_DELAY: 5})
GOLDEN: list[tuple[int, str, Packet]] = [
    (V3, "10 0e 0004 4d515454 04 02 003c 0002 6964", ConnectPacket(V3, "id", True, 60)),
    (
        V3,
        "10 1d 0004 4d515454 04 ec 0000 0001 61 0005 6170702f77 0001 39 0001 75 0001 70",
        ConnectPacket(V3, "a", False, 0, Will("app/w", b"9", 1, True), "u", b"p"),
    ),
    (
        V5,
        "10 23 0004 4d515454 05 2e 003c 05 11 00000e10 0001 61 05 18 00000005"
        "0005 6170702f77 0001 39",
        ConnectPacket(V5, "a", True, 60, WILL_5, properties={p.SESSION_EXPIRY: 3600}),
    ),
    (V3, "30 09 0005 6170702f78 3431", PublishPacket("app/x", b"41")),
    (V3, "3b 0b 0005 6170702f78 0102 3431", PublishPacket("app/x", b"41", 1, 258, True, True)),
    (V5, "34 0a 0005 6170702f78 0001 00", PublishPacket("app/x", b"", 2, 1)),
    (
        V5,
        "30 11 0005 6170702f78 07 26 0001 61 0001 62 37 38",
        PublishPacket("app/x", b"78", properties={p.USER_PROPERTY: [("a", "b")]}),
    ),
    (V3, "40 02 1234", PubAck(0x1234)),
    (V5, "40 04 0007 10 00", PubAck(7, 0x10)),
    (V3, "62 02 0007", PubRel(7)),
    (V3, "82 0a 0001 0005 6170702f78 01", Subscribe(1, [Filter("app/x", 1)])),
    (
        V5,
        "82 0b 0001 00 0005 6170702f78 2e",
        Subscribe(1, [Filter("app/x", 2, True, True, 2)]),
    ),
    (V3, "a2 09 0002 0005 6170702f78", Unsubscribe(2, ["app/x"])),
    (V5, "a2 0a 0002 00 0005 6170702f78", Unsubscribe(2, ["app/x"])),
    (V3, "c0 00", PingReq()),
    (V3, "e0 00", DisconnectPacket()),
    (V5, "e0 07 04 05 11 00000000", DisconnectPacket(4, {p.SESSION_EXPIRY: 0})),
]


@pytest.mark.parametrize(("version", "data", "packet"), GOLDEN, ids=lambda v: type(v).__name__)
def test_packets_are_read(version: int, data: str, packet: Packet) -> None:
    assert decode(bytes.fromhex(data), version) == [packet]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (encode.connack(V3, Reason.SUCCESS, True), "20 02 01 00"),
        (encode.connack(V3, Reason.NOT_AUTHORISED), "20 02 00 05"),
        (encode.connack(V3, Reason.SERVER_BUSY), "20 02 00 03"),
        (encode.connack(V5, Reason.SUCCESS), "20 03 00 00 00"),
        (
            encode.connack(
                V5, Reason.SUCCESS, True, {p.RECEIVE_MAXIMUM: 100, p.SHARED_AVAILABLE: 0}
            ),
            "20 08 01 00 05 21 0064 2a 00",
        ),
        (encode.publish(string("a/b"), b"7", encode.RETAIN), "31 06 0003 612f62 37"),
        (encode.publish(string("a/b"), b"7", encode.QOS_1, 513), "32 08 0003 612f62 0201 37"),
        (encode.acknowledge(PUBACK, V3, 7, Reason.QUOTA_EXCEEDED), "40 02 0007"),
        (encode.acknowledge(PUBACK, V5, 7), "40 02 0007"),
        (
            encode.acknowledge(PUBACK, V5, 7, Reason.NOT_AUTHORISED, "no"),
            "40 09 0007 87 05 1f 0002 6e6f",
        ),
        (encode.acknowledge(PUBREC, V5, 7), "50 02 0007"),
        (encode.acknowledge(PUBCOMP, V5, 7, Reason.PACKET_ID_NOT_FOUND), "70 04 0007 92 00"),
        (encode.suback(V3, 1, [1, 0x80]), "90 04 0001 01 80"),
        (encode.suback(V5, 1, [1, 0xA2]), "90 05 0001 00 01 a2"),
        (encode.unsuback(V3, 1, [0]), "b0 02 0001"),
        (encode.unsuback(V5, 1, [0, 0x11]), "b0 05 0001 00 00 11"),
        (encode.PINGRESP, "d0 00"),
        (encode.disconnect(Reason.SESSION_TAKEN_OVER), "e0 02 8e 00"),
    ],
)
def test_packets_are_written(data: bytes, expected: str) -> None:
    assert data == bytes.fromhex(expected)


# Round trips.

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
TOPIC = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1, max_size=20
)
IDS = st.integers(1, 65535)
VERSIONS = st.sampled_from([V3, V5])


@given(
    VERSIONS, TEXT, st.booleans(), st.integers(0, 65535), TEXT, st.binary(max_size=20),
    st.none() | st.tuples(TOPIC, st.binary(max_size=20)),
)  # fmt: skip
def test_any_connect_is_read_as_it_was_meant(
    version: int,
    client: str,
    clean: bool,
    keep_alive: int,
    user: str,
    password: bytes,
    will: tuple[str, bytes] | None,
) -> None:
    data = side.connect(version, client, clean, keep_alive, will, user, password)
    meant = Will(*will) if will is not None else None
    assert decode(data) == [
        ConnectPacket(version, client, clean, keep_alive, meant, user, password)
    ]


@given(VERSIONS, TOPIC, st.binary(max_size=200), st.integers(0, 2), IDS)
def test_any_publish_is_read_as_it_was_meant(
    version: int, topic: str, payload: bytes, qos: int, id: int
) -> None:
    data = side.publish(version, topic, payload, qos, id)
    assert decode(data, version) == [PublishPacket(topic, payload, qos, id if qos else 0)]


@given(VERSIONS, IDS, st.lists(st.tuples(TEXT.filter(bool), st.integers(0, 2)), min_size=1))
def test_any_subscribe_is_read_as_it_was_meant(
    version: int, id: int, filters: list[tuple[str, int]]
) -> None:
    data = side.subscribe(version, id, *filters)
    assert decode(data, version) == [Subscribe(id, [Filter(*one) for one in filters])]
    topics = [topic for topic, _ in filters]
    assert decode(side.unsubscribe(version, id, *topics), version) == [Unsubscribe(id, topics)]


SAID = st.fixed_dictionaries(
    {},
    optional={
        p.SESSION_EXPIRY: st.integers(0, 2**32 - 1),
        p.RECEIVE_MAXIMUM: st.integers(1, 65535),
        p.MAXIMUM_PACKET_SIZE: st.integers(1, 2**32 - 1),
        p.REQUEST_PROBLEM_INFORMATION: st.integers(0, 1),
        p.USER_PROPERTY: st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=3),
        p.AUTHENTICATION_METHOD: TEXT,
    },
)


@given(SAID)
def test_properties_are_read_as_they_were_written(said: p.Properties) -> None:
    (packet,) = decode(side.connect(V5, said=said))
    assert isinstance(packet, ConnectPacket)
    assert packet.properties == said


STREAM = b"".join(bytes.fromhex(data) for version, data, _ in GOLDEN if version == V3)
MEANT = [packet for version, _, packet in GOLDEN if version == V3]


@given(st.lists(st.integers(0, len(STREAM)), max_size=20))
def test_packets_may_arrive_in_any_pieces(cuts: list[int]) -> None:
    decoder, packets = Decoder(MAX), list[Packet]()
    edges = [0, *sorted(cuts), len(STREAM)]
    for start, end in pairwise(edges):
        decoder.feed(STREAM[start:end])
        while (packet := decoder.next()) is not None:
            packets.append(packet)
    assert packets == MEANT
    assert decoder.idle()


# What is no packet.


def any_bytes_or_a_bad_packet(data: bytes, version: int) -> None:
    with suppress(BadPacket):
        decode(data, version, 4096)


@given(st.binary(max_size=200), VERSIONS)
@settings(max_examples=300)
def test_random_bytes_are_refused_or_wait_for_more(data: bytes, version: int) -> None:
    any_bytes_or_a_bad_packet(data, version)


@given(st.sampled_from(GOLDEN), st.data())
@settings(max_examples=500)
def test_mutated_packets_are_refused_or_are_other_packets(
    golden: tuple[int, str, Packet], data: st.DataObject
) -> None:
    mutated = bytearray(bytes.fromhex(golden[1]))
    for _ in range(data.draw(st.integers(1, 3))):
        mutated[data.draw(st.integers(0, len(mutated) - 1))] = data.draw(st.integers(0, 255))
    any_bytes_or_a_bad_packet(bytes(mutated), golden[0])


@given(st.sampled_from(GOLDEN), st.data())
def test_a_packet_whose_length_lies_is_malformed(
    golden: tuple[int, str, Packet], data: st.DataObject
) -> None:
    whole = bytes.fromhex(golden[1])
    cut = data.draw(st.integers(0, len(whole) - 2))
    any_bytes_or_a_bad_packet(bytes([whole[0], cut]) + whole[2 : 2 + cut], golden[0])


@pytest.mark.parametrize("version", [V3, V5])
def test_a_packet_that_is_too_large_is_refused_before_it_has_arrived(version: int) -> None:
    header = bytes.fromhex("30 80 80 04")  # 65,536 bytes are to follow
    assert refusal(header, version) == Reason.PACKET_TOO_LARGE
    assert decode(bytes.fromhex("30 fc ff 03")) == [], "this one just fits, and is waited for"


@pytest.mark.parametrize(
    ("version", "data", "reason"),
    [
        (V3, "30 ff ff ff ff 01", Reason.MALFORMED),  # a length of five bytes
        (V5, "c0 80 00", Reason.MALFORMED),  # a length longer than needed
        (V3, "36 09 0005 6170702f78 0001", Reason.MALFORMED),  # QoS 3
        (V3, "38 07 0005 6170702f78", Reason.MALFORMED),  # DUP without QoS
        (V3, "32 09 0005 6170702f78 0000", Reason.PROTOCOL_ERROR),  # packet id 0
        (V3, "30 05 0003 612f23", Reason.TOPIC_NAME_INVALID),
        (V3, "30 02 0000", Reason.PROTOCOL_ERROR),  # no topic
        (V3, "30 05 0003 61c328", Reason.MALFORMED),  # not UTF-8
        (V3, "30 05 0003 eda080", Reason.MALFORMED),  # a surrogate
        (V3, "30 05 0003 610062", Reason.MALFORMED),  # U+0000
        (V5, "30 0b 0005 6170702f78 03 23 0001", Reason.TOPIC_ALIAS_INVALID),
        (V5, "30 0a 0005 6170702f78 02 0b 01", Reason.PROTOCOL_ERROR),  # a subscription id
        (V5, "30 0a 0005 6170702f78 02 01 02", Reason.PROTOCOL_ERROR),  # payload format 2
        (V5, "30 0c 0005 6170702f78 04 01 00 01 00", Reason.PROTOCOL_ERROR),  # twice
        (V5, "30 0a 0005 6170702f78 02 17 00", Reason.MALFORMED),  # not of this packet
        (V5, "30 0a 0005 6170702f78 02 7f 00", Reason.MALFORMED),  # no property at all
        (V5, "30 09 0005 6170702f78 05 01", Reason.MALFORMED),  # properties beyond the end
        (V3, "80 0a 0001 0005 6170702f78 01", Reason.MALFORMED),  # flags of SUBSCRIBE
        (V3, "82 02 0001", Reason.PROTOCOL_ERROR),  # no filters
        (V3, "82 0a 0001 0005 6170702f78 03", Reason.PROTOCOL_ERROR),  # QoS 3
        (V3, "82 0a 0001 0005 6170702f78 04", Reason.MALFORMED),  # options of 5
        (V5, "82 0b 0001 00 0005 6170702f78 40", Reason.MALFORMED),  # reserved bits
        (V5, "82 0b 0001 00 0005 6170702f78 30", Reason.PROTOCOL_ERROR),  # retain handling 3
        (V5, "82 0d 0001 02 0b 01 0005 6170702f78 01", Reason.SUBSCRIPTION_IDS_NOT_SUPPORTED),
        (V3, "a2 02 0001", Reason.PROTOCOL_ERROR),
        (V3, "a2 04 0001 0000", Reason.PROTOCOL_ERROR),  # an empty filter
        (V3, "60 02 0001", Reason.MALFORMED),  # flags of PUBREL
        (V3, "c0 01 00", Reason.MALFORMED),  # a body where there is none
        (V3, "20 02 0000", Reason.PROTOCOL_ERROR),  # CONNACK is not for servers
        (V5, "f0 00", Reason.PROTOCOL_ERROR),  # AUTH
        (V3, "10 0e 0004 4d515454 04 03 003c 0002 6964", Reason.MALFORMED),  # reserved flag
        (V3, "10 0e 0004 4d515454 04 0a 003c 0002 6964", Reason.MALFORMED),  # will QoS, no will
        (V3, "10 11 0004 4d515454 04 42 003c 0002 6964 0001 70", Reason.MALFORMED),  # no user
        (V3, "10 0f 0004 4d515454 04 02 003c 0002 6964 00", Reason.MALFORMED),  # bytes left over
    ],
)
def test_what_the_standard_forbids_is_refused(version: int, data: str, reason: Reason) -> None:
    assert refusal(bytes.fromhex(data), version) == reason


@pytest.mark.parametrize(
    "said", [{p.RECEIVE_MAXIMUM: 0}, {p.MAXIMUM_PACKET_SIZE: 0}, {p.AUTHENTICATION_DATA: b"x"}]
)
def test_a_connect_with_impossible_properties_is_a_protocol_error(said: p.Properties) -> None:
    assert refusal(side.connect(V5, said=said)) == Reason.PROTOCOL_ERROR


@pytest.mark.parametrize(("name", "level"), [("MQTT", 3), ("MQTT", 6), ("MQIsdp", 3), ("HTTP", 1)])
def test_other_protocols_are_told_apart(name: str, level: int) -> None:
    body = string(name) + bytes([level, 2]) + u16(60) + string("id")
    with pytest.raises(UnsupportedVersion) as caught:
        decode(side.packet(0x10, body))
    assert caught.value.level == (level if name == "MQTT" else 0)


def _outcome(data: bytes) -> PublishPacket | Reason:
    try:
        (packet,) = decode(data)
    except BadPacket as bad:
        return bad.reason
    assert isinstance(packet, PublishPacket)
    return msgspec.structs.replace(packet, dup=False)


@given(body=st.binary(max_size=12) | st.binary(max_size=8).map(lambda rest: b"\0\3a/b" + rest))
def test_the_short_way_for_a_publish_is_only_shorter(body: bytes) -> None:
    """With the bit that says it may be a duplicate, it goes the long way."""
    short, long = (bytes([first, len(body)]) + body for first in (0x32, 0x3A))
    assert _outcome(short) == _outcome(long)


def test_a_packet_that_comes_byte_by_byte_costs_no_more_than_its_bytes() -> None:
    """If all of it were copied for each byte, this would take minutes."""
    decoder, began = Decoder(1 << 21), time.process_time()
    for byte in side.publish(V3, "app/x", bytes(1 << 19)):
        decoder.feed(bytes((byte,)))
        packet = decoder.next()
    assert isinstance(packet, PublishPacket)
    assert len(packet.payload) == 1 << 19
    assert decoder.idle()
    assert time.process_time() - began < 10


def test_user_properties_are_so_many_and_the_rest_is_not_looked_at() -> None:
    most = [("a", "b")] * p.MAX_USER_PROPERTIES
    [connect] = decode(side.connect(V5, said={p.USER_PROPERTY: most}))
    assert isinstance(connect, ConnectPacket)
    for said in ({"said": [*most, ("a", "b")]}, {"will_said": [*most, ("a", "b")]}):
        properties = {name: {p.USER_PROPERTY: pairs} for name, pairs in said.items()}
        data = side.connect(V5, will=("app/w", b"9"), **properties)  # type: ignore[arg-type]
        assert refusal(data) == Reason.QUOTA_EXCEEDED
