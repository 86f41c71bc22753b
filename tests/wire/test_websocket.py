"""Our frames against those of the `websockets` library, which has a parser of its own."""

import struct
import time
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.frames import Frame
from websockets.frames import Opcode as Theirs
from websockets.protocol import OPEN
from websockets.uri import parse_uri

from roskva.errors import BadMessage, TooLarge
from roskva.wire.websocket import CloseCode, FrameReader, Opcode, close_frame, frame

LIMIT = 70_000


def client() -> ClientProtocol:
    return ClientProtocol(parse_uri("ws://localhost/"), state=OPEN)


def sent(protocol: ClientProtocol) -> bytes:
    return b"".join(protocol.data_to_send())


def in_pieces(reader: FrameReader, data: bytes, cuts: list[int]) -> list[tuple[int, bytes]]:
    messages = []
    for cut in [*cuts, len(data)]:
        messages += reader.read(data[:cut])
        data = data[cut:]
    return messages


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["text", "binary", "parts", "ping"]),
            st.binary(max_size=100)
            | st.sampled_from([b"x" * n for n in (125, 126, 65_535, 65_536)]),
        ),
        max_size=6,
    ),
    st.lists(st.integers(1, 9), max_size=20),
)
def test_what_the_library_sends_is_read_as_it_was_meant(
    said: list[tuple[str, bytes]], cuts: list[int]
) -> None:
    protocol = client()
    expected = []
    for kind, data in said:
        if kind == "text":
            protocol.send_text(data)
            expected.append((Opcode.TEXT, data))
        elif kind == "binary":
            protocol.send_binary(data)
            expected.append((Opcode.BINARY, data))
        elif kind == "parts":
            protocol.send_binary(data, fin=False)
            protocol.send_ping(b"between")
            protocol.send_continuation(b"end", fin=True)
            expected += [(Opcode.PING, b"between"), (Opcode.BINARY, data + b"end")]
        else:
            protocol.send_ping(data[:125])
            expected.append((Opcode.PING, data[:125]))
    assert in_pieces(FrameReader(LIMIT), sent(protocol), cuts) == expected


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_what_we_write_is_read_by_the_library(size: int) -> None:
    protocol = client()
    protocol.receive_data(
        frame(Opcode.BINARY, b"y" * size) + close_frame(CloseCode.COME_BACK, "come back")
    )
    message, close = protocol.events_received()
    assert message == Frame(Theirs.BINARY, b"y" * size)
    assert close == Frame(Theirs.CLOSE, struct.pack("!H", 1012) + b"come back")


@given(st.binary(max_size=200), st.lists(st.integers(1, 9), max_size=20))
def test_only_our_errors_come_out(noise: bytes, cuts: list[int]) -> None:
    with suppress(BadMessage):
        in_pieces(FrameReader(64), noise, cuts)


def masked(first: int, payload: bytes) -> bytes:
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


@pytest.mark.parametrize(
    "data",
    [
        b"\x82\x01x",  # not masked
        masked(0xC2, b""),  # an extension
        masked(0x80, b""),  # a continuation of nothing
        masked(0x83, b""),  # no opcode
        masked(0x8B, b""),
        masked(0x09, b""),  # a control frame in parts
        masked(0x02, b"a") + masked(0x82, b"b"),  # a message within a message
        b"\x89\xfe\x00\x7e" + bytes(130),  # a control frame that is long
    ],
)
def test_what_breaks_the_rules_is_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        FrameReader(LIMIT).read(data)


def test_a_message_is_refused_before_it_is_there() -> None:
    with pytest.raises(TooLarge):
        FrameReader(100).read(b"\x82\xff" + (1 << 40).to_bytes(8) + bytes(4))
    reader = FrameReader(100)
    reader.read(masked(0x02, bytes(60)))
    with pytest.raises(TooLarge):
        reader.read(masked(0x00, bytes(60)))


def test_a_frame_that_comes_byte_by_byte_costs_no_more_than_its_bytes() -> None:
    """If all of it were copied for each byte, this would take minutes."""
    size = 1 << 19
    reader, began = FrameReader(size), time.process_time()
    data = b"\x82\xff" + size.to_bytes(8) + bytes(4 + size)
    messages = [message for byte in data for message in reader.read(bytes((byte,)))]
    assert [len(payload) for _, payload in messages] == [size]
    assert time.process_time() - began < 10


def test_parts_without_content_are_not_kept() -> None:
    reader, nothing = FrameReader(LIMIT), masked(0x00, b"")
    reader.read(masked(0x02, b"x"))
    tracemalloc.start()
    try:
        for _ in range(100):
            assert not reader.read(nothing * 100)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
    assert reader.read(masked(0x80, b"y")) == [(Opcode.BINARY, b"xy")]
