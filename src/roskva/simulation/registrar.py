"""A registrar process in the simulation: the real host, and its two kinds of channel.

Clients of the full protocol send a message at a time, over a connection that may lose some. Devices
speak MQTT to the channel that serves them in production, byte for byte.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from roskva.answer import Answered
from roskva.channels.connections import Connections
from roskva.channels.conversation import Conversation
from roskva.channels.mqtt.channel import MqttChannel
from roskva.channels.mqtt.terms import MqttLimits
from roskva.channels.peers import Addresses, Peers
from roskva.core import effects
from roskva.core.backoff import Rate
from roskva.core.effects import Handle
from roskva.core.registrar import RegistrarConfig
from roskva.core.session import Session
from roskva.errors import RoskvaError
from roskva.host.delivery import MessageDelivery, Write
from roskva.host.effects import Settled, Submitted
from roskva.host.mqtt import PublishEncoder
from roskva.host.registrar import HostEffect, HostEvent, RegistrarHost
from roskva.model import NOBODY, Principal, Update
from roskva.simulation.devices import Socket
from roskva.simulation.network import Connection, Datagrams, Link, ServerEnd
from roskva.simulation.oracle import Violation
from roskva.simulation.process import SimulatedProcess
from roskva.simulation.zombie import Zombie
from roskva.wire import codec
from roskva.wire.links import FromShard, Welcome
from roskva.wire.messages import FromClient, Notification, ServerMessage
from roskva.wire.mqtt.codes import V3, V5

if TYPE_CHECKING:
    from roskva.simulation.world import World

_REDIAL = 0.5


class Peer(Conversation, ServerEnd):
    """Of a connection that carries messages."""

    def __init__(self, node: RegistrarNode, conn: Connection) -> None:
        Conversation.__init__(self, ClientFront(node), MessageDelivery(codec.encode))  # type: ignore[arg-type]
        ServerEnd.__init__(self, node, conn)
        self.delivery.address = conn.id
        self.delivery.connection = self

    def opened(self) -> None:
        self.node.step(effects.Opened(self.delivery, self.node.world.dice.randbytes(28)))

    def arrived(self, data: bytes) -> None:
        self._message(data)

    def _hang_up_on(self, error: RoskvaError) -> None:
        raise AssertionError(f"a client of ours sends what is no message: {error}")

    def send(self, message: ServerMessage) -> Sequence[Notification]:
        self.write(codec.encode(message))
        return message.notifications

    def pause(self) -> None:
        self.node.step(self.delivery.pause())

    def resume(self) -> None:
        self.node.step(self.delivery.resume())

    def close(self) -> None:
        self.node.hang_up(self.conn)

    def lost(self) -> None:
        self.delivery.end()
        self.node.step(effects.Closed(self.delivery))


class DelayedCall:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class DeviceFront:
    """What the channel of the devices sees of its node, and its `Writer`."""

    def __init__(self, node: RegistrarNode) -> None:
        self.step = node.step
        self.received = node.heard
        self.principal = node.world.principal
        self.writer = self
        self.kept_s = node.world.swarm.client_keep or None

    def keeps_clients_s(self, app: str) -> float | None:
        return self.kept_s

    def enter(self, transport: Socket) -> int:
        return transport.conn.id

    def leave(self, address: int) -> None:
        pass

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        answered(NOBODY)

    def check_channel(self, app: str, channel: str) -> None:
        """Every app is used over MQTT."""


class ClientFront(DeviceFront):
    """The same, for clients of the full protocol: their login is asked who they are."""

    def identify(
        self,
        app: str | None,
        credential: str | None,
        certificate: str | None,
        answered: Answered[Principal],
    ) -> None:
        answered(self.principal())


class RegistrarNode(SimulatedProcess):
    def __init__(self, world: World, index: int) -> None:
        super().__init__(world, f"registrar-{index}")
        self.conns: dict[int, Connection] = {}
        self.peers: dict[int, Peer | Socket] = {}
        self.links: dict[int, Link] = {}

    def start(self) -> None:
        swarm = self.world.swarm
        self.begin()
        self.machine = self.host = RegistrarHost(
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
            slice=swarm.fanout_slice,
            batch_ms=lambda app: swarm.registrar_batch_ms,
        )
        self.core = self.host.core
        addresses = Addresses(Peers(()), 1000)
        self.mqtt = MqttChannel(
            DeviceFront(self),  # type: ignore[arg-type]
            *(addresses, Connections(10_000), MqttLimits(), self.call_later),
        )
        self.mqtt.encode_v3 = PublishEncoder(V3, swarm.packet_ids)
        self.mqtt.encode_v5 = PublishEncoder(V5, swarm.packet_ids)
        self.conns, self.peers, self.links = {}, {}, {}
        self.owners = [0] * swarm.shards
        """Of each shard the highest number that an owner has welcomed it with."""
        self.events: deque[HostEvent] = deque()
        if self.world.standing.keyed:
            self.reload()
        for shard in range(swarm.shards):
            self.dial(shard)
        self.set_timer()

    def reload(self) -> None:
        self.step(effects.Reloaded(self.world.keys, self.world.standing))

    def crash(self) -> None:
        if not self.alive:
            return
        self.end()
        self.cut_clients()
        for link in list(self.links.values()):
            link.drop("registrar")

    def cut_clients(self) -> None:
        for conn in list(self.conns.values()):
            conn.reset()

    def sessions(self) -> Iterable[Session]:
        return self.core.sessions.values()

    # The host and what it asks for.

    def step(self, event: HostEvent) -> None:
        self.events.append(event)
        if len(self.events) > 1:
            return  # the step in hand comes first
        while self.events and self.alive:
            for effect in self.host.step(self.events[0], self.now()):
                self.carry_out(effect)
            self.events.popleft()
            self._check_current()
        if self.alive:
            self.set_timer()

    def _check_current(self) -> None:
        """What counts as current was said on the link that is up, and on none before it; by an
        owner that knows of none above it; and that has vouched for it within the lease."""
        if self.core.interests.now != self.now():
            return  # the core had no part in this step
        lease = 3 * self.world.swarm.ping_interval / self.rate
        for watched in self.core.watched.values():
            link = self.links.get(watched.shard)
            if link is not None and self.core.interests.is_current(watched):
                assert watched.known is not None
                if self.world.clock.now - link.vouched_at >= lease:
                    raise Violation(f"{self.name} believes a shard beyond what it vouched for")
                if isinstance(link.shard, Zombie):
                    raise Violation(f"{self.name} believes an owner that was superseded")
                if (watched.key, *watched.known) not in link.said:
                    raise Violation(f"{self.name} believes a link that broke about {watched.key}")

    def counters(self) -> dict[str, int]:
        return self.core.counters

    def call_later(self, seconds: float, call: Callable[[], object]) -> DelayedCall:
        timer = DelayedCall()

        def when_due() -> None:
            if not timer.cancelled:
                call()

        self.later(seconds, when_due)
        return timer

    def deadline(self) -> float:
        if self.host.fanout.pending:
            self.world.seen("fan-out in slices")
            return self.now() + self.world.dice.random() * self.world.swarm.slice_delay
        return self.host.next_deadline()

    def carry_out(self, effect: HostEffect) -> None:
        match effect:
            case Write(addresses=addresses, data=data):
                for address in addresses:
                    if address in self.peers:
                        self.peers[address].write(data)
            case effects.Send(conn=delivery, message=message):
                if delivery.connection is not None:  # type: ignore[attr-defined]
                    delivery.connection.send(message)  # type: ignore[attr-defined]
            case effects.SendLink(link=int() as shard, message=message):
                if shard in self.links:
                    self.links[shard].send("shard", message)
            case effects.DropLink(link=int() as shard):
                if shard in self.links:
                    self.links[shard].drop("registrar")
            case effects.Close(conn=delivery):
                if delivery.connection is not None:  # type: ignore[attr-defined]
                    delivery.connection.close()  # type: ignore[attr-defined]
            case Settled(request=request, outcomes=outcomes):
                request(outcomes)  # type: ignore[operator]

    # Links.

    def dial(self, shard: int) -> None:
        target = self.world.owner_found(self, shard)
        if shard in self.links:
            return
        if not target.alive or self.world.net.cut(self.name, target.name, "registrar"):
            self.later(_REDIAL, lambda: self.dial(shard))
            return
        self.links[shard] = Link(self.world, self, target)
        self.step(effects.LinkUp(shard))

    def from_link(self, link: Link, message: FromShard) -> None:
        if self.links.get(link.shard.index) is link:
            if isinstance(message, Welcome):
                self.owners[link.shard.index] = max(self.owners[link.shard.index], message.owner)
            self.step(effects.FromLink(link.shard.index, message))

    def link_down(self, link: Link) -> None:
        shard = link.shard.index
        if self.links.get(shard) is link:
            del self.links[shard]
            self.world.seen("link down")
            self.later(0, lambda: self.step(effects.LinkDown(shard)))
            self.later(_REDIAL, lambda: self.dial(shard))

    def submit(self, update: Update, answered: Callable[[int | RoskvaError], None]) -> None:
        """A backend publishes."""

        def settled(outcomes: list[int | RoskvaError]) -> None:
            if not isinstance(outcomes[0], RoskvaError):
                self.world.check_own_writes(self, update)
            answered(outcomes[0])

        self.step(Submitted(settled, [update]))

    # Connections.

    def accept(self, conn: Connection) -> None:
        self.conns[conn.id] = conn
        self.peers[conn.id] = Socket(self, conn) if conn.reliable else Peer(self, conn)
        self.peers[conn.id].opened()

    def received(self, conn: Connection, frame: bytes) -> None:
        if conn.id not in self.peers and isinstance(conn, Datagrams):
            self.accept(conn)  # from an address that it does not know, or not any more
        if conn.id in self.peers:
            self.peers[conn.id].arrived(frame)

    def heard(self, conn: Handle, principal: Principal, message: FromClient) -> None:
        denied = frozenset(self.world.denied) if isinstance(conn, MessageDelivery) else frozenset()
        self.step(effects.FromConnection(conn, message, denied, principal=principal))

    def closed(self, conn: Connection) -> None:
        if self.conns.pop(conn.id, None) is not None:
            peer = self.peers.pop(conn.id)
            if isinstance(peer, Socket):
                peer.closing = True
            self.later(0, peer.lost)

    def hang_up(self, conn: Connection) -> None:
        if self.conns.pop(conn.id, None) is not None:
            peer = self.peers.pop(conn.id)
            conn.close("server")
            if isinstance(peer, Socket):
                self.later(0, peer.lost)
            else:
                peer.delivery.end()

    def drain(self, conn: Connection) -> None:
        if conn.id in self.peers:
            self.peers[conn.id].drain()
