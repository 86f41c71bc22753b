"""Frames on a stream, however the bytes are cut."""

import asyncio
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from roskva.links.framing import MAX_UNSENT_BYTES, Framed
from roskva.wire.links import MAX_LINK_FRAME_BYTES


class Wire:
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        self.written = b""
        self.aborted = False
        self.unsent = 0

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return self.aborted

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.aborted = True


def stream() -> tuple[Framed, Wire, list[bytes]]:
    got: list[bytes] = []
    framed = Framed(lambda _: None, lambda _, frame: got.append(frame), lambda _: None)
    wire = Wire()
    framed.connection_made(cast(asyncio.BaseTransport, cast(Any, wire)))
    return framed, wire, got


@given(st.lists(st.binary(max_size=50), max_size=10), st.lists(st.integers(1, 7)))
def test_what_was_sent_arrives_frame_by_frame(frames: list[bytes], cuts: list[int]) -> None:
    sender, wire, _ = stream()
    receiver, _, got = stream()
    for frame in frames:
        sender.send(frame)
    data = wire.written
    for cut in [*cuts, len(data)]:
        receiver.data_received(data[:cut])
        data = data[cut:]
    assert got == frames


def test_a_stream_that_announces_too_much_is_dropped() -> None:
    receiver, wire, got = stream()
    receiver.data_received((MAX_LINK_FRAME_BYTES + 1).to_bytes(4) + b"x")
    assert wire.aborted
    assert got == []


def test_a_peer_that_does_not_read_is_dropped() -> None:
    sender, wire, _ = stream()
    wire.unsent = MAX_UNSENT_BYTES + 1
    sender.send(b"frame")
    assert wire.aborted
