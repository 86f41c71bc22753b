"""A WebSocket whose peer does not read, or is gone."""

from types import SimpleNamespace
from typing import Any

from roskva.channels.websocket import WebSocket
from roskva.core.effects import Drained, Event, Lagging
from roskva.host.delivery import Announcement
from roskva.net.writer import Writer, write_one_by_one
from roskva.wire.messages import PROTOCOL, Notification, ServerMessage

WRITER = Writer(write_one_by_one)


class Transport:
    def __init__(self) -> None:
        self.written: list[bytes] = []

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def get_extra_info(self, name: str) -> None:
        return None

    def write(self, data: bytes) -> None:
        self.written.append(data)


def connected() -> tuple[Any, Transport, list[Event]]:
    events: list[Event] = []
    sockets: Any = SimpleNamespace(
        front=SimpleNamespace(step=events.append, writer=WRITER),
        max_bytes=1024,
        addresses=SimpleNamespace(leave=lambda address: None),
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
