"""A WebSocket whose peer does not read, or is gone."""

import asyncio
from types import SimpleNamespace
from typing import Any

from roskva.channels.base import MAX_UNREAD_BYTES
from roskva.channels.connections import Connections
from roskva.channels.deadlines import Deadlines
from roskva.channels.websocket import WebSocket
from roskva.core.effects import Drained, Event, Lagging
from roskva.host.delivery import Announcement
from roskva.net.writer import Writer, write_one_by_one
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

WRITER = Writer(write_one_by_one)


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []
        self.unread = 0
        self.reading, self.aborted = True, False

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        self.written.append(data)


def connected() -> tuple[Any, Transport, list[Event]]:
    events: list[Event] = []
    sockets: Any = SimpleNamespace(
        front=SimpleNamespace(step=events.append, writer=WRITER),
        max_bytes=1024,
        addresses=SimpleNamespace(leave=lambda address: None),
        connections=Connections(10),
        unread=Deadlines(60.0, WebSocket.check_reading),
    )
    conn: Any = WebSocket(sockets, None, SimpleNamespace(connections=set()), None)
    transport = Transport()
    conn.connection_made(transport)
    return conn, transport, events


def broadcast(conn: WebSocket, version: int, step: int) -> None:
    message = ServerMessage(PROTOCOL, notifications=[Notification("app/x", version, 1)])
    announcement = Announcement(message, step)
    lagging = conn.delivery.notify(announcement)
    for write in announcement.writes():
        WRITER.write(write.addresses, write.data)
    if lagging is not None:
        conn._front.step(lagging)


def test_what_else_is_told_in_the_step_in_which_it_lags_is_left_out_and_caught_up_with() -> None:
    conn, transport, events = connected()
    broadcast(conn, 1, step=7)
    conn.pause_writing()
    broadcast(conn, 2, step=7)
    assert len(transport.written) == 1
    assert events == [Lagging(conn.delivery), Lagging(conn.delivery, 7)]
    conn.resume_writing()
    broadcast(conn, 3, step=9)
    assert len(transport.written) == 2
    assert events[2:] == [Drained(conn.delivery)]


def test_nothing_is_written_to_it_after_its_end() -> None:
    conn, transport, _ = connected()
    conn.connection_lost(None)
    broadcast(conn, 1, step=7)
    assert transport.written == []


def held() -> tuple[Any, Transport]:
    """It has asked for more than it reads."""
    conn, transport, _ = connected()
    conn.pause_writing()
    assert conn not in conn._sockets.unread  # notifications may wait for ever
    transport.unread = MAX_UNREAD_BYTES + 1
    conn.send(ServerMessage(PROTOCOL, notifications=[Notification("app/x", 1, 1)]))
    assert not transport.reading
    assert conn in conn._sockets.unread
    return conn, transport


def test_who_takes_nothing_of_its_answers_is_cut_off() -> None:
    async def scenario() -> None:
        conn, transport = held()
        conn.check_reading()
        assert transport.aborted

    asyncio.run(scenario())


def test_who_takes_a_little_is_looked_at_again_until_it_has_all() -> None:
    async def scenario() -> None:
        conn, transport = held()
        transport.unread -= 1
        conn.check_reading()
        assert not transport.aborted
        conn.resume_writing()
        assert transport.reading
        assert conn not in conn._sockets.unread

    asyncio.run(scenario())
