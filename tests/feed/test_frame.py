"""Frames of the feed: packed rows and Arrow, found and read again."""

import time
from collections.abc import Callable, Sequence
from functools import partial

import msgspec
import pytest
from tests.feed.scenes import LINEAGE, updates

from roskva.feed.arrow import rows_of
from roskva.feed.base import updates_of
from roskva.feed.frame import (
    MAGIC,
    TOGETHER_BYTES,
    FrameHeader,
    _framed,
    encode,
    encode_packed,
    frame_at,
    next_frame,
    rows_from,
    sound_body,
)
from roskva.model import MAX_PAYLOAD_BYTES, Update

FAR = 1 << 40
HOUR_US = 3600 * 1_000_000
Make = Callable[[int, Sequence[Update]], bytes]


def arrow(first: int, some: Sequence[Update], lineage: int = LINEAGE) -> bytes:
    return encode(lineage, first, 17, rows_of(some))


def packed(first: int, some: Sequence[Update], lineage: int = LINEAGE, at: int = 17) -> bytes:
    return encode_packed(lineage, first, at, some)


@pytest.fixture(params=[arrow, packed])
def made(request: pytest.FixtureRequest) -> Make:
    make: Make = request.param
    return make


def view_of(*parts: bytes) -> memoryview:
    return memoryview(b"".join(parts))


def flipped(data: bytes, byte: int) -> bytes:
    damaged = bytearray(data)
    damaged[byte] ^= 1
    return bytes(damaged)


def frame_in(view: memoryview, position: int = 0) -> FrameHeader:
    frame = frame_at(view, position, LINEAGE)
    assert frame is not None
    return frame


def read(view: memoryview, last: int = FAR, position: int = 0) -> list[Update] | None:
    found = rows_from(view, frame_in(view, position), LINEAGE, last)
    if found is None:
        return None
    rows, newest = found
    assert newest.last == frame_in(view, position).first + rows.num_rows - 1
    return updates_of(rows)


def test_a_frame_says_where_it_ends_and_what_it_holds(made: Make) -> None:
    view = view_of(made(5, updates(1, 2, 3)))
    frame = frame_in(view)
    assert (frame.first, frame.last, frame.appended_at, frame.end) == (5, 7, 17, len(view))
    assert read(view) == updates(1, 2, 3)


def test_frames_begin_where_one_is_searched_for(made: Make) -> None:
    assert {len(made(1, [Update("app/" + "x" * n, 1)])) % 8 for n in range(1, 20)} == {0}


def test_a_single_row_is_small_if_it_is_packed() -> None:
    assert len(packed(1, updates(1))) <= 120
    assert len(arrow(1, updates(1))) <= 600


def test_a_row_that_arrow_could_not_hold_is_not_packed() -> None:
    for update in (Update("app/x", 2**63), Update("app/x", 1, published_at=-(2**63) - 1)):
        with pytest.raises(OverflowError):
            packed(1, [update])


def test_packed_frames_are_read_together() -> None:
    view = view_of(packed(1, updates(1)), packed(2, updates(2, 3)), packed(4, updates(4)))
    assert read(view) == updates(1, 2, 3, 4)


def test_not_more_of_them_than_are_asked_for() -> None:
    view = view_of(packed(1, updates(1)), packed(2, updates(2, 3)), packed(4, updates(4)))
    assert [read(view, last) for last in (1, 2, 3, 4)] == [
        updates(1),
        updates(1),
        updates(1, 2, 3),
        updates(1, 2, 3, 4),
    ]


def test_and_not_more_than_take_a_moment() -> None:
    view = view_of(*(packed(number, updates(number)) for number in range(1, 1000)))
    found = rows_from(view, frame_in(view), LINEAGE, FAR)
    assert found is not None
    assert 0 <= found[1].end - TOGETHER_BYTES < len(packed(1, updates(1)))


@pytest.mark.parametrize("step", [HOUR_US, -HOUR_US])
def test_nor_what_was_appended_at_another_time(step: int) -> None:
    view = view_of(packed(1, updates(1)), packed(2, updates(2), at=17 + step))
    assert read(view) == updates(1)


def test_a_record_batch_is_read_alone() -> None:
    view = view_of(packed(1, updates(1)), arrow(2, updates(2)), packed(3, updates(3)))
    assert read(view) == updates(1)
    assert read(view, position=len(packed(1, updates(1)))) == updates(2)


def test_what_is_read_together_ends_before_damage_and_before_a_hole() -> None:
    first = packed(1, updates(1))
    for following in (
        flipped(packed(2, updates(2)), -1),
        flipped(packed(2, updates(2)), 9),
        packed(3, updates(3)),
        packed(2, updates(2), LINEAGE + 1),
    ):
        assert read(view_of(first, following)) == updates(1)
    assert read(view_of(flipped(first, -1), packed(2, updates(2)))) is None


def test_what_is_sealed_but_makes_no_sense_is_damage() -> None:
    """As only a fault in a writer could leave it."""
    row = ["app/x", 1, None, None, 0, False]
    one_row = msgspec.msgpack.encode([row])
    too_large = msgspec.msgpack.encode([["app/x", 1 << 63, *row[2:]]])
    sealed = partial(_framed, LINEAGE, 1, 17)
    assert read(view_of(sealed(1, one_row, len(one_row)))) == [Update("app/x", 1)]
    assert read(view_of(sealed(1, one_row, 8))) is None  # it ends within the row
    assert read(view_of(sealed(2, one_row, len(one_row)))) is None  # and has one
    assert read(view_of(sealed(1, too_large, len(too_large)))) is None
    assert frame_at(view_of(sealed(1, one_row, len(one_row) + 1)), 0, LINEAGE) is None


def test_a_frame_that_is_cut_off_is_none(made: Make) -> None:
    whole = made(1, updates(1))
    for size in range(len(whole)):
        assert frame_at(view_of(whole[:size]), 0, LINEAGE) is None


def test_a_frame_of_another_feed_is_none(made: Make) -> None:
    assert frame_at(view_of(made(1, updates(1))), 0, LINEAGE + 1) is None


@pytest.mark.parametrize("damaged_byte", [0, 5, 9, 20, 28, 40])
def test_the_search_steps_over_a_damaged_header(made: Make, damaged_byte: int) -> None:
    damaged = flipped(made(1, updates(1)), damaged_byte)
    view = view_of(damaged, made(2, updates(2)))
    assert frame_at(view, 0, LINEAGE) is None
    assert next_frame(view, 0, LINEAGE, 1) == frame_at(view, len(damaged), LINEAGE)


@pytest.mark.parametrize("make", [arrow, packed])
def test_the_image_of_a_frame_in_a_payload_is_not_taken_for_one(
    make: Callable[[int, Sequence[Update], int], bytes],
) -> None:
    """Its author does not know the lineage; were it only a checksum, this would be a forgery."""
    forged = make(1, [Update("app/victim", 9)], LINEAGE ^ 1)
    carriers = [
        make(1, [Update("app/carrier", 1, payload=bytes(pad) + forged)], LINEAGE)
        for pad in range(8)
    ]
    assert len(forged) + 8 <= MAX_PAYLOAD_BYTES
    for carrier in carriers:
        assert next_frame(view_of(flipped(carrier, 0)), 0, LINEAGE, 1) is None


def test_a_damaged_body_costs_the_rows_and_not_the_way_to_the_next_frame(made: Make) -> None:
    view = view_of(flipped(made(1, updates(1)), -1), made(2, updates(2)))
    frame = frame_in(view)
    assert sound_body(view, frame) is None
    assert rows_from(view, frame, LINEAGE, FAR) is None
    assert frame_at(view, frame.end, LINEAGE) is not None


def test_payloads_full_of_what_looks_like_a_frame_do_not_stop_a_reader(made: Make) -> None:
    """If the rest were copied at each of them, this would take minutes."""
    began = time.process_time()
    view = view_of((MAGIC + b"\0\0\0\0") * (1 << 18), made(5, updates(1)))
    frame = next_frame(view, 0, LINEAGE, 1)
    assert frame is not None
    assert frame.first == 5
    assert time.process_time() - began < 10
