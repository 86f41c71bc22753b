"""The same bytes to many sockets: both ways on real ones."""

import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from roskva.channels.writing import (
    MOST_AT_ONCE,
    NO_SOCKET,
    Write,
    write_one_by_one,
    writer,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["together", "one by one"])
def write(request: pytest.FixtureRequest) -> Write:
    if request.param == "one by one":
        return write_one_by_one
    together = writer()
    if together is write_one_by_one:
        pytest.skip("this system has no io_submit, or forbids it")
    return together


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(MOST_AT_ONCE)]
    for pair in made:
        for end in pair:
            end.setblocking(False)
    yield made
    for pair in made:
        for end in pair:
            end.close()


def numbers(pairs: list[Pair]) -> list[int]:
    return [ours.fileno() for ours, _ in pairs]


def received(pair: Pair) -> bytes:
    return pair[1].recv(1 << 20)


def fill(pair: Pair) -> int:
    """Until it takes no more. How much that was."""
    filled = 0
    while True:
        try:
            filled += pair[0].send(b"x" * 1000)
        except BlockingIOError:
            return filled


@pytest.mark.parametrize("count", [0, 1, 8, 9, 100, MOST_AT_ONCE])
@pytest.mark.parametrize("length", [1, 30, 20_000])
def test_each_gets_all_of_it(write: Write, pairs: list[Pair], count: int, length: int) -> None:
    data = os.urandom(length)
    assert write(numbers(pairs[:count]), data) == []
    assert all(received(pair) == data for pair in pairs[:count])


def test_the_next_may_be_others_and_of_another_length(write: Write, pairs: list[Pair]) -> None:
    for data, some in ((b"first", pairs), (b"and second", pairs[20:50]), (b"3", pairs[40:])):
        assert write(numbers(some), data) == []
        assert all(received(pair) == data for pair in some)


def test_who_takes_nothing_is_named_and_the_others_get_it(write: Write, pairs: list[Pair]) -> None:
    full = {0, 17, 18, 99}
    for place in full:
        fill(pairs[place])
    some = pairs[:100]
    assert write(numbers(some), b"news") == [(place, 0) for place in sorted(full)]
    assert all(received(pair) == b"news" for i, pair in enumerate(some) if i not in full)


def test_how_much_was_taken_is_known_to_the_byte(write: Write, pairs: list[Pair]) -> None:
    data = os.urandom(1 << 20)
    some = pairs[:20]
    short = write(numbers(some), data)
    assert [place for place, _ in short] == list(range(20))
    for (ours, theirs), (_, taken) in zip(some, short, strict=True):
        assert 0 < taken < len(data)
        ours.shutdown(socket.SHUT_WR)
        got = bytearray()
        while piece := theirs.recv(1 << 20):
            got += piece
        assert bytes(got) == data[:taken]


def test_what_is_no_socket_holds_nobody_up(write: Write, pairs: list[Pair]) -> None:
    some = numbers(pairs[:20])
    some[0] = some[7] = some[8] = some[19] = NO_SOCKET
    assert write(some, b"news") == [(0, 0), (7, 0), (8, 0), (19, 0)]
    assert all(
        received(pair) == b"news" for pair, number in zip(pairs, some, strict=False) if number >= 0
    )


def test_nor_does_a_peer_that_is_gone(write: Write, pairs: list[Pair]) -> None:
    pairs[5][1].close()
    assert write(numbers(pairs[:20]), b"news") == [(5, 0)]
    assert received(pairs[19]) == b"news"


def test_a_number_that_is_nobody_s_any_more_holds_nobody_up(
    write: Write, pairs: list[Pair]
) -> None:
    some = numbers(pairs[:20])
    for place in (0, 7, 8, 19):
        pairs[place][0].close()
    assert write(some, b"news") == [(0, 0), (7, 0), (8, 0), (19, 0)]
    assert all(received(pairs[i]) == b"news" for i in range(20) if i not in (0, 7, 8, 19))


def test_what_the_kernel_keeps_for_it_is_given_back() -> None:
    def kept() -> int:
        gc.collect()
        return Path("/proc/self/maps").read_text().count("/[aio]")

    together = writer()
    if together is write_one_by_one:
        pytest.skip("this system has no io_submit, or forbids it")
    before = kept()
    assert before > 0
    del together
    assert kept() == before - 1


@pytest.mark.parametrize(("system", "machine"), [("Darwin", "x86_64"), ("Linux", "s390x")])
def test_where_there_is_no_such_call_each_is_written_to(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("platform.system", lambda: system)
    monkeypatch.setattr("platform.machine", lambda: machine)
    assert writer() is write_one_by_one
