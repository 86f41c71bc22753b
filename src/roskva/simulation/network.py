"""What carries bytes: connections between clients and registrars, links between registrars and
shards. Messages cross as bytes of the real codec.

A connection of the full protocol may lose, repeat and reorder while a fault lasts; an MQTT
connection rides on TCP and can only break; datagrams of an own channel get lost, come twice and
overtake each other at all times, and there is no connection that could break. A link is ordered and
reliable while it is up: once it has lost a message it loses all that follow, until somebody notices
the silence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal

from roskva.model import Key
from roskva.wire import codec
from roskva.wire.links import (
    CurrentVersion,
    FromShard,
    Pong,
    Push,
    Pushes,
    ToShard,
    Versions,
    Welcome,
)

if TYPE_CHECKING:
    from roskva.simulation.clients import AnyClient
    from roskva.simulation.process import SimulatedProcess
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.source import SourceNode
    from roskva.simulation.world import World
    from roskva.simulation.zombie import Zombie

HIGH_WATER: Final = 200
"""Bytes a slow reader may leave unread; low, so that it happens."""

_VERY_LATE: Final = 90.0
"""Seconds: a copy of a datagram may come after the object that it is about was reset."""

Side = Literal["client", "server"]
End = Literal["registrar", "shard"]


class _Wire:
    """Between two processes, for as long as both live: by side, who is there, since when anything
    arrives, and whether that side still thinks that it is up."""

    def __init__(self, world: World, ends: dict[str, SimulatedProcess]) -> None:
        self.world = world
        self.id = world.next_id()
        self.ends = ends
        self.lives = {side: end.life for side, end in ends.items()}
        self.up = dict.fromkeys(ends, True)
        self.last_arrival = dict.fromkeys(ends, 0.0)

    def _is_there(self, side: str) -> bool:
        return self.ends[side].alive and self.ends[side].life == self.lives[side]

    def _in_order(self, to: str, at: float) -> float:
        """When it arrives: behind all that was sent before."""
        at = self.last_arrival[to] = max(at, self.last_arrival[to])
        return at


class Connection(_Wire):
    def __init__(
        self, world: World, client: AnyClient, server: RegistrarNode, reliable: bool
    ) -> None:
        super().__init__(world, {"client": client, "server": server})
        self.client = client
        self.server = server
        self.reliable = reliable
        self.dead = False
        """Half-open: nothing gets through any more, and nobody is told."""
        self.under_way: dict[str, deque[bytes]] = {"client": deque(), "server": deque()}
        """In the order in which it was sent, and in which it arrives if nothing is lossy."""
        self.clogged_until = 0.0
        self.deaf_until = 0.0
        """Until then the client is not reached."""

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
            self.under_way[to].append(frame)
            self.world.clock.after(self._delay(to), lambda: self._arrive(to, frame))

    def _delay(self, to: Side) -> float:
        net, now = self.world.net, self.world.clock.now
        delay = net.delay()
        if net.lossy > 0 and not self.reliable:
            delay += self.world.dice.random() * net.lossy * 2.0
        at = max(now + delay + self.ends[to].slowness, self.clogged_until)
        return (self._in_order(to, at) if self.reliable or net.lossy == 0 else at) - now

    def _arrive(self, to: Side, frame: bytes) -> None:
        node, now = self.ends[to], self.world.clock.now
        if self.dead or not self.up[to] or not node.alive:
            return
        waits = (self.clogged_until if now < self.clogged_until else node.paused_until) - now
        if waits > 0:
            self.world.clock.after(waits, lambda: self._arrive(to, frame))
            return
        first = self.under_way[to].popleft()
        if self.reliable:  # what was sent later may have its turn first: both wait for the same
            frame = first
        if to == "server":
            self.server.received(self, frame)
        else:
            self.client.received(self, frame)

    def close(self, by: Side) -> None:
        """One side closes; the other learns of it, unless the connection is dead."""
        self.up[by] = False
        other: Side = "server" if by == "client" else "client"
        if not self.dead and self.up[other]:
            self.world.clock.after(self._delay(other), lambda: self._closed(other))

    def reset(self) -> None:
        """The connection breaks, and both sides learn of it."""
        self._closed("client")
        self._closed("server")
        self.dead = True

    def _closed(self, side: Side) -> None:
        if not self.up[side] or self.dead:
            return
        self.up[side] = False
        if self._is_there(side):
            (self.server if side == "server" else self.client).closed(self)


class Datagrams(Connection):
    """Of an own channel that has no connections: each message finds its own way, nobody is told
    that the other side has gone, and a server that does not know the sender takes it for new."""

    @property
    def lossy(self) -> bool:
        return not self.world.healed

    def was_deaf_after(self, moment: float) -> bool:
        return self.lossy or super().was_deaf_after(moment)

    def send(self, to: Side, frame: bytes) -> None:
        dice = self.world.dice
        if self.dead or (self.lossy and dice.random() < 0.2):
            self.world.seen("datagram lost")
            return
        delay = self.world.net.delay() + self.ends[to].slowness
        most = 2.0 if self.lossy else 0.1
        self.world.clock.after(delay + dice.random() * most, lambda: self._arrive(to, frame))
        if to == "client" and self.world.net.copies is not None:
            self.world.net.copies.append(lambda: self._arrive(to, frame))
        if dice.random() < 0.1:
            if self.lossy and dice.random() < 0.5:
                most = _VERY_LATE
            self.world.clock.after(delay + dice.random() * most, lambda: self._arrive(to, frame))

    def _arrive(self, to: Side, frame: bytes) -> None:
        node, now = self.ends[to], self.world.clock.now
        if self.dead or not node.alive or (to == "client" and not self.up["client"]):
            return
        waits = max(self.clogged_until, node.paused_until) - now
        if waits > 0:
            self.world.clock.after(waits, lambda: self._arrive(to, frame))
        elif to == "server":
            self.server.received(self, frame)
        else:
            self.client.received(self, frame)

    def close(self, by: Side) -> None:
        self.up[by] = False

    def reset(self) -> None:
        """The server forgets it."""
        if self.server.alive:
            self.server.closed(self)


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

    def pause(self) -> None:
        raise NotImplementedError

    def resume(self) -> None:
        raise NotImplementedError


class Link(_Wire):
    def __init__(
        self, world: World, registrar: RegistrarNode | SourceNode, shard: ShardNode | Zombie
    ) -> None:
        super().__init__(world, {"registrar": registrar, "shard": shard})
        self.registrar = registrar
        self.shard = shard
        self.poisoned = False
        self.said: set[tuple[Key, int, int]] = set()
        """By its shard: which object stands at which version, in which epoch."""
        self.answers_late = 0.0
        """By so many seconds what its shard says arrives."""
        self.vouched_at = 0.0
        """When its shard said the last welcome or pong that has arrived."""

    def send(self, to: End, message: ToShard | FromShard) -> None:
        net, frame, node = self.world.net, codec.encode_link(message), self.ends[to]
        if net.cut(self.registrar.name, self.shard.name, to):
            self.poisoned = True
            self.world.seen("link half-open")
        if not self.poisoned and all(self.up.values()):
            now = self.world.clock.now
            late = self.answers_late if to == "registrar" else 0.0
            at = self._in_order(to, now + net.delay() + node.slowness + late)
            node.later(at - now, lambda: self._arrive(to, frame, now))

    def _arrive(self, to: End, frame: bytes, sent_at: float) -> None:
        if self.poisoned or not all(self.up.values()) or not self._is_there(to):
            return
        if to == "shard":
            self.shard.from_link(self, codec.decode_to_shard(frame))
        else:
            message = codec.decode_from_shard(frame)
            self._note(message, sent_at)
            self.registrar.from_link(self, message)

    def _note(self, message: FromShard, sent_at: float) -> None:
        if isinstance(message, Welcome | Pong):
            self.vouched_at = sent_at
        said: Sequence[Push | CurrentVersion] = ()
        if isinstance(message, Pushes):
            said = message.pushes
        elif isinstance(message, Versions):
            said = message.known
        self.said.update((one.object, one.version, one.epoch) for one in said)

    def drop(self, by: End) -> None:
        """One side gives it up; the other learns of it if it can be reached."""
        self._down(by)
        if not self.poisoned:
            other: End = "shard" if by == "registrar" else "registrar"
            self.world.clock.after(self.world.net.delay(), lambda: self._down(other))

    def _down(self, side: End) -> None:
        if self.up[side]:
            self.up[side] = False
            if self.ends[side].life == self.lives[side]:
                (self.registrar if side == "registrar" else self.shard).link_down(self)


class Network:
    def __init__(self, world: World) -> None:
        self.world = world
        self.lossy = 0.0
        self.slow = 0.0
        self.cuts: dict[tuple[str, str], str] = {}
        self.copies: list[Callable[[], None]] | None = None
        """Brings once more what clients of own channels are sent; None: nobody keeps any."""

    def delay(self) -> float:
        dice = self.world.dice
        base = self.world.swarm.latency
        return base * (0.5 + dice.random()) + self.slow * dice.random()

    def mend(self, ends: tuple[str, str]) -> None:
        self.cuts.pop(ends, None)

    def cut(self, registrar: str, shard: str, to: End) -> bool:
        how = self.cuts.get((registrar, shard))
        return how == "both" or (how == "one_way" and to == "registrar")
