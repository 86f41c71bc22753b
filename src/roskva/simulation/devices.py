"""Devices that speak MQTT, packet by packet, and the transport under them.

The server's side is the whole of `channels/mqtt`, over a transport that is simulated: bytes arrive
in order, cut wherever chance will have it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from roskva.channels.mqtt.terms import MqttLimits
from roskva.model import Key
from roskva.simulation.clients import AnyClient
from roskva.simulation.network import Connection, ServerEnd
from roskva.simulation.oracle import Violation
from roskva.wire.mqtt import codes
from roskva.wire.mqtt.codes import V3, V5
from roskva.wire.mqtt.fields import (
    RECEIVE_MAXIMUM,
    SESSION_EXPIRY,
    string,
    u16,
    varint,
    write_properties,
)

if TYPE_CHECKING:
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.world import World

_PINGREQ = b"\xc0\x00"
_QOS_1 = 1
_REFUSED = 0x80
_DUP = 0x08


class MqttNode(AnyClient):
    """Subscribes after every connect, answers what it gets by id."""

    reliable = True

    def __init__(self, world: World, index: int, wanted: list[Key]) -> None:
        super().__init__(world, f"mqtt-{index}", wanted)
        self.id = world.dice.randbytes(8).hex()
        self.protocol = world.dice.choice((V3, V5))

    def start(self) -> None:
        self.begin()
        self.window = 0
        self.unanswered: set[int] = set()
        self.answered_at = 0.0
        self.later(self.world.dice.random(), self.dial)

    def connected(self) -> None:
        if self.conn is None:
            return
        conn = self.conn
        self.acked = {}  # a broker that lost its state cannot know what this device had
        self.newest: dict[Key, int] = {}
        """The latest change it was told as a version, on this connection."""
        self.unanswered = set()
        self.subscribed: dict[int, Key] = {}
        self.unread = b""
        # MQTT 3.1.1 has no window to announce.
        most = MqttLimits().max_in_flight
        self.window = self.world.dice.choice((1, 2, 20)) if self.protocol == V5 else most
        self.say(self._connect())
        self.answered_at = self.world.clock.now
        self.later(self.world.swarm.answer_timeout, lambda: self.check(conn))

    def _connect(self) -> bytes:
        keep_alive = int(3 * self.world.swarm.answer_timeout) + 2
        head = string("MQTT") + bytes((self.protocol, 0)) + u16(keep_alive)
        if self.protocol == V5:
            head += write_properties(
                {SESSION_EXPIRY: self.world.swarm.mqtt_expiry, RECEIVE_MAXIMUM: self.window}
            )
        return _packet(0x10, head + string(self.id))

    def check(self, conn: Connection) -> None:
        """Ping, and give up a connection that does not answer."""
        if conn is not self.conn:
            return
        if self.world.clock.now - self.answered_at > 2.5 * self.world.swarm.answer_timeout:
            self.hang_up()
            self.hung_up()
            return
        self.say(_PINGREQ)
        self.later(self.world.swarm.answer_timeout, lambda: self.check(conn))

    def hung_up(self) -> None:
        if self.conn is None:
            self.later(0.5 + self.world.dice.random() * 2, self.dial_again)

    def dial_again(self) -> None:
        if self.conn is None:
            self.dial()

    def say(self, packet: bytes) -> None:
        if self.conn is not None:
            for piece in cut(packet, self.world):
                self.conn.send("server", piece)

    def received(self, conn: Connection, frame: bytes) -> None:
        if conn is not self.conn:
            return
        self.answered_at = self.world.clock.now
        self.unread += frame
        for first, body in self._packets():
            match first >> 4:
                case codes.CONNACK:
                    self._connack(body)
                case codes.SUBACK:
                    self._suback(body)
                case codes.PUBLISH:
                    self._publish(conn, first, body)
                case _:
                    pass  # PINGRESP, or why the server is about to hang up

    def _packets(self) -> Iterator[tuple[int, bytes]]:
        while (found := _split(self.unread)) is not None:
            first, body, self.unread = found
            yield first, body

    def _connack(self, body: bytes) -> None:
        if body[1]:
            return  # it hangs up now
        for number, key in enumerate(self.app.wanted, 1):
            self.app.asked_at[key] = self.world.clock.now
            self.subscribed[number] = key
            properties = b"\0" if self.protocol == V5 else b""
            self.say(_packet(0x82, u16(number) + properties + string(key) + bytes((_QOS_1,))))

    def _suback(self, body: bytes) -> None:
        key = self.subscribed.pop(int.from_bytes(body[:2]))
        # With a small window what it is due may have to wait for its turn.
        if body[-1] < _REFUSED and self.window > len(self.app.wanted):
            self.world.confirmed(self, key)

    def _publish(self, conn: Connection, first: int, body: bytes) -> None:
        end = 2 + int.from_bytes(body[:2])
        key, id = body[2:end].decode(), int.from_bytes(body[end : end + 2])
        payload = body[end + 2 :]
        if self.protocol == V5:
            payload = payload[1 + payload[0] :]
        version = None if payload == b"?" else int(payload)
        if id in self.unanswered:
            raise Violation(f"{self.name} was sent packet {id} again before it answered")
        if first & _DUP:
            self.world.seen("packet sent again after a reconnect")
        self.unanswered.add(id)
        if len(self.unanswered) > self.window:
            raise Violation(f"{self.name} was sent more than the {self.window} packets it takes")
        stamp = self.told(key, version)
        if version is not None:
            if self.world.keeps_order(key, version):
                oracle = self.world.oracle
                oracle.check_not_overtaken(self.name, key, stamp, self.newest.get(key, 0))
            self.newest[key] = max(stamp, self.newest.get(key, 0))
        acked = 0 if version is None else stamp
        self.later(self.reaction_time(), lambda: self.puback(conn, id, key, acked))

    def puback(self, conn: Connection, id: int, key: Key, stamp: int) -> None:
        if conn is self.conn:
            self.acked[key] = max(self.acked.get(key, 0), stamp)
            self.unanswered.discard(id)
            self.say(_packet(0x40, u16(id)))


class Socket(ServerEnd):
    """What asyncio calls a transport."""

    def __init__(self, node: RegistrarNode, conn: Connection) -> None:
        super().__init__(node, conn)
        self.protocol = node.mqtt()
        self.unheard: list[bytes] = []
        """What the server does not read."""
        self.paused = self.closing = False

    def opened(self) -> None:
        self.protocol.connection_made(self)  # type: ignore[arg-type]

    def lost(self) -> None:
        self.protocol.connection_lost(None)

    def write(self, data: bytes) -> None:
        if not self.closing:
            super().write(data)

    def deliver(self, data: bytes) -> None:
        for piece in cut(data, self.node.world):
            super().deliver(piece)

    def pause(self) -> None:
        self.node.world.seen("device left unread")
        self.protocol.pause_writing()

    def resume(self) -> None:
        if not self.closing:
            self.protocol.resume_writing()

    def arrived(self, data: bytes) -> None:
        if self.paused:
            self.unheard.append(data)
        elif not self.closing:
            self.protocol.data_received(data)

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        if not self.closing:
            self.closing = True
            self.node.hang_up(self.conn)

    def is_closing(self) -> bool:
        return self.closing

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False
        self.node.later(0, self._hear)

    def _hear(self) -> None:
        while self.unheard and not self.paused and not self.closing:
            self.protocol.data_received(self.unheard.pop(0))

    def get_write_buffer_size(self) -> int:
        return sum(map(len, self.held))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def cut(data: bytes, world: World) -> Iterator[bytes]:
    """As it may arrive."""
    while len(data) > 1 and world.dice.random() < 0.2:
        at = world.dice.randrange(1, len(data))
        yield data[:at]
        data = data[at:]
    if data:
        yield data


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first,)) + varint(len(body)) + body


def _split(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The first packet's first byte and body, and what is left."""
    length = shift = 0
    for i, byte in enumerate(data[1:5], 2):
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            end = i + length
            return (data[0], data[i:end], data[end:]) if len(data) >= end else None
    return None
