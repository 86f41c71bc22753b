"""Whether the other end of a connection takes what was written to it."""

import asyncio
import socket
from typing import Any

import pytest
from tests.loops import run_within

from roskva.net.unread import reset, taken_by

PATIENCE_S = 30.0


async def _connected() -> tuple[asyncio.Transport, socket.socket]:
    """And its other end, which reads nothing by itself."""
    loop = asyncio.get_running_loop()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = socket.socket()
        other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        other.connect(listener.getsockname())
        accepted, _ = listener.accept()
    accepted.setblocking(False)
    transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, accepted)
    return transport, other


def test_what_is_taken_changes_it_until_nothing_is_left() -> None:
    async def scenario() -> None:
        transport, other = await _connected()
        with other:
            assert taken_by(transport) is None
            transport.write(bytes(1_000_000))
            await _until(lambda: taken_by(transport) is not None)
            stuck = await _at_rest(transport)
            other.setblocking(False)
            left = 1_000_000
            while left:
                try:
                    left -= len(other.recv(65536))
                except BlockingIOError:
                    await asyncio.sleep(0.001)
            await _until(lambda: taken_by(transport) is None)
            assert stuck is not None
            transport.abort()

    run_within(PATIENCE_S, scenario())


def test_reset_leaves_nothing_to_be_offered() -> None:
    async def scenario() -> None:
        transport, other = await _connected()
        with other:
            transport.write(bytes(1_000_000))
            await _until(lambda: taken_by(transport) is not None)
            reset(transport)
            await _until(lambda: not transport.get_write_buffer_size())
            other.settimeout(PATIENCE_S)
            with pytest.raises(ConnectionResetError):
                await asyncio.to_thread(_read_all, other)
            assert taken_by(transport) is None  # nor does it harm to ask

    run_within(PATIENCE_S, scenario())


def _read_all(conn: socket.socket) -> None:
    while conn.recv(65536):
        pass


async def _until(condition: Any) -> None:
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.001)


async def _at_rest(transport: asyncio.Transport) -> int | None:
    """Once nothing more is taken."""
    before, found = -1, taken_by(transport)
    while found != before:
        await asyncio.sleep(0.05)
        before, found = found or 0, taken_by(transport)
    return found
