"""A registrar process in the simulation: the real registrar core, and its two kinds of channel."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import msgspec

from roskva.core.backoff import Rate
from roskva.core.effects import (
    Acked,
    Attached,
    Broadcast,
    Close,
    Closed,
    Drained,
    DropLink,
    Effect,
    Event,
    FromLink,
    Lagging,
    LinkDown,
    LinkUp,
    Opened,
    Received,
    Recheck,
    Reloaded,
    Send,
    SendLink,
    Tick,
)
from roskva.core.registrar import Registrar, RegistrarConfig
from roskva.errors import BadMessage
from roskva.host.packet_ids import PacketIds
from roskva.model import NO_VERSION
from roskva.simulation.network import Connection, Link
from roskva.simulation.node import Node
from roskva.simulation.sums import check_sums
from roskva.wire import codec
from roskva.wire.links import FromShard
from roskva.wire.messages import PROTOCOL, ClientMessage, Operation, ServerMessage

if TYPE_CHECKING:
    from roskva.simulation.world import World

HIGH_WATER = 200
"""Bytes a slow reader may leave unread; low, so that it happens."""
_REDIAL = 0.5


class MqttChannel:
    """MQTT between the core's session and a device: packet ids out, PUBACKs in."""

    def __init__(self, receive_maximum: int) -> None:
        self.ids = PacketIds(receive_maximum)
        self.session = 0
        self.number = 0
        self.full = False


class RegistrarNode(Node):
    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, f"registrar-{index}")
        self.conns: dict[int, Connection] = {}
        self.mqtt: dict[int, MqttChannel] = {}
        self.links: dict[int, Link] = {}
        self.held: dict[int, list[bytes]] = {}
        self.packet_id = 0

    def start(self) -> None:
        swarm = self.world.swarm
        self.begin()
        self.core = Registrar(
            RegistrarConfig(
                name=self.name,
                shards=swarm.shards,
                heartbeat=swarm.heartbeat,
                scan_interval=swarm.scan_interval,
                ack_flush=swarm.ack_flush,
                linger=swarm.linger,
                ping_interval=swarm.ping_interval,
                link_timeout=3 * swarm.ping_interval,
                sync_timeout=swarm.sync_timeout,
                handshakes=Rate(swarm.handshakes_per_10s, 10_000),
                token_lifetime=self.world.token_lifetime,
            ),
            self.world.keys,
            self.wall_us(),
            self.now(),
        )
        self.conns, self.mqtt, self.links, self.held = {}, {}, {}, {}
        self.next_events: deque[Event] = deque()
        if self.world.standing.keyed:
            self.reload()
        for shard in range(swarm.shards):
            self.dial(shard)
        self.set_timer()

    def reload(self) -> None:
        self.step(Reloaded(self.world.keys, self.world.standing))

    def recheck(self) -> None:
        self.step(Recheck())

    def crash(self) -> None:
        if not self.alive:
            return
        check_sums(self.core)
        self.end()
        for conn in list(self.conns.values()):
            conn.reset()
        for link in list(self.links.values()):
            link.drop("registrar")

    def step(self, event: Event) -> None:
        self.next_events.append(event)
        if len(self.next_events) > 1:
            return  # the step in hand comes first
        while self.next_events and self.alive:
            for effect in self.core.step(self.next_events[0], self.now()):
                self.carry_out(effect)
            self.next_events.popleft()
        if self.alive:
            self.set_timer()

    def counters(self) -> dict[str, int]:
        return self.core.counters

    def soon(self, event: Event) -> None:
        """After the effects in hand, and in the order in which things happened."""
        self.later(0, lambda: self.step(event))

    def deadline(self) -> float:
        return self.core.next_deadline()

    def tick(self) -> None:
        self.step(Tick())

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case Send(conn=conn, message=message):
                self.send(conn, message)  # type: ignore[arg-type]
            case Broadcast():
                self.broadcast(effect)
            case SendLink(link=shard, message=message):
                if shard in self.links:
                    self.links[shard].to_shard(message)  # type: ignore[arg-type]
            case DropLink(link=shard):
                if shard in self.links:
                    self.links[shard].drop("registrar")
            case Close(conn=conn):
                self.hang_up(conn)  # type: ignore[arg-type]

    # Links.

    def dial(self, shard: int) -> None:
        target = self.world.shards[shard]
        if shard in self.links:
            return
        if not target.alive or self.world.net.cut(self.name, target.name, 1):
            self.later(_REDIAL, lambda: self.dial(shard))
            return
        self.links[shard] = Link(self.world, self, target)
        self.step(LinkUp(shard))

    def from_link(self, link: Link, message: FromShard) -> None:
        if self.links.get(link.shard.index) is link:
            self.step(FromLink(link.shard.index, message))

    def link_down(self, link: Link) -> None:
        shard = link.shard.index
        if self.links.get(shard) is link:
            del self.links[shard]
            self.world.seen("link down")
            self.soon(LinkDown(shard))
            self.later(_REDIAL, lambda: self.dial(shard))

    # Connections.

    def accept(self, conn: Connection) -> None:
        self.conns[conn.id] = conn
        if not conn.reliable:
            self.step(Opened(conn.id, self.world.dice.randbytes(28)))

    def received(self, conn: Connection, frame: bytes) -> None:
        if self.conns.get(conn.id) is not conn:
            return
        if conn.reliable:
            self.from_device(conn, msgspec.msgpack.decode(frame))
            return
        try:
            message = codec.decode_from_client(frame)
        except BadMessage:
            self.world.seen("bad message")
            return
        denied = frozenset(self.world.denied)
        self.step(Received(conn.id, message, denied, principal=self.world.principal()))

    def closed(self, conn: Connection) -> None:
        if self.conns.pop(conn.id, None) is not None:
            self.mqtt.pop(conn.id, None)
            self.held.pop(conn.id, None)
            self.soon(Closed(conn.id))

    def hang_up(self, id: int) -> None:
        conn = self.conns.pop(id, None)
        self.mqtt.pop(id, None)
        self.held.pop(id, None)
        if conn is not None:
            conn.close("server")

    def send(self, id: int, message: ServerMessage) -> None:
        if id in self.mqtt:
            self.to_device(id, message, self.next_packet_id())
        elif id in self.conns:
            self.write(id, codec.encode(message))

    def broadcast(self, effect: Broadcast) -> None:
        frame = codec.encode(effect.message)
        packet_id = self.next_packet_id()
        for id in effect.conns:
            if id in self.mqtt:
                self.to_device(id, effect.message, packet_id)
            elif id in self.conns:
                self.write(id, frame)

    def write(self, id: int, frame: bytes) -> None:
        conn = self.conns[id]
        if not conn.client.reads_slowly:
            conn.send_to_client(frame)
            return
        held = self.held.setdefault(id, [])
        held.append(frame)
        self.world.check_bounded(sum(map(len, held)))
        if sum(map(len, held)) > HIGH_WATER:
            self.step(Lagging(id))

    def drain(self, conn: Connection) -> None:
        """The client reads again."""
        for frame in self.held.pop(conn.id, []):
            conn.send_to_client(frame)
        if conn.id in self.conns:
            self.step(Drained(conn.id))

    # MQTT.

    def next_packet_id(self) -> int:
        self.packet_id = self.packet_id % self.world.swarm.packet_ids + 1
        return self.packet_id

    def from_device(self, conn: Connection, packet: list[object]) -> None:
        channel = self.mqtt.get(conn.id)
        match packet:
            case ["connect", bytes() as client, int() as receive_maximum]:
                self.mqtt[conn.id] = MqttChannel(receive_maximum)
                self.step(Attached(conn.id, client, ""))
            case ["subscribe", str() as key] if channel is not None:
                self.say(conn, channel, operations=[Operation(key)])
            case ["puback", int() as id] if channel is not None:
                sent = channel.ids.acked(id)
                if sent is not None:
                    self.step(Acked({sent: [conn.id]}))
                if channel.full and not channel.ids.full():
                    channel.full = False
                    self.step(Drained(conn.id))
            case ["ping"]:
                conn.send_to_client(msgspec.msgpack.encode(["pong"]))
                if channel is not None and channel.session:
                    self.say(conn, channel)

    def say(
        self,
        conn: Connection,
        channel: MqttChannel,
        operations: list[Operation] | None = None,
    ) -> None:
        channel.number += 1
        message = ClientMessage(PROTOCOL, channel.session, channel.number, None, operations or [])
        self.step(Received(conn.id, message))

    def to_device(self, id: int, message: ServerMessage, packet_id: int) -> None:
        conn, channel = self.conns[id], self.mqtt[id]
        if message.session and not channel.session:
            channel.session = message.session
            conn.send_to_client(msgspec.msgpack.encode(["connack"]))
        for notification in message.notifications:
            if channel.full:
                break
            version = NO_VERSION if notification.version is None else notification.version
            sent = (notification.object, version, notification.epoch)
            taken = channel.ids.take(packet_id, sent)
            if taken is not None:
                if taken != packet_id:
                    self.world.seen("private packet id")
                frame = ["publish", taken, notification.object, notification.version]
                conn.send_to_client(msgspec.msgpack.encode(frame))
                packet_id = self.next_packet_id()
            if channel.ids.full():
                channel.full = True
                self.step(Lagging(id))
        for status in message.statuses:
            frame = ["suback", status.object, status.registered]
            conn.send_to_client(msgspec.msgpack.encode(frame))
