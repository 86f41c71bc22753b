import time

import pyarrow as pa
import pytest
from tests.feed.scenes import LINEAGE, updates

from roskva.feed.arrow import rows_of
from roskva.feed.base import updates_of
from roskva.feed.frame import MAGIC, Frame, encode, frame_at, next_frame, rows_in
from roskva.model import MAX_PAYLOAD_BYTES, Update


def view_of(*parts: bytes) -> pa.Buffer:
    return pa.py_buffer(b"".join(parts))


def encoded(first: int, *numbers: int) -> bytes:
    return encode(LINEAGE, first, 17, rows_of(updates(*numbers)))


def flipped(data: bytes, byte: int) -> bytes:
    damaged = bytearray(data)
    damaged[byte] ^= 1
    return bytes(damaged)


def test_a_frame_says_where_it_ends_and_what_it_holds() -> None:
    view = view_of(encoded(5, 1, 2, 3))
    frame = frame_at(view, 0, LINEAGE)
    assert frame is not None
    assert (frame.first, frame.last, frame.appended_at, frame.end) == (5, 7, 17, view.size)
    rows = rows_in(view, frame)
    assert rows is not None
    assert updates_of(rows) == updates(1, 2, 3)


def test_a_single_row_takes_about_five_hundred_bytes() -> None:
    assert len(encoded(1, 1)) <= 600


def test_a_frame_that_is_cut_off_is_none() -> None:
    whole = encoded(1, 1)
    for size in range(len(whole)):
        assert frame_at(view_of(whole[:size]), 0, LINEAGE) is None


def test_a_frame_of_another_feed_is_none() -> None:
    assert frame_at(view_of(encoded(1, 1)), 0, LINEAGE + 1) is None


@pytest.mark.parametrize("damaged_byte", [0, 5, 9, 20, 40])
def test_the_search_steps_over_a_damaged_header(damaged_byte: int) -> None:
    damaged = flipped(encoded(1, 1), damaged_byte)
    view = view_of(damaged, encoded(2, 2))
    assert frame_at(view, 0, LINEAGE) is None
    assert next_frame(view, 0, LINEAGE, 1) == frame_at(view, len(damaged), LINEAGE)


def test_the_image_of_a_frame_in_a_payload_is_not_taken_for_one() -> None:
    """Its author does not know the lineage; were it only a checksum, this would be a forgery."""
    forged = encode(LINEAGE ^ 1, 1, 17, rows_of([Update("app/victim", 9)]))
    carriers = [
        encode(LINEAGE, 1, 17, rows_of([Update("app/carrier", 1, payload=bytes(pad) + forged)]))
        for pad in range(8)
    ]
    assert len(forged) + 8 <= MAX_PAYLOAD_BYTES
    for carrier in carriers:
        assert next_frame(view_of(flipped(carrier, 0)), 0, LINEAGE, 1) is None


def test_a_damaged_body_costs_the_rows_and_not_the_way_to_the_next_frame() -> None:
    damaged = flipped(encoded(1, 1), -1)
    view = view_of(damaged, encoded(2, 2))
    frame = frame_at(view, 0, LINEAGE)
    assert isinstance(frame, Frame)
    assert rows_in(view, frame) is None
    assert frame_at(view, frame.end, LINEAGE) is not None


def test_payloads_full_of_what_looks_like_a_frame_do_not_stop_a_reader() -> None:
    """If the rest were copied at each of them, this would take minutes."""
    began = time.process_time()
    view = view_of((MAGIC + b"\0\0\0\0") * (1 << 18), encoded(5, 1))
    frame = next_frame(view, 0, LINEAGE, 1)
    assert frame is not None
    assert frame.first == 5
    assert time.process_time() - began < 10
