"""An application's own channel, seen from the node."""

import asyncio
from collections.abc import Callable

import pytest
from tests.loops import in_loop, until

from roskva.answer import Answered
from roskva.channels.connections import Connections
from roskva.channels.own import HIGH_WATER_BYTES, OwnChannel, own_channel
from roskva.core.effects import Closed, Drained, Event, Lagging, Opened
from roskva.errors import BadConfig, Unauthorised
from roskva.host.delivery import Announcement, OwnDelivery
from roskva.model import NOBODY, Principal
from roskva.net.writer import Writer
from roskva.wire.codec import decode_from_server, encode
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    FromClient,
    Hello,
    Notification,
    ServerMessage,
)

HELLO = Hello(PROTOCOL, b"12345678", app="chat", credential="jwt")


class Front:
    """What a connection says of itself to its node."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.heard: list[tuple[Principal, FromClient]] = []
        self.shown: list[str | None] = []
        self.known = True
        self.writer = Writer()

    def step(self, event: Event) -> None:
        self.events.append(event)

    def received(self, conn: OwnDelivery, principal: Principal, message: FromClient) -> None:
        self.heard.append((principal, message))

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        self.shown.append(credential)
        answered(NOBODY if self.known else Unauthorised("nobody we know"))

    @property
    def delivery(self) -> OwnDelivery:
        opened = self.events[0]
        assert isinstance(opened, Opened)
        assert isinstance(opened.conn, OwnDelivery)
        return opened.conn


class Pipe:
    """The application's connection; what it takes may be held back."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[bytes | Exception | None] = asyncio.Queue()
        self.sent: list[ServerMessage] = []
        self.free = asyncio.Event()
        self.free.set()

    def say(self, message: FromClient) -> None:
        self.said.put_nowait(encode(message))

    async def send(self, message: bytes) -> None:
        await self.free.wait()
        self.sent.append(decode_from_server(message))

    async def receive(self) -> bytes | None:
        said = await self.said.get()
        if isinstance(said, Exception):
            raise said
        return said


async def _serves_nobody(attach: object) -> None:
    await asyncio.Event().wait()


Attached = tuple[Front, Pipe, asyncio.Task[None]]


def attached(
    front: Front, handshake_s: float = 60.0, credential: str | None = None, most: int = 1000
) -> Attached:
    pipe, connections = Pipe(), Connections(most)
    channel = OwnChannel(front, connections, _serves_nobody, 1000, handshake_s)  # type: ignore[arg-type]
    return front, pipe, asyncio.create_task(channel.attach(pipe, credential))


async def greeted() -> Attached:
    front, pipe, serving = attached(Front())
    pipe.say(HELLO)
    await until(lambda: len(front.heard) == 1)
    return front, pipe, serving


def announce(front: Front, version: int, size: int = 0) -> Lagging | None:
    notification = Notification("chat/lobby", version, 1, b"x" * size)
    announcement = Announcement(ServerMessage(PROTOCOL, notifications=[notification]), 7)
    lagging = front.delivery.notify(announcement)
    for write in announcement.writes():
        front.writer.write(write.addresses, write.data)
    return lagging


@in_loop
async def test_carries_messages_both_ways_until_the_client_goes() -> None:
    front, pipe, serving = await greeted()
    assert front.heard == [(NOBODY, HELLO)]
    assert front.shown == ["jwt"]
    assert front.delivery.channel == "own"
    front.delivery.connection.send(ServerMessage(PROTOCOL, session=7))
    announce(front, 42)
    await until(lambda: len(pipe.sent) == 2)
    assert [message.session for message in pipe.sent] == [7, None]
    assert pipe.sent[1].notifications[0].version == 42
    message = ClientMessage(PROTOCOL, 7, 1)
    pipe.say(message)
    pipe.said.put_nowait(None)
    await serving
    assert front.heard[1:] == [(NOBODY, message)]
    assert [type(event) for event in front.events] == [Opened, Closed]


@in_loop
async def test_credential_of_the_connection_counts_where_the_hello_has_none() -> None:
    front, pipe, serving = attached(Front(), credential="of the connection")
    pipe.say(Hello(PROTOCOL, b"12345678", app="chat"))
    await until(lambda: front.shown == ["of the connection"])
    front.known = False
    pipe.say(HELLO)
    await until(lambda: len(pipe.sent) == 1)
    assert pipe.sent[0].error is not None
    assert pipe.sent[0].error.code == "unauthorised"
    pipe.said.put_nowait(None)
    await serving


@in_loop
async def test_one_that_does_not_take_what_it_is_sent_is_left_out_and_says_when_it_can() -> None:
    front, pipe, serving = await greeted()
    pipe.free.clear()
    version = 0
    while not any(isinstance(event, Lagging) for event in front.events):
        version += 1
        announce(front, version, size=800)
        await asyncio.sleep(0)
    assert version < 2 + HIGH_WATER_BYTES / 800
    assert announce(front, version + 1) == Lagging(front.delivery, 7)
    pipe.free.set()
    await until(lambda: any(isinstance(event, Drained) for event in front.events))
    assert announce(front, version + 2) is None
    await until(lambda: pipe.sent[-1].notifications[0].version == version + 2)
    assert len(pipe.sent) == version + 1
    pipe.said.put_nowait(None)
    await serving


@in_loop
async def test_one_that_asks_for_more_than_it_reads_is_not_read_from() -> None:
    front, pipe, serving = await greeted()
    pipe.free.clear()
    large = ServerMessage(
        PROTOCOL, notifications=[Notification("chat/lobby", 1, 1, b"x" * 16_000)] * 3
    )
    for number in range(1, 10):
        front.delivery.connection.send(large)
        pipe.say(ClientMessage(PROTOCOL, 7, number))
    await until(lambda: pipe.said.qsize() <= 8)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(front.heard) <= 3
    pipe.free.set()
    await until(lambda: len(front.heard) == 10)
    pipe.said.put_nowait(None)
    await serving


@in_loop
async def test_what_the_core_says_last_leaves_before_the_end() -> None:
    front, pipe, serving = await greeted()
    front.delivery.connection.send(ServerMessage(PROTOCOL, not_before_ms=5))
    front.delivery.connection.close()
    await serving
    assert [message.not_before_ms for message in pipe.sent] == [5]


@in_loop
async def test_one_that_takes_nothing_at_its_end_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("roskva.channels.own._CLOSING_S", 0.02)
    front, pipe, serving = await greeted()
    pipe.free.clear()
    front.delivery.connection.send(ServerMessage(PROTOCOL, not_before_ms=5))
    front.delivery.connection.close()
    await serving
    assert pipe.sent == []


@in_loop
async def test_who_says_no_hello_in_time_is_gone() -> None:
    front, pipe, serving = attached(Front(), handshake_s=0.02)
    pipe.say(ClientMessage(PROTOCOL, 7, 1))  # of a session that is no more
    await serving
    assert isinstance(front.events[-1], Closed)


@in_loop
async def test_what_is_no_message_is_refused_and_not_for_long() -> None:
    _, pipe, serving = attached(Front())
    pipe.said.put_nowait(b"x" * 1001)
    for _ in range(20):
        pipe.said.put_nowait(b"rubbish")
    await serving
    codes = [message.error.code for message in pipe.sent if message.error is not None]
    assert codes == ["too_large", *["bad_message"] * 9]


@in_loop
@pytest.mark.parametrize(("error", "logged"), [(ConnectionResetError(), 0), (LookupError(), 1)])
async def test_channel_that_raises_has_ended(
    error: Exception, logged: int, caplog: pytest.LogCaptureFixture
) -> None:
    front, pipe, serving = await greeted()
    pipe.said.put_nowait(error)
    await serving
    assert isinstance(front.events[-1], Closed)
    assert len(caplog.records) == logged


@in_loop
async def test_full_node_says_when_to_come_back() -> None:
    front = Front()
    _, pipe, serving = attached(front, most=0)
    await serving
    assert front.events == []
    assert pipe.sent[0].not_before_ms == 10_000
    assert pipe.sent[0].error is not None
    assert pipe.sent[0].error.code == "overloaded"


@in_loop
async def test_channel_that_ends_ends_the_node() -> None:
    async def ends(attach: object) -> None:
        return None

    async def raises(attach: object) -> None:
        raise OSError("port 7700 is taken")

    serves: list[tuple[Callable[[object], object], type[Exception], str]] = [
        (ends, BadConfig, "has ended"),
        (raises, OSError, "7700"),
    ]
    for serve, kind, text in serves:
        channel = OwnChannel(Front(), Connections(1000), serve, 1000, 60.0)  # type: ignore[arg-type]
        with pytest.raises(kind, match=text):
            await channel.run()


@pytest.mark.parametrize("named", ["nothing", "no.such:serve", "json:serve", ":", "json:__name__"])
def test_channel_that_cannot_be_loaded_says_what_to_do(named: str) -> None:
    with pytest.raises(BadConfig, match="channel"):
        own_channel(named)
