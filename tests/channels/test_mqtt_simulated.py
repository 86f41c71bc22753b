"""A whole MQTT connection in virtual time: no event loop, no socket, real packets."""

import asyncio
from collections.abc import Callable

import pytest
from tests.channels import mqtt_side as side
from tests.channels.mqtt_side import EPOCH, RecordingFront, Side, X, channel

from roskva.core.effects import Attached, Closed, Event
from roskva.wire.mqtt.codes import V3, V5


class VirtualTimer:
    def __init__(self, at: float, call: Callable[[], object]) -> None:
        self.at = at
        self.call = call

    def cancel(self) -> None:
        self.call = lambda: None


class VirtualClock:
    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[VirtualTimer] = []

    def later(self, seconds: float, call: Callable[[], object]) -> VirtualTimer:
        timer = VirtualTimer(self.now + seconds, call)
        self.timers.append(timer)
        return timer

    def pass_time(self, seconds: float) -> None:
        end = self.now + seconds
        while due := sorted((t for t in self.timers if t.at <= end), key=lambda timer: timer.at):
            self.now = due[0].at
            self.timers.remove(due[0])
            due[0].call()
        self.now = end


class Node(RecordingFront):
    """Grants the session, confirms what is subscribed to, and then tells of it: all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.heard = self.hear

    def serve(self, one: Side) -> None:
        self.one = one

    def step(self, event: Event) -> None:
        super().step(event)
        if type(event) is Attached:
            self.one.grant()

    def hear(self) -> None:
        if self.messages[-1].operations:
            self.one.confirm(X)
            self.one.broadcast(X, 7)


def connected(version: int) -> tuple[Side, VirtualClock]:
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    node, clock = Node(), VirtualClock()
    one = Side(version, node, channel(node, clock.later, handshake_timeout_s=3))
    node.serve(one)
    return one, clock


def said(version: int) -> bytes:
    return (
        side.connect(version, keep_alive=10)
        + side.subscribe(version, 1, (X, 1))
        + side.puback(1)
        + side.PINGREQ
    )


def answered(version: int, *pieces: bytes) -> bytes:
    one, clock = connected(version)
    for piece in pieces:
        one.conn.data_received(piece)
    clock.pass_time(0)
    assert one.acked() == [(X, 7, EPOCH)]
    return one.transport.written


@pytest.mark.parametrize("version", [V3, V5])
def test_from_connect_to_puback_wherever_the_bytes_are_cut(version: int) -> None:
    data = said(version)
    whole = answered(version, data)
    assert [packet[0] >> 4 for packet in side.split(whole)] == [2, 9, 3, 13]
    for cut in range(1, len(data)):
        assert answered(version, data[:cut], data[cut:]) == whole
    assert answered(version, *(data[i : i + 1] for i in range(len(data)))) == whole


def test_who_is_silent_is_sent_away_in_virtual_time() -> None:
    one, clock = connected(V3)
    one.conn.data_received(said(V3))
    clock.pass_time(14)
    assert not one.transport.closed
    clock.pass_time(3)
    assert one.transport.closed
    one.lose()
    assert one.events(Closed) == [Closed(one.delivery)]


def test_who_never_says_connect_is_sent_away_in_virtual_time() -> None:
    one, clock = connected(V3)
    clock.pass_time(2.9)
    assert not one.transport.closed
    clock.pass_time(0.2)
    assert one.transport.closed
