"""The far side of an MQTT connection: a client that speaks bytes, and a node that writes down."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from roskva.answer import Answered
from roskva.channels.base import Later, Outcomes, ScheduledCall
from roskva.channels.connections import Connections
from roskva.channels.mqtt import MqttChannel, MqttLimits
from roskva.channels.mqtt.connection import MqttConnection
from roskva.channels.peers import Addresses, Peers
from roskva.core.effects import Acked, Event
from roskva.errors import RoskvaError, Unauthorised
from roskva.host.delivery import Announcement, Delivery
from roskva.host.mqtt import MqttDelivery
from roskva.model import NOBODY, Key, Principal, Update
from roskva.net.writer import Writer, write_one_by_one
from roskva.wire.messages import (
    PROTOCOL,
    ClientMessage,
    FromClient,
    Notification,
    Operation,
    OperationStatus,
    ServerDigest,
    ServerMessage,
)
from roskva.wire.mqtt import fields as p
from roskva.wire.mqtt.codes import V3, V5
from roskva.wire.mqtt.fields import Properties, Reader, binary, string, u16, varint

X, Y = "app/x", "app/y"
ADDRESSES = Addresses(Peers(()), 1000)
EPOCH = 9
SESSION = 5


async def until(condition: Callable[[], object]) -> None:
    """Within a few turns of the loop; nothing here waits for time to pass."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came to that")


# What clients send.


def packet(first: int, body: bytes) -> bytes:
    return bytes([first]) + varint(len(body)) + body


def properties(version: int, said: Properties = p.NONE) -> bytes:
    return p.write_properties(said) if version == V5 else b""


def connect(
    version: int = V3,
    client: str = "device",
    clean: bool = True,
    keep_alive: int = 60,
    will: tuple[str, bytes] | None = None,
    user: str | None = None,
    password: bytes | None = None,
    said: Properties = p.NONE,
    will_said: Properties = p.NONE,
    will_flags: int = 0,
) -> bytes:
    flags = 2 * clean | 0x80 * (user is not None) | 0x40 * (password is not None)
    body = string(client)
    if will is not None:
        flags |= 0x04 | will_flags
        body += properties(version, will_said) + string(will[0]) + binary(will[1])
    if user is not None:
        body += string(user)
    if password is not None:
        body += binary(password)
    head = string("MQTT") + bytes([version, flags]) + u16(keep_alive) + properties(version, said)
    return packet(0x10, head + body)


def subscribe(version: int, id: int, *filters: tuple[str, int], said: Properties = p.NONE) -> bytes:
    """Topics with their option bytes: the QoS, on 3.1.1."""
    body = b"".join(string(topic) + bytes([options]) for topic, options in filters)
    return packet(0x82, u16(id) + properties(version, said) + body)


def unsubscribe(version: int, id: int, *topics: str) -> bytes:
    return packet(0xA2, u16(id) + properties(version) + b"".join(map(string, topics)))


def publish(
    version: int, topic: str, payload: bytes, qos: int = 0, id: int = 0, flags: int = 0
) -> bytes:
    named = string(topic) + (u16(id) if qos else b"") + properties(version)
    return packet(0x30 | qos << 1 | flags, named + payload)


def puback(id: int) -> bytes:
    return packet(0x40, u16(id))


def pubrel(id: int) -> bytes:
    return packet(0x62, u16(id))


PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"


# What they receive.


def split(data: bytes) -> list[bytes]:
    packets: list[bytes] = []
    while data:
        reader = Reader(data[1:])
        length = reader.varint()
        end = len(data) - reader.left() + length
        packets.append(data[:end])
        data = data[end:]
    return packets


class Told:
    """A PUBLISH from the server, taken apart."""

    def __init__(self, data: bytes, version: int) -> None:
        reader = Reader(data[1:])
        reader.varint()
        self.retain, self.qos, self.dup = data[0] & 1, data[0] >> 1 & 3, data[0] >> 3 & 1
        self.topic = reader.string()
        self.id = reader.u16() if self.qos else 0
        self.said = p.read_properties(reader, p.WILL) if version == V5 else p.NONE
        self.payload = reader.rest()

    def __eq__(self, other: object) -> bool:
        return other == (self.topic, self.payload)

    def __repr__(self) -> str:
        return f"({self.topic!r}, {self.payload!r})"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.unread = 0
        self.reading = True
        self.closed = self.aborted = False
        self.watermarks: tuple[int | None, int | None] = (None, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after the end"
        self.written += bytes(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self.watermarks = (high, low)

    def get_write_buffer_size(self) -> int:
        return self.unread

    def pause_reading(self) -> None:
        assert self.reading
        self.reading = False

    def resume_reading(self) -> None:
        assert not self.reading
        self.reading = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True


class RecordingFront:
    """A node that lets everybody in, writes down what it is told, and publishes when asked to."""

    def __init__(self, assigned: bool = False) -> None:
        self.assigned = assigned
        self.events: list[Event] = []
        self.order: list[str] = []
        """Of events and messages, by the names of their types."""
        self.messages: list[ClientMessage] = []
        self.published: list[Update] = []
        self.results: list[int | RoskvaError] = []
        """Of the next updates; after that, their version, or 100 where one is assigned."""
        self.publishing: list[asyncio.Future[None]] = []
        self.writer = Writer(write_one_by_one)
        self.gate = asyncio.Event()
        self.gate.set()
        self.identified: list[tuple[str | None, str | None]] = []
        self.principal: Principal | RoskvaError = NOBODY
        self.kept_s: float | None = None
        self.ready = True
        self.not_here: set[str] = set()
        """Apps that are not used over MQTT."""
        self.heard: Callable[[], object] = lambda: None
        """What happens when a client has said something."""

    def step(self, event: Event) -> None:
        self.events.append(event)
        self.order.append(type(event).__name__)

    def received(self, conn: Delivery, principal: Principal, message: FromClient) -> None:
        assert isinstance(message, ClientMessage)
        self.messages.append(message)
        self.order.append(type(message).__name__)
        self.heard()

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        self.identified.append((app, credential))
        answered(self.principal)

    def check_channel(self, app: str, channel: str) -> None:
        if app in self.not_here:
            raise Unauthorised(f"{app} is not used over {channel} here")

    def assigns_versions(self, app: str) -> bool:
        return self.assigned

    def keeps_clients_s(self, app: str) -> float | None:
        return self.kept_s

    async def check_registering(self, principal: Principal, keys: Sequence[Key]) -> None:
        raise NotImplementedError

    def check_publishing(self, principal: Principal, body_bytes: int) -> None:
        pass

    def publish(self, principal: Principal, updates: Sequence[Update], answered: Outcomes) -> None:
        self.publishing.append(asyncio.ensure_future(self._publish(updates, answered)))

    async def _publish(self, updates: Sequence[Update], answered: Outcomes) -> None:
        await self.gate.wait()
        self.published += updates
        results = self.results
        answered([results.pop(0) if results else max(update.version, 100) for update in updates])

    async def reset(self, principal: Principal, key: Key) -> None:
        raise NotImplementedError

    async def read(self, principal: Principal, key: Key) -> Notification:
        raise NotImplementedError


def later(seconds: float, call: Callable[[], object]) -> ScheduledCall:
    """On the loop that runs when it is needed."""
    loop = asyncio.get_running_loop()
    return loop.call_later(seconds, call) if seconds else loop.call_soon(call)


def channel(
    front: RecordingFront | None = None,
    later: Later = later,
    connections: Connections | None = None,
    **limits: Any,
) -> MqttChannel:
    connections = connections or Connections(1000)
    front = front or RecordingFront()
    return MqttChannel(front, ADDRESSES, connections, MqttLimits(**limits), later)


class Side:
    """One connection between a client that the test plays and a node that it plays too."""

    def __init__(
        self,
        version: int = V3,
        front: RecordingFront | None = None,
        mqtt: MqttChannel | None = None,
        **limits: Any,
    ) -> None:
        self.version = version
        self.front = front or RecordingFront()
        self.mqtt = mqtt or channel(self.front, **limits)
        self.conn: MqttConnection = self.mqtt()
        self.transport = FakeTransport()
        self.conn.connection_made(self.transport)
        self.delivery: MqttDelivery = self.conn.delivery
        self.step = 0

    # The client.

    def receive(self, *packets: bytes) -> None:
        for data in packets:
            self.conn.data_received(data)
        self.mqtt.take_acks()  # as at the end of a turn of the loop

    def taken(self) -> list[bytes]:
        """What was sent to the client since it was last asked."""
        written, self.transport.written = self.transport.written, b""
        return split(written)

    def told(self) -> list[Told]:
        return [Told(data, self.version) for data in self.taken() if data[0] >> 4 == 3]

    def lose(self) -> None:
        self.transport.closed = True
        self.conn.connection_lost(None)

    # The node.

    def grant(self, count: int = 0) -> None:
        self.send(digest=ServerDigest(count, 1, 0))

    def send(self, **parts: Any) -> None:
        self.conn.send(ServerMessage(PROTOCOL, session=SESSION, **parts))
        self.mqtt.take_acks()

    def notify(self, key: Key, version: int | None, payload: bytes | None = None) -> None:
        """To this session alone."""
        self.send(notifications=[Notification(key, version, EPOCH, payload)])

    def broadcast(
        self, key: Key, version: int | None, payload: bytes | None = None
    ) -> Announcement:
        self.step += 1
        notification = Notification(key, version, EPOCH, payload)
        message = ServerMessage(PROTOCOL, notifications=[notification])
        announcement = Announcement(message, self.step)
        self.hear(announcement)
        return announcement

    def hear(self, announcement: Announcement) -> None:
        lagging = self.delivery.notify(announcement)
        for write in announcement.writes():
            self.front.writer.write(write.addresses, write.data)
        if lagging is not None:
            self.front.step(lagging)

    def confirm(self, *keys: Key, code: str | None = None) -> None:
        number = self.front.messages[-1].number
        self.send(statuses=[OperationStatus(key, code is None, number, code) for key in keys])

    # Both.

    def open(self, count: int = 0, **asked: Any) -> None:
        """As far as a session; resumed if there is a count of registrations."""
        self.receive(connect(self.version, clean=not count, **asked))
        self.grant(count)
        self.taken()

    def subscribe(self, *filters: tuple[str, int]) -> None:
        self.receive(subscribe(self.version, 1, *filters))
        self.confirm(*(topic for topic, _ in filters))
        self.taken()

    def operations(self) -> list[Operation]:
        return [operation for message in self.front.messages for operation in message.operations]

    def events(self, kind: type) -> list[Any]:
        return [event for event in self.front.events if isinstance(event, kind)]

    def acked(self) -> list[tuple[Key, int, int]]:
        """By this client: object, version, epoch."""
        return [
            sent
            for event in self.events(Acked)
            for sent, conns in event.acks.items()
            for conn in conns
            if conn is self.delivery
        ]
