"""A registrar process of a scenario: the real host, its links, and connections to clients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.scenarios.cluster import Cluster, Node

from roskva.core.effects import (
    Close,
    Closed,
    DropLink,
    FromConnection,
    FromLink,
    LinkDown,
    LinkUp,
    Opened,
    Send,
    SendLink,
    Tick,
)
from roskva.core.registrar import RegistrarConfig
from roskva.host.delivery import MessageDelivery, Write
from roskva.host.registrar import HostEvent, RegistrarHost
from roskva.wire import codec
from roskva.wire.links import FromShard, Ping, Pong, ToShard
from roskva.wire.messages import FromClient, ServerMessage

if TYPE_CHECKING:
    from tests.scenarios.client import ClientNode
    from tests.scenarios.shard import ShardNode

_REDIAL: Final = 0.5
_CROWD: Final = 6


class Connection(MessageDelivery):
    """Between a client and a registrar; each side closes it, or learns that it is closed."""

    def __init__(self, client: ClientNode, registrar: RegistrarNode) -> None:
        super().__init__(codec.encode)
        self.client = client
        self.registrar = registrar
        self.client_open = self.registrar_open = True
        self.unread: list[tuple[bytes, str]] = []
        """What a client that reads slowly has not read."""

    def to_registrar(self, message: FromClient) -> None:
        frame, notation = codec.encode(message), self.client.cluster.notation
        ends = (self.client.name, self.registrar.name)

        def arrive() -> None:
            if self.registrar_open and self.registrar.alive:
                self.registrar.step(FromConnection(self, codec.decode_from_client(frame)))

        self.client.cluster.wires.send("clients", ends, notation.from_client(message), arrive)

    def to_client(self, frame: bytes, text: str, told: bool = False) -> None:
        ends = (self.registrar.name, self.client.name)

        def arrive() -> None:
            if self.client_open and self.client.alive:
                self.client.received(codec.decode_from_server(frame))

        self.client.cluster.wires.send("clients", ends, text, arrive, told)

    def close_by_client(self) -> None:
        self.client_open = False
        if not self.registrar_open:
            return
        ends = (self.client.name, self.registrar.name)
        self.client.cluster.wires.send("clients", ends, "hangs up", self._closed_at_registrar)

    def close_by_registrar(self) -> None:
        self.registrar_open = False
        ends = (self.registrar.name, self.client.name)
        self.client.cluster.wires.send("clients", ends, "hangs up", self._closed_at_client)

    def break_off(self) -> None:
        """Both sides learn of it."""
        self._closed_at_registrar()
        self._closed_at_client()

    def _closed_at_registrar(self) -> None:
        if self.registrar_open:
            self.registrar_open = False
            self.registrar.closed(self)

    def _closed_at_client(self) -> None:
        if self.client_open:
            self.client_open = False
            self.client.closed(self)


class Link:
    """Between a registrar and a shard: ordered, and reliable while it is up."""

    def __init__(self, registrar: RegistrarNode, shard: ShardNode) -> None:
        self.registrar = registrar
        self.shard = shard
        self.up = True

    def to_shard(self, message: ToShard) -> None:
        frame = codec.encode_link(message)
        text = "" if isinstance(message, Ping) else self.registrar.cluster.notation.on_link(message)

        def arrive() -> None:
            if self.up:
                self.shard.from_link(self, codec.decode_to_shard(frame))

        ends = (self.registrar.name, self.shard.name)
        self.registrar.cluster.wires.send("links", ends, text, arrive)

    def to_registrar(self, message: FromShard) -> None:
        frame = codec.encode_link(message)
        routine = isinstance(message, Pong) and message.agree
        text = "" if routine else self.registrar.cluster.notation.on_link(message)

        def arrive() -> None:
            if self.up:
                self.registrar.from_link(self, codec.decode_from_shard(frame))

        ends = (self.shard.name, self.registrar.name)
        self.registrar.cluster.wires.send("links", ends, text, arrive)

    def break_off(self) -> None:
        if self.up:
            self.up = False
            who = f"{self.registrar.name} x {self.shard.name}"
            self.registrar.cluster.trace.say("links", who, "link down")
            self.registrar.link_down(self)
            self.shard.link_down(self)


class RegistrarNode(Node):
    def __init__(self, cluster: Cluster, name: str, shards: list[ShardNode]) -> None:
        super().__init__(cluster, name)
        self.shards = shards
        self.conns: dict[int, Connection] = {}
        self.links: dict[int, Link] = {}
        self.accepted = 0

    def start(self) -> None:
        self.begin()
        settings = self.cluster.settings
        config = RegistrarConfig(
            name=self.name,
            shards=settings.shards,
            heartbeat=settings.heartbeat,
            handshakes=settings.handshakes,
        )
        self.host = RegistrarHost(config, self.cluster.keys, self.cluster.wall_us(), self.now())
        self.conns, self.links = {}, {}
        for index in range(settings.shards):
            self.dial(index)
        self.wake_at(self.host.next_deadline())

    def crash(self) -> None:
        self.end()
        self.cluster.trace.say("clients", self.name, "crashes")
        for conn in list(self.conns.values()):
            conn.break_off()
        for link in list(self.links.values()):
            link.break_off()

    def tick(self) -> None:
        self.step(Tick())

    def step(self, event: HostEvent) -> None:
        for effect in self.host.step(event, self.now()):
            match effect:
                case Send(conn=Connection() as conn, message=message):
                    self._write(conn, codec.encode(message), self._spell(message))
                case Write():
                    self._write_to_many(effect)
                case SendLink(link=int() as shard, message=message):
                    if shard in self.links:
                        self.links[shard].to_shard(message)  # type: ignore[arg-type]
                case DropLink(link=int() as shard):
                    if shard in self.links:
                        self.links[shard].break_off()
                case Close(conn=Connection() as conn):
                    self.conns.pop(conn.address, None)
                    conn.close_by_registrar()
        self.wake_at(self.host.next_deadline())

    # Links.

    def dial(self, index: int) -> None:
        if self.shards[index].alive:
            self.links[index] = Link(self, self.shards[index])
            self.step(LinkUp(index))
        else:
            self.after(_REDIAL, lambda: self.dial(index))

    def from_link(self, link: Link, message: FromShard) -> None:
        self.step(FromLink(link.shard.index, message))

    def link_down(self, link: Link) -> None:
        self.links.pop(link.shard.index, None)
        if self.alive:
            self.after(0, lambda: self.step(LinkDown(link.shard.index)))
            self.after(_REDIAL, lambda: self.dial(link.shard.index))

    # Connections.

    def accept(self, conn: Connection) -> None:
        self.accepted += 1
        conn.address = self.accepted
        self.conns[conn.address] = conn
        self.step(Opened(conn, self.cluster.dice.randbytes(28)))

    def closed(self, conn: Connection) -> None:
        if self.alive and self.conns.pop(conn.address, None) is not None:
            self.step(Closed(conn))

    def _write_to_many(self, effect: Write) -> None:
        text = self._spell(codec.decode_from_server(effect.data))
        conns = [self.conns[address] for address in effect.addresses if address in self.conns]
        names = sorted(conn.client.name for conn in conns)
        to = ", ".join(names) if len(names) <= _CROWD else f"{len(names)} clients"
        if names:
            self.cluster.trace.say("clients", f"{self.name} >> {to}", text)
        for conn in conns:
            self._write(conn, effect.data, text, broadcast=True)

    def _write(self, conn: Connection, frame: bytes, text: str, broadcast: bool = False) -> None:
        if not conn.client.reads_slowly:
            conn.to_client(frame, text, told=broadcast)
            return
        conn.unread.append((frame, text))
        unread = sum(len(frame) for frame, _ in conn.unread)
        who = f"{self.name} > {conn.client.name}"
        self.cluster.trace.say("clients", who, f"{text} (unread: {unread} bytes wait)")
        if unread > self.cluster.settings.high_water and not conn.lagging:
            self._tell_soon(conn, conn.pause(), "lags")

    def drain(self, conn: Connection) -> None:
        unread, conn.unread = conn.unread, []
        for frame, text in unread:
            conn.to_client(frame, f"{text} (read)")
        self._tell_soon(conn, conn.resume(), "has drained")

    def _tell_soon(self, conn: Connection, event: HostEvent, text: str) -> None:
        """After the effects in hand, in order."""
        self.cluster.trace.say("clients", self.name, f"{conn.client.name} {text}")
        self.after(0, lambda: self.step(event))

    def _spell(self, message: ServerMessage) -> str:
        return self.cluster.notation.from_server(message)
