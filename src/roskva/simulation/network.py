"""What carries bytes: connections between clients and registrars, links between registrars and
shards. Messages cross as bytes of the real codec.

A connection of the full protocol may lose, repeat and reorder while a fault lasts; an MQTT
connection rides on TCP and can only break. A link is ordered and reliable while it is up: once it
has lost a message it loses all that follow, until somebody notices the silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from roskva.wire import codec
from roskva.wire.links import FromShard, ToShard

if TYPE_CHECKING:
    from roskva.simulation.clients import AnyClient
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.world import World

HIGH_WATER: Final = 200
"""Bytes a slow reader may leave unread; low, so that it happens."""

Side = Literal["client", "server"]
End = Literal["registrar", "shard"]


class Connection:
    def __init__(
        self, world: World, client: AnyClient, server: RegistrarNode, reliable: bool
    ) -> None:
        self.world = world
        self.id = world.next_id()
        self.client = client
        self.server = server
        self.reliable = reliable
        self.open = {"client": True, "server": True}
        self.dead = False
        """Half-open: nothing gets through any more, and nobody is told."""
        self.clogged_until = 0.0
        self.deaf_until = 0.0
        """Until then the client is not reached."""
        self.last_arrival = {"client": 0.0, "server": 0.0}
        self.server_life = server.life
        self.client_life = client.life

    def was_deaf_after(self, moment: float) -> bool:
        return not self.reliable and moment < self.deaf_until

    def send(self, to: Side, frame: bytes) -> None:
        if self.dead:
            return
        net = self.world.net
        if to == "client" and self.was_deaf_after(self.world.clock.now):
            self.world.seen("message lost")
            return
        copies = 1
        if net.lossy > 0 and not self.reliable:
            dice = self.world.dice
            if dice.random() < 0.3 * net.lossy:
                self.world.seen("message lost")
                return
            if dice.random() < 0.5 * net.lossy:
                self.world.seen("message repeated")
                copies = 2
        for _ in range(copies):
            self.world.clock.after(self._delay(to), lambda: self._arrive(to, frame))

    def _delay(self, to: Side) -> float:
        net, now = self.world.net, self.world.clock.now
        delay = net.delay()
        if net.lossy > 0 and not self.reliable:
            delay += self.world.dice.random() * net.lossy * 2.0
        node = self.client if to == "client" else self.server
        at = max(now + delay + node.slowness, self.clogged_until)
        if self.reliable or net.lossy == 0:
            at = self.last_arrival[to] = max(at, self.last_arrival[to])
        return at - now

    def _arrive(self, to: Side, frame: bytes) -> None:
        node = self.client if to == "client" else self.server
        now = self.world.clock.now
        if self.dead or not self.open[to] or not node.alive:
            return
        if now < self.clogged_until:
            self.world.clock.after(self.clogged_until - now, lambda: self._arrive(to, frame))
        elif now < node.paused_until:
            self.world.clock.after(node.paused_until - now, lambda: self._arrive(to, frame))
        elif to == "server":
            self.server.received(self, frame)
        else:
            self.client.received(self, frame)

    def close(self, by: Side) -> None:
        """One side closes; the other learns of it, unless the connection is dead."""
        self.open[by] = False
        other: Side = "server" if by == "client" else "client"
        if not self.dead and self.open[other]:
            self.world.clock.after(self._delay(other), lambda: self._closed(other))

    def reset(self) -> None:
        """The connection breaks, and both sides learn of it."""
        self._closed("client")
        self._closed("server")
        self.dead = True

    def _closed(self, side: Side) -> None:
        if not self.open[side] or self.dead:
            return
        self.open[side] = False
        if side == "server" and self.server.alive and self.server.life == self.server_life:
            self.server.closed(self)
        elif side == "client" and self.client.alive and self.client.life == self.client_life:
            self.client.closed(self)


class ServerEnd:
    """The server's end of a connection. What a slow reader does not read is held here; above the
    high water it is paused."""

    def __init__(self, node: RegistrarNode, conn: Connection) -> None:
        self.node = node
        self.conn = conn
        self.held: list[bytes] = []
        self.full = False

    def write(self, data: bytes) -> None:
        if not self.conn.client.reads_slowly:
            self.deliver(data)
            return
        self.held.append(data)
        held = sum(map(len, self.held))
        self.node.world.check_bounded(held)
        if held > HIGH_WATER and not self.full:
            self.full = True
            self.pause()

    def drain(self) -> None:
        """The client reads again."""
        held, self.held = self.held, []
        for data in held:
            self.deliver(data)
        if self.full:
            self.full = False
            self.resume()

    def deliver(self, data: bytes) -> None:
        self.conn.send("client", data)

    def opened(self) -> None:
        raise NotImplementedError

    def arrived(self, data: bytes) -> None:
        raise NotImplementedError

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError

    def lost(self) -> None:
        raise NotImplementedError


class Link:
    def __init__(self, world: World, registrar: RegistrarNode, shard: ShardNode) -> None:
        self.world = world
        self.id = world.next_id()
        self.registrar = registrar
        self.shard = shard
        self.registrar_life = registrar.life
        self.shard_life = shard.life
        self.poisoned = False
        self.up = {"registrar": True, "shard": True}
        self._arrivals = [0.0, 0.0]

    def to_shard(self, message: ToShard) -> None:
        self._send(0, codec.encode_link(message))

    def to_registrar(self, message: FromShard) -> None:
        self._send(1, codec.encode_link(message))

    def _send(self, way: int, frame: bytes) -> None:
        net = self.world.net
        if net.cut(self.registrar.name, self.shard.name, way):
            self.poisoned = True
            self.world.seen("link half-open")
        if self.poisoned or not all(self.up.values()):
            return
        node = self.shard if way == 0 else self.registrar
        at = self.world.clock.now + net.delay() + node.slowness
        at = self._arrivals[way] = max(at, self._arrivals[way])
        node.later(at - self.world.clock.now, lambda: self._arrive(way, frame))

    def _arrive(self, way: int, frame: bytes) -> None:
        if self.poisoned or not all(self.up.values()):
            return
        if way == 0:
            if self.shard.life == self.shard_life:
                self.shard.from_link(self, codec.decode_to_shard(frame))
        elif self.registrar.life == self.registrar_life:
            self.registrar.from_link(self, codec.decode_from_shard(frame))

    def drop(self, by: End) -> None:
        """One side gives it up; the other learns of it if it can be reached."""
        self._down(by)
        if not self.poisoned:
            other: End = "shard" if by == "registrar" else "registrar"
            self.world.clock.after(self.world.net.delay(), lambda: self._down(other))

    def _down(self, side: End) -> None:
        if not self.up[side]:
            return
        self.up[side] = False
        if side == "registrar" and self.registrar.life == self.registrar_life:
            self.registrar.link_down(self)
        if side == "shard" and self.shard.life == self.shard_life:
            self.shard.link_down(self)


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.lossy = 0.0
        self.slow = 0.0
        self.cuts: dict[tuple[str, str], str] = {}

    def delay(self) -> float:
        dice = self.world.dice
        base = self.world.swarm.latency
        return base * (0.5 + dice.random()) + self.slow * dice.random()

    def mend(self, ends: tuple[str, str]) -> None:
        self.cuts.pop(ends, None)

    def cut(self, registrar: str, shard: str, way: int) -> bool:
        how = self.cuts.get((registrar, shard))
        return how == "both" or (how == "one_way" and way == 1)
