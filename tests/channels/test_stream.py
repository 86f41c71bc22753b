"""What many are told is written straight to their sockets: on real ones, with uvloop."""

import asyncio
import socket

import uvloop

from roskva.channels.base import NO_SOCKET, Copy, Frame, Stream
from roskva.channels.writing import write_one_by_one
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


def tell(told: Told, data: bytes) -> None:
    copy = Copy(data)
    copy.to.append(told)
    copy.flush(write_one_by_one)


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
            tell(told, PIECE)
            count += 1
        assert count > 1
        assert told.transport.get_write_buffer_size() > 0
        received = b""
        while len(received) < count * len(PIECE):
            received += await loop.sock_recv(theirs, 1 << 20)
        assert received == PIECE * count
        await told.resumed.wait()
        tell(told, b"and on")
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
        tell(told, PIECE)
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
