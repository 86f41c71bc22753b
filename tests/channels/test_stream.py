"""What many are told is written straight to their sockets: on real ones, with uvloop."""

import asyncio
import socket

import uvloop

from roskva.channels.base import Copy, Frame, Stream
from roskva.channels.writing import NO_SOCKET, Write, write_one_by_one, writer
from roskva.wire.messages import ServerMessage

PIECE = b"0123456789" * 1000


class Told(asyncio.Protocol, Stream):
    def __init__(self) -> None:
        self.paused = False
        self.resumed = asyncio.Event()
        self.lost = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.over(transport)

    def pause_writing(self) -> None:
        self.paused = True

    def resume_writing(self) -> None:
        self.paused = False
        self.resumed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.left()
        self.lost.set_result(exc)

    def send(self, message: ServerMessage) -> None:
        raise NotImplementedError

    def broadcast(self, frame: Frame) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.transport.close()


async def connected() -> tuple[Told, socket.socket]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
    _, told = await asyncio.get_running_loop().create_connection(Told, sock=ours)
    return told, theirs


def tell(data: bytes, *streams: Told, write: Write = write_one_by_one) -> None:
    copy = Copy(data)
    copy.to.extend(streams)
    copy.flush(write)


def run(scenario: "asyncio._CoroutineLike[None]") -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario, 20))


def test_what_a_socket_does_not_take_at_once_follows_in_order() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        told, theirs = await connected()
        assert told.fd != NO_SOCKET
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
        told.close()
        theirs.close()
        await told.lost

    run(scenario())


def test_a_peer_that_is_gone_is_found_out_by_the_transport() -> None:
    async def scenario() -> None:
        told, theirs = await connected()
        told.transport.pause_reading()  # so that only writing can tell
        theirs.close()
        tell(PIECE, told)
        assert isinstance(await told.lost, OSError)

    run(scenario())


def test_a_socket_is_left_before_its_number_is_another_s() -> None:
    async def scenario() -> None:
        told, theirs = await connected()
        number = told.fd
        told.close()
        await told.lost
        assert told.fd == NO_SOCKET
        assert number != NO_SOCKET
        theirs.close()

    run(scenario())


def test_who_reads_slowly_among_many_gets_all_of_it_in_order() -> None:
    """With one call for all of them, where there is one."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        write = writer()
        pairs = [await connected() for _ in range(30)]
        slow, fast = pairs[::3], [pair for i, pair in enumerate(pairs) if i % 3]
        count = 0
        while not all(told.paused for told, _ in slow):
            piece = b"%09d " % count * 1000
            tell(piece, *(told for told, _ in pairs if not told.paused), write=write)
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
            tell(b"and on", *[told] * 10, write=write)
            told.close()
            while piece := await loop.sock_recv(theirs, 1 << 20):
                received += piece
            whole = b"".join(b"%09d " % number * 1000 for number in range(count))
            assert received.endswith(b"and on" * 10)
            assert whole.startswith(received.removesuffix(b"and on" * 10))
            assert len(received) > len(PIECE)
        for told, theirs in pairs:
            told.close()
            theirs.close()
            await told.lost

    run(scenario())
