"""Segments: what belongs to which, and their names."""

import pytest
from tests.feed.scenes import LINEAGE

from roskva.errors import BadConfig
from roskva.feed import segment as module
from roskva.feed.segment import (
    END_AT,
    End,
    Header,
    Segment,
    chain,
    encode_end,
    encode_header,
    end_in,
    headers_in,
    name_of,
    parse_name,
)


def segment(writer: int, first: int, void_from: int | None = None) -> Segment:
    header = Header(LINEAGE, writer, first, first if void_from is None else void_from, 0)
    return Segment(name_of(first, writer), header)


def owned(*segments: Segment) -> list[tuple[int, int, int | None]]:
    return [(s.header.writer, s.first, s.last) for s in chain(segments)[0]]


def test_each_segment_owns_what_lies_before_its_successor() -> None:
    assert owned(segment(1, 1), segment(1, 10), segment(1, 25)) == [
        (1, 1, 9),
        (1, 10, 24),
        (1, 25, None),
    ]


def test_a_void_belongs_to_nobody() -> None:
    assert owned(segment(1, 1), segment(2, 1000, void_from=5)) == [(1, 1, 4), (2, 1000, None)]


def test_what_a_loser_started_is_no_part_of_the_history() -> None:
    history, strays = chain([segment(1, 1), segment(1, 7), segment(2, 1000, void_from=5)])
    assert [s.first for s in history] == [1, 1000]
    assert [s.first for s in strays] == [7]


def test_a_segment_that_nothing_was_written_to_gives_way_to_the_next() -> None:
    empty, successor = segment(2, 1000, void_from=5), segment(3, 2000, void_from=5)
    assert owned(segment(1, 1), empty, successor) == [(1, 1, 4), (3, 2000, None)]


def test_names_sort_like_their_offsets_and_can_be_read_back() -> None:
    names = [name_of(first, 1) for first in (1, 10, 2**40, 2**63 - 1)]
    assert names == sorted(names)
    assert [parse_name(name) for name in names] == [(1, 1), (10, 1), (2**40, 1), (2**63 - 1, 1)]


@pytest.mark.parametrize("name", ["meta", "1-2.log.tmp", "1.log", "a-b.log", "1-2", ".log"])
def test_other_names_are_no_segments(name: str) -> None:
    assert parse_name(name) is None


def test_header_and_end_word_survive_the_loss_of_one_copy() -> None:
    header, end = Header(LINEAGE, 3, 100, 90, 17, True), End(120, 4711, True)
    whole = encode_header(header) + encode_end(end)
    for byte in range(len(whole)):
        damaged = whole[:byte] + bytes([whole[byte] ^ 1]) + whole[byte + 1 :]
        assert headers_in(damaged)[0] == header
        assert end_in(damaged) == end


def test_of_two_end_words_the_later_counts() -> None:
    old, new = encode_end(End(1, 300)), encode_end(End(2, 400))
    assert end_in(bytes(END_AT) + new[:32] + old[32:]) == End(2, 400)


def test_a_newer_format_is_refused_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FORMAT", module.FORMAT + 1)
    newer = encode_header(Header(LINEAGE, 1, 1, 1, 0))
    monkeypatch.undo()
    with pytest.raises(BadConfig, match="update Roskva"):
        headers_in(newer)
