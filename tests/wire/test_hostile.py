"""Bytes that are wrong in every way: refused by an error of ours, quickly, and at little cost."""

import time
import tracemalloc
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.fuzzing.mutation import mutated
from tests.wire.hostile import DECODERS

from roskva.errors import BadMessage, RoskvaError
from roskva.wire.codec import Format, decode_from_client, decode_from_server, decode_to_shard
from roskva.wire.links import MAX_LINK_FRAME_BYTES
from roskva.wire.messages import MAX_FRAME_BYTES

every_decoder = pytest.mark.parametrize("name", DECODERS)
MUTATIONS = 4_000
JSON_HEAD = '{"type":"client","v":"1.0","number":"1"'


@every_decoder
def test_every_example_is_accepted(name: str) -> None:
    assert all(DECODERS[name].accepts(frame) for frame in DECODERS[name].corpus)


@every_decoder
@given(data=st.binary(max_size=200))
@example(data=b"")
def test_c13_random_bytes_are_refused_or_read(name: str, data: bytes) -> None:
    DECODERS[name].accepts(data)


@every_decoder
def test_a_truncated_frame_is_refused(name: str) -> None:
    for frame in DECODERS[name].corpus:
        for size in range(len(frame)):
            assert not DECODERS[name].accepts(frame[:size])


@every_decoder
def test_a_frame_with_more_after_it_is_refused(name: str) -> None:
    for frame in DECODERS[name].corpus:
        assert not DECODERS[name].accepts(frame + b"\x00")
        assert not DECODERS[name].accepts(frame + frame)


@every_decoder
def test_a_frame_that_is_too_long_is_refused(name: str) -> None:
    for fill in (b"\x00", b" ", b"\xc0", b"[", b"\x91"):
        for size in (MAX_FRAME_BYTES + 1, MAX_LINK_FRAME_BYTES + 1):
            assert not DECODERS[name].accepts(fill * size)


@every_decoder
@given(data=st.data())
def test_a_mutated_frame_is_refused_or_read(name: str, data: st.DataObject) -> None:
    decoder = DECODERS[name]
    frames = st.sampled_from(decoder.corpus)
    dice = data.draw(st.randoms(use_true_random=False))
    decoder.accepts(mutated(data.draw(frames), data.draw(frames), dice))


@pytest.mark.parametrize("name", ["token", "identity"])
def test_only_what_we_made_ourselves_is_accepted(name: str) -> None:
    """A token is sealed and an identity has a checksum: nothing that was changed gets through."""
    decoder, dice = DECODERS[name], Random(name)
    frames = [
        mutated(dice.choice(decoder.corpus), dice.choice(decoder.corpus), dice)
        for _ in range(MUTATIONS)
    ]
    assert {frame for frame in frames if decoder.accepts(frame)} <= set(decoder.corpus)


@every_decoder
def test_a_frame_of_another_decoder_is_refused(name: str) -> None:
    for other, decoder in DECODERS.items():
        if other != name:
            assert not any(DECODERS[name].accepts(frame) for frame in decoder.corpus)


@pytest.mark.parametrize(
    "wrong",
    [b"null", b"[]", b"7", b'"text"', b"{}", b'{"type":"client"}', b"\xff\xfe", b"\xc0", b"\x90"],
)
def test_what_is_no_message_at_all_is_refused(wrong: bytes) -> None:
    for decoder in DECODERS.values():
        assert not decoder.accepts(wrong)


@pytest.mark.parametrize(
    "part",
    [
        '"session":"x"',
        '"session":null',
        '"session":[]',
        '"session":1.5',
        '"session":true',
        '"session":"+1"',
        '"session":" 1"',
        '"session":"1_0"',
        '"session":"0x1"',
        '"session":"1","digest":{}',
        '"session":"1","digest":["1"]',
        '"session":"1","operations":{"a/b":true}',
        '"session":"1","operations":[[7]]',
        '"session":"1","operations":[["a/b","maybe"]]',
        '"session":"1","acks":[["a/b","1"]]',
        '"session":"1","acks":[["a/b","1",null]]',
        '"session":"1","syncs":[["no base64!",[]]]',
        '"session":"1","syncs":[["AA==",null]]',
    ],
)
def test_a_part_of_the_wrong_type_is_refused(part: str) -> None:
    frame = JSON_HEAD + f",{part}}}"
    with pytest.raises(BadMessage):
        decode_from_client(frame.encode(), "json")


# Cost. Nothing is allocated for what a frame announces, only for what it holds.


def text(value: str) -> bytes:
    return bytes([0xA0 | len(value)]) + value.encode()


CLIENT_HEAD = (
    text("type") + text("client") + text("v") + text("1.0") + text("session") + b"\x01"
) + (text("number") + b"\x01")
SERVER_HEAD = text("type") + text("server") + text("v") + text("1.0")
ROW_HEAD = (
    text("type") + text("WriteRow") + text("request") + b"\x01" + text("client") + b"\xc4\x10"
) + (bytes(16) + text("session") + b"\x01")
ANNOUNCED = {
    "array": b"\xdd\xff\xff\xff\xff",
    "smaller array": b"\xdd\x00\xff\xff\xff",
    "map": b"\xdf\xff\xff\xff\xff",
    "text": b"\xdb\xff\xff\xff\xff",
    "bytes": b"\xc6\xff\xff\xff\xff",
    "extension": b"\xc9\xff\xff\xff\xff\x01",
}
DEEP = {"arrays": b"\x91" * 60_000, "maps": b"\x81\xa1x" * 20_000}


def costs(decode: object, frame: bytes) -> tuple[int, float]:
    """Bytes allocated at the peak, and seconds of the processor."""
    assert callable(decode)
    tracemalloc.start()
    started = time.thread_time()
    try:
        with pytest.raises(RoskvaError):
            decode(frame)
        return tracemalloc.get_traced_memory()[1], time.thread_time() - started
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("announced", [*ANNOUNCED, *DEEP])
@pytest.mark.parametrize("field", ["operations", "acks", "syncs", "digest", "v", "later"])
def test_a_client_cannot_announce_more_than_it_sends(field: str, announced: str) -> None:
    value = {**ANNOUNCED, **DEEP}[announced]
    memory, seconds = costs(decode_from_client, b"\x85" + CLIENT_HEAD + text(field) + value)
    assert memory < 1_000_000
    assert seconds < 1


@pytest.mark.parametrize("announced", [*ANNOUNCED, *DEEP])
@pytest.mark.parametrize("field", ["notifications", "statuses", "sync_request", "error", "later"])
def test_a_server_cannot_announce_more_than_it_sends(field: str, announced: str) -> None:
    value = {**ANNOUNCED, **DEEP}[announced]
    memory, seconds = costs(decode_from_server, b"\x83" + SERVER_HEAD + text(field) + value)
    assert memory < 1_000_000
    assert seconds < 1


@pytest.mark.parametrize("announced", [*ANNOUNCED, *DEEP])
@pytest.mark.parametrize("field", ["put", "drop", "later"])
def test_a_link_cannot_announce_more_than_it_sends(field: str, announced: str) -> None:
    value = {**ANNOUNCED, **DEEP}[announced]
    memory, seconds = costs(decode_to_shard, b"\x85" + ROW_HEAD + text(field) + value)
    assert memory < 1_000_000
    assert seconds < 1


@pytest.mark.parametrize("header", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff"])
def test_a_frame_that_is_one_announcement_is_refused(header: bytes) -> None:
    for decoder in DECODERS.values():
        assert not decoder.accepts(header)
        assert not decoder.accepts(header + CLIENT_HEAD)


@pytest.mark.parametrize("opening", ["[", '{"x":'])
@pytest.mark.parametrize("field", ["operations", "later"])
def test_json_may_not_nest_for_ever(field: str, opening: str) -> None:
    nested = opening * (60_000 // len(opening))
    frame = JSON_HEAD + f',"session":"1","{field}":{nested}'
    memory, seconds = costs(lambda data: decode_from_client(data, "json"), frame.encode())
    assert memory < 1_000_000
    assert seconds < 1


@pytest.mark.parametrize("number", ["9" * 60_000, '"' + "9" * 60_000 + '"', "1e9999999", "-1e400"])
def test_huge_numbers_are_refused_quickly(number: str) -> None:
    frame = JSON_HEAD + f',"session":{number}}}'
    memory, seconds = costs(lambda data: decode_from_client(data, "json"), frame.encode())
    assert memory < 1_000_000
    assert seconds < 1


FULL_OF_PARTS: dict[str, tuple[Format, bytes]] = {
    "syncs": (
        "msgpack",
        b"\x85" + CLIENT_HEAD + text("syncs") + b"\xdc\x10\x00" + b"\x92\xc4\0\x90" * 4096,
    ),
    "keys": (
        "msgpack",
        b"\x85"
        + CLIENT_HEAD
        + text("syncs")
        + b"\x93"
        + (b"\x92\xc4\0\xdc\x10\x00" + b"\xa3a/b" * 4096) * 3,
    ),
    "operations": (
        "msgpack",
        b"\x85" + CLIENT_HEAD + text("operations") + b"\xdc\x10\x00" + b"\x91\xa3a/b" * 4096,
    ),
}


@pytest.mark.parametrize("kind", FULL_OF_PARTS)
def test_a_frame_full_of_the_smallest_parts_costs_little(kind: str) -> None:
    format, frame = FULL_OF_PARTS[kind]
    assert len(frame) <= MAX_FRAME_BYTES
    tracemalloc.start()
    try:
        decode_from_client(frame, format)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()
