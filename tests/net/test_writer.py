"""The same bytes to many connections: on real sockets, both ways, and over uvloop."""

import asyncio
import gc
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import uvloop

from roskva.net.writer import (
    MOST_AT_ONCE,
    Writer,
    WriteSockets,
    best_write,
    write_one_by_one,
)

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["together", "one by one"])
def write(request: pytest.FixtureRequest) -> WriteSockets:
    if request.param == "one by one":
        return write_one_by_one
    together = best_write()
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
def test_each_gets_all_of_it(
    write: WriteSockets, pairs: list[Pair], count: int, length: int
) -> None:
    data = os.urandom(length)
    assert write(numbers(pairs[:count]), data) == []
    assert all(received(pair) == data for pair in pairs[:count])


def test_the_next_may_be_others_and_of_another_length(
    write: WriteSockets, pairs: list[Pair]
) -> None:
    for data, some in ((b"first", pairs), (b"and second", pairs[20:50]), (b"3", pairs[40:])):
        assert write(numbers(some), data) == []
        assert all(received(pair) == data for pair in some)


def test_who_takes_nothing_is_named_and_the_others_get_it(
    write: WriteSockets, pairs: list[Pair]
) -> None:
    full = {0, 17, 18, 99}
    for place in full:
        fill(pairs[place])
    some = pairs[:100]
    assert write(numbers(some), b"news") == [(place, 0) for place in sorted(full)]
    assert all(received(pair) == b"news" for i, pair in enumerate(some) if i not in full)


def test_how_much_was_taken_is_known_to_the_byte(write: WriteSockets, pairs: list[Pair]) -> None:
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


def test_a_peer_that_is_gone_holds_nobody_up(write: WriteSockets, pairs: list[Pair]) -> None:
    pairs[5][1].close()
    assert write(numbers(pairs[:20]), b"news") == [(5, 0)]
    assert received(pairs[19]) == b"news"


def test_a_number_that_is_nobody_s_any_more_holds_nobody_up(
    write: WriteSockets, pairs: list[Pair]
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

    together = best_write()
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
    assert best_write() is write_one_by_one


# Transports.


class Buffered:
    """A transport that writes down what goes through it, and keeps some of it for a while."""

    def __init__(self, peer: socket.socket | None = None, tls: bool = False) -> None:
        self.info: dict[str, object] = {"socket": peer, "ssl_object": object() if tls else None}
        self.written = b""
        self.kept = 0
        self.limits: tuple[int | None, int | None] = (None, None)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self.info.get(name, default)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.limits = (high, low)

    def get_write_buffer_size(self) -> int:
        return self.kept

    def write(self, data: bytes) -> None:
        self.written += data


def entered(writer: Writer, transport: Buffered) -> int:
    return writer.enter(cast(asyncio.Transport, transport))


def never(sockets: object, data: bytes) -> list[tuple[int, int]]:
    raise AssertionError("no system call can succeed here")


def test_what_is_encrypted_or_has_no_socket_goes_through_its_transport(pairs: list[Pair]) -> None:
    writer, transports = Writer(never), [Buffered(pairs[0][0], tls=True), Buffered()]
    addresses = [entered(writer, transport) for transport in transports]
    assert max(addresses) <= -2
    assert len(set(addresses)) == 2
    assert transports[0].limits == (8192, 2048)
    assert transports[1].limits == (0, None)
    writer.write(addresses, b"news")
    assert [transport.written for transport in transports] == [b"news"] * 2


def test_some_of_each_kind_are_told_apart(write: WriteSockets, pairs: list[Pair]) -> None:
    writer = Writer(write)
    plain = [Buffered(ours) for ours, _ in pairs[:30]]
    tls = [Buffered(tls=True) for _ in range(30)]
    to = [entered(writer, each) for pair in zip(plain, tls, strict=True) for each in pair]
    writer.write(to, b"news")
    assert all(received(pair) == b"news" for pair in pairs[:30])
    assert {each.written for each in plain} == {b""}
    assert {each.written for each in tls} == {b"news"}


def test_more_than_go_into_one_call_are_several(write: WriteSockets, pairs: list[Pair]) -> None:
    writer = Writer(write)
    some = [entered(writer, Buffered(ours)) for ours, _ in pairs]
    writer.write([*some, *some[:20]], b"news")
    assert [len(received(pair)) for pair in pairs] == [8] * 20 + [4] * (len(pairs) - 20)


def test_nothing_overtakes_what_a_transport_still_holds(
    write: WriteSockets, pairs: list[Pair]
) -> None:
    """Also if it is told again before anybody has heard that it does not drain."""
    writer, transport = Writer(write), Buffered(pairs[0][0])
    address = entered(writer, transport)
    others = [entered(writer, Buffered(ours)) for ours, _ in pairs[1:20]]
    fill(pairs[0])
    writer.write([address, *others], b"first")
    transport.kept = len(transport.written)
    received(pairs[0])  # there is room again
    writer.write([address, *others], b"second")
    assert transport.written == b"firstsecond"
    transport.kept = 0
    writer.write([address, *others], b"third")
    assert received(pairs[0]).endswith(b"third")
    assert transport.written == b"firstsecond"
    assert all(received(pair) == b"firstsecondthird" for pair in pairs[1:20])


def test_who_has_left_is_not_written_to(write: WriteSockets, pairs: list[Pair]) -> None:
    writer, transport = Writer(write), Buffered(tls=True)
    address = entered(writer, transport)
    writer.leave(address)
    writer.write([address, -1], b"news")
    assert transport.written == b""
    assert entered(writer, Buffered()) != address


# Over uvloop.

PIECE = b"0123456789" * 1000


class Told(asyncio.Protocol):
    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        self.paused = False
        self.resumed = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.address = self.writer.enter(self.transport)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.writer.leave(self.address)
        self.lost.set_result(exc)


async def connected(writer: Writer) -> tuple[Told, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    loop = asyncio.get_running_loop()
    _, told = await loop.create_connection(lambda: Told(writer), sock=ours)
    return told, theirs


def tell(data: bytes, *some: Told) -> None:
    some[0].writer.write([told.address for told in some], data)


def run(scenario: "asyncio._CoroutineLike[None]") -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, 20))


def test_what_a_socket_does_not_take_at_once_follows_in_order() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        told, theirs = await connected(Writer())
        assert told.address >= 0
        count = 0
        while not told.paused:
            tell(PIECE, told)
            count += 1
        assert count > 1
        assert told.transport.get_write_buffer_size() > 0
        received = b""
        while len(received) < count * len(PIECE):
            received += await loop.sock_recv(theirs, 1 << 20)
        assert received == PIECE * count
        await told.resumed.wait()
        tell(b"and on", told)
        assert await loop.sock_recv(theirs, 100) == b"and on"
        told.transport.close()
        theirs.close()
        await told.lost

    run(scenario())


def test_a_peer_that_is_gone_is_found_out_by_the_transport() -> None:
    async def scenario() -> None:
        told, theirs = await connected(Writer())
        told.transport.pause_reading()  # so that only writing can tell
        theirs.close()
        tell(PIECE, told)
        assert isinstance(await told.lost, OSError)

    run(scenario())


def test_who_reads_slowly_among_many_gets_all_of_it_in_order() -> None:
    """With one call for all of them, where there is one."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        writer = Writer()
        pairs = [await connected(writer) for _ in range(30)]
        slow, fast = pairs[::3], [pair for i, pair in enumerate(pairs) if i % 3]
        count = 0
        while not all(told.paused for told, _ in slow):
            piece = b"%09d " % count * 1000
            tell(piece, *(told for told, _ in pairs if not told.paused))
            for _, theirs in fast:
                received = b""
                while len(received) < len(piece):
                    received += await loop.sock_recv(theirs, 1 << 20)
                assert received == piece
            count += 1
        for told, theirs in slow:
            received = b""
            while told.paused or told.transport.get_write_buffer_size():
                received += await loop.sock_recv(theirs, 1 << 20)
            tell(b"and on", *[told] * 10)
            told.transport.close()
            while piece := await loop.sock_recv(theirs, 1 << 20):
                received += piece
            whole = b"".join(b"%09d " % number * 1000 for number in range(count))
            assert received.endswith(b"and on" * 10)
            assert whole.startswith(received.removesuffix(b"and on" * 10))
            assert len(received) > len(PIECE)
        for told, theirs in pairs:
            told.transport.close()
            theirs.close()
            await told.lost

    run(scenario())
