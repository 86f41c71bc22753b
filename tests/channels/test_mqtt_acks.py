"""The acks of busy clients are read in pairs, straight from their sockets."""

import asyncio
import socket
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from tests.channels import mqtt_side as side
from tests.channels.mqtt_side import EPOCH, PINGREQ, Side, Told, X, Y, until
from tests.loops import in_loop

from roskva.channels.mqtt import acks
from roskva.channels.mqtt.acks import ONE_BYTE
from roskva.channels.mqtt.codes import V3, V5, Reason
from roskva.channels.mqtt.properties import RECEIVE_MAXIMUM
from roskva.core.effects import Acked, Closed, Lagging
from roskva.wire.messages import ServerError

FIRST = 4
"""The version after those that make a client busy: the first of a session goes the long way."""

Ends = tuple[socket.socket, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        theirs = socket.create_connection(listening.getsockname())
        ours, _ = listening.accept()
    with ours, theirs:
        ours.setblocking(False)
        theirs.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        theirs.settimeout(10)
        yield ours, theirs


async def in_time(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - nobody says when
        await asyncio.sleep(0.001)


class Client(Side):
    """At the other end of a socket. What it sends there is read when the connection asks for it."""

    def __init__(self, ends: Ends, version: int = V3) -> None:
        ours, self.socket = ends
        super().__init__(version, socket=ours)
        self.ours = ours
        self.last = 0

    def is_told(self) -> bytes:
        """The ack of the next version."""
        self.last += 1
        self.broadcast(X, self.last)
        told = Told(self.socket.recv(1000), self.version)
        assert told == (X, b"%d" % self.last)
        return side.puback(told.id)

    def acks(self, count: int) -> None:
        for _ in range(count):
            self.socket.send(self.is_told())

    def becomes_busy(self, *topics: str, **asked: Any) -> None:
        self.open(**asked)
        self.subscribe(*((topic, 1) for topic in (X, *topics)))
        while self.woken_by() == ONE_BYTE:
            self.receive(self.is_told())
            assert self.last < FIRST
        assert self.last == FIRST - 1

    def versions(self) -> list[int]:
        self.mqtt.acks.take()
        return [version for _, version, _ in self.acked()][FIRST - 1 :]

    def woken_by(self) -> int:
        return self.ours.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)


@in_loop
async def test_a_client_that_acks_now_and_then_is_not_busy(ends: Ends) -> None:
    one = Client(ends)
    one.open()
    one.subscribe((X, 1))
    for _ in range(3):
        one.receive(one.is_told())
        one.mqtt.acks.turn += 1
    assert one.woken_by() == ONE_BYTE


@in_loop
async def test_two_are_read_before_the_next_but_one_is_told(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.acks(2)
    assert one.versions() == []
    one.acks(2)
    assert one.versions() == [4, 5]
    one.acks(1)
    assert one.versions() == [4, 5, 6, 7]


@in_loop
async def test_one_is_read_if_only_one_is_there(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.acks(1)
    late = one.is_told()
    one.is_told()
    assert one.versions() == [4]
    one.socket.send(late)
    one.is_told()
    assert one.versions() == [4, 5]


@in_loop
async def test_a_client_that_does_not_ack_in_time_wakes_us_again(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    late = [one.is_told() for _ in range(3)]
    assert one.woken_by() == ONE_BYTE
    one.receive(*late)
    assert one.versions() == [4, 5, 6]


@in_loop
async def test_what_else_is_there_is_taken_after_them(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.acks(2)
    one.socket.send(PINGREQ + side.subscribe(V3, 7, ("app/y", 1))[:-3])
    ack = one.is_told()
    assert one.versions() == []  # the core was not to be disturbed
    await until(lambda: one.versions() == [4, 5])
    assert one.taken() == [b"\xd0\x00"]
    one.receive(side.subscribe(V3, 7, ("app/y", 1))[-3:] + ack)
    assert one.operations()[-1].object == "app/y"
    assert one.versions() == [4, 5, 6]


@in_loop
async def test_what_arrives_before_that_is_taken_waits_for_it(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.acks(2)
    one.socket.send(PINGREQ)
    one.receive(one.is_told())
    assert one.versions() == [4, 5, 6]


@in_loop
async def test_who_says_something_else_wakes_us_with_the_rest_of_it(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.socket.send(side.subscribe(V3, 7, ("app/y", 1))[:-3])
    assert not one.conn.hear()
    assert one.woken_by() == ONE_BYTE


@in_loop
async def test_nothing_is_read_while_packets_are_taken(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    ack = one.is_told()
    one.is_told()
    one.socket.send(ack)  # the end of a payload
    one.front.heard = one.is_told
    begun = side.publish(V3, "app/y", b"1234")
    one.receive(PINGREQ + begun[:-4])
    assert one.ours.recv(100) == ack


@in_loop
async def test_nothing_is_read_between_the_parts_of_a_packet(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    begun = [one.is_told(), one.is_told()]
    one.receive(begun[0][:2])
    one.socket.send(begun[0][2:] + begun[1])
    one.is_told()
    one.receive(one.ours.recv(100))
    assert one.versions() == [4, 5]


@in_loop
async def test_what_has_arrived_comes_before_what_is_read_while_others_are_told(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    said = side.subscribe(V3, 7, ("app/z", 1)) + side.unsubscribe(V3, 8, "app/z")
    one.is_told()
    one.is_told()
    one.socket.send(said[9:])
    one.front.handover.waiting.append(one.is_told)
    one.receive(said[:9])
    one.receive(one.ours.recv(100))
    done = [(each.object, each.register) for each in one.operations()[-2:]]
    assert done == [("app/z", True), ("app/z", False)]


@in_loop
async def test_what_is_in_flight_is_not_sent_again_although_its_ack_is_there(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.acks(2)
    one.broadcast(X, 5)
    one.broadcast(X, 4)
    one.last = 5
    one.is_told()
    assert one.told() == []


@in_loop
async def test_what_was_acked_is_not_sent_again_before_the_core_knows(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy(Y)
    one.acks(2)
    one.broadcast(Y, 1)  # this reads the acks
    assert Told(one.socket.recv(1000), V3) == (Y, b"1")
    one.broadcast(X, 4)
    one.notify(X, 5)
    one.is_told()
    assert one.told() == []
    assert one.versions() == [4, 5]
    one.notify(X, 5)  # the core knows, and wants it told again
    assert one.told() == [(X, b"5")]


@pytest.mark.parametrize("maximum", [1, 2])
@in_loop
async def test_a_client_with_a_small_window_is_not_busy(maximum: int, ends: Ends) -> None:
    one = Client(ends, V5)
    one.open(said={RECEIVE_MAXIMUM: maximum})
    one.subscribe((X, 1))
    for _ in range(5):
        one.receive(one.is_told())
    assert one.woken_by() == ONE_BYTE
    assert one.events(Lagging) == []


@in_loop
async def test_a_goodbye_behind_them_counts_although_the_core_ends_it(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy(will=("app/will", b"1"))
    one.acks(1)
    one.socket.send(side.DISCONNECT)
    one.conn.close()
    assert one.versions() == [4]
    one.lose()
    assert one.front.publishing == []


@in_loop
async def test_acks_are_heard_before_everybody_is_sent_away(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy()
    one.acks(2)
    one.mqtt.acks.hear_all()
    assert one.events(Acked)[-1].acks == {(X, 4, EPOCH): [one.conn], (X, 5, EPOCH): [one.conn]}


@in_loop
async def test_a_goodbye_behind_them_counts_although_the_end_is_found_first(ends: Ends) -> None:
    one = Client(ends)
    one.becomes_busy(will=("app/will", b"1"))
    one.acks(2)
    one.socket.send(side.DISCONNECT)
    one.is_told()
    one.lose()
    assert one.versions() == [4, 5]
    assert one.front.publishing == []


@in_loop
async def test_a_client_left_in_peace_wakes_us_again(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "TURN_S", 0.001)
    one = Client(ends)
    one.becomes_busy()
    one.acks(1)
    await in_time(lambda: one.woken_by() == ONE_BYTE)
    one.receive(one.ours.recv(100))
    assert one.versions() == [4]


@in_loop
async def test_one_that_is_lost_is_not_looked_after(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "TURN_S", 0.001)
    one = Client(ends)
    one.becomes_busy()
    wrong: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: wrong.append(context))
    one.lose()
    one.ours.close()
    assert one.mqtt.acks._busy == {}
    turn = one.mqtt.acks.turn
    await in_time(lambda: one.mqtt.acks._timer is None)
    assert one.mqtt.acks.turn == turn + 1  # nobody was left to look at
    assert wrong == []


@pytest.mark.parametrize("before", [True, False])
@in_loop
async def test_a_client_that_publishes_is_not_busy(before: bool, ends: Ends) -> None:
    one = Client(ends)
    one.open()
    one.subscribe((X, 1))
    published = side.publish(V3, "app/y", b"1")
    if before:
        one.receive(published)
    for _ in range(3):
        one.receive(one.is_told())
    if not before:
        one.receive(published)
    assert one.woken_by() == ONE_BYTE
    await asyncio.gather(*one.front.publishing)


# With the real transport.


class Connected(Client):
    """Over uvloop's transport."""

    def __init__(self, ends: Ends) -> None:
        super().__init__(ends, V5)
        self.conn = self.mqtt()

    async def begin(self) -> None:
        loop = asyncio.get_running_loop()
        await loop.create_connection(lambda: self.conn, sock=self.ours)
        await self.say(side.connect(V5))
        self.grant()
        await self.say(side.subscribe(V5, 1, (X, 1)))
        self.confirm(X)
        self.socket.recv(1000)
        while self.woken_by() == ONE_BYTE:
            await self.say(self.is_told())
        assert self.last == FIRST - 1

    async def say(self, data: bytes) -> None:
        """Until it was heard."""
        heard = len(self.front.order)
        self.socket.send(data)
        await in_time(lambda: len(self.front.order) > heard)


def on_uvloop(ends: Ends, test: Callable[[Connected], Coroutine[Any, Any, None]]) -> None:
    async def scenario() -> None:
        one = Connected(ends)
        await one.begin()
        try:
            await test(one)
        finally:
            one.conn.transport.abort()
            await in_time(lambda: one.events(Closed))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(scenario(), 120))


def test_acks_do_not_wake_us_but_other_packets_do(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "TURN_S", 60.0)

    async def scenario(one: Connected) -> None:
        one.acks(2)
        for _ in range(10):
            await asyncio.sleep(0)
        assert one.versions() == []
        await one.say(side.unsubscribe(V5, 2, X))
        assert one.versions() == [4, 5]

    on_uvloop(ends, scenario)


def test_in_the_end_acks_are_read_although_nothing_more_is_told(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "TURN_S", 60.0)

    async def scenario(one: Connected) -> None:
        one.acks(1)
        for _ in range(4):
            one.conn.acks._next_turn()
        await in_time(lambda: one.versions() == [4])

    on_uvloop(ends, scenario)


def test_our_last_words_reach_a_client_whose_ack_is_unread(
    ends: Ends, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acks, "TURN_S", 60.0)

    async def scenario(one: Connected) -> None:
        one.acks(1)
        one.send(error=ServerError("unavailable"))
        one.conn.close()
        await in_time(lambda: one.events(Closed))
        assert one.versions() == [4]
        goodbye = one.socket.recv(100)
        assert goodbye[:3] == bytes([0xE0, goodbye[1], Reason.SERVER_SHUTTING_DOWN])
        assert one.socket.recv(100) == b""

    on_uvloop(ends, scenario)
