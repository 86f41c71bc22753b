"""A principal in the simulation that registers as one new client after the other, and leaves each.

Whatever it does and whatever fails: a shard keeps so many rows of it and no more, and nobody else
is refused. After a start the shard does not know yet what there is, and may take as many again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roskva.core.effects import Attached, Closed, Event, FromConnection, Lagging
from roskva.errors import LimitExceeded
from roskva.host.delivery import Announcement, Delivery
from roskva.model import Principal
from roskva.simulation.clients import APP
from roskva.simulation.oracle import Violation
from roskva.store import rows as layout
from roskva.wire.messages import PROTOCOL, ClientMessage, Operation, ServerMessage

if TYPE_CHECKING:
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.world import World

_EVERY = 1.0
_PATIENCE = 10.0
_TRIES = 10
_HANDSHAKES = 50
"""In ten seconds."""
HOARDER = Principal("hoarder", APP)


class Hoarder:
    def __init__(self, world: World) -> None:
        self.world = world
        self.most = world.swarm.max_clients
        if world.swarm.handshakes_per_10s < _HANDSHAKES:
            self.most = 0  # all others would wait for it

    def run(self) -> None:
        if self.most and not self.world.healed:
            self._register_another()
            self.world.clock.after(2 * _EVERY * self.world.dice.random(), self.run)

    def _register_another(self) -> None:
        registrar = self.world.pick_registrar()
        if registrar is not None:
            HoardedClient(self.world, registrar)

    def check(self) -> None:
        """When shards have had the time to read their rows, it gets no more than it has."""
        world, shards = self.world, self.world.shards
        if not self.most:
            return
        world.clock.run(world.clock.now + max(shard.collected_within() for shard in shards))
        before = [self._stored(shard) for shard in shards]
        for _ in range(_TRIES):
            self._register_another()
        world.clock.run(world.clock.now + 2 * _PATIENCE)
        for shard, had in zip(shards, before, strict=True):
            if had > self.most * len(shard.starts) or self._stored(shard) > max(had, self.most):
                raise Violation(f"{shard.name} keeps too many clients of one principal: {had}")

    def _stored(self, shard: ShardNode) -> int:
        found = shard.store.scan(layout.CLIENT, layout.OBJECT)
        rows = [layout.scanned_client(key, cells) for key, cells in found]
        return sum(row.account == HOARDER.account for row in rows)


class HoardedClient(Delivery):
    """One of its clients, on a connection that never fails."""

    def __init__(self, world: World, registrar: RegistrarNode) -> None:
        super().__init__()
        self.world, self.registrar = world, registrar
        self.life = registrar.life
        self.connection = self
        self.asked = False
        self._step(Attached(self, world.dice.randbytes(16), "", principal=HOARDER))
        world.clock.after(_PATIENCE, self.leave)

    def notify(self, announcement: Announcement) -> Lagging | None:
        return None

    def send(self, message: ServerMessage) -> None:
        if message.error is not None and message.error.code == LimitExceeded.code:
            self.world.seen("too much of one principal")
        elif message.session is not None and not self.asked:
            self.asked = True
            wanted = [Operation(self.world.objects[0], True)]
            asking = ClientMessage(PROTOCOL, message.session, 1, operations=wanted)
            self._step(FromConnection(self, asking))
        elif any(status.registered for status in message.statuses):
            self.leave()

    def close(self) -> None:
        self.leave()

    def leave(self) -> None:
        if self.connection is not None:
            self.connection = None
            self._step(Closed(self))

    def _step(self, event: Event) -> None:
        """Unless its registrar has crashed since."""
        if self.registrar.life == self.life:
            self.registrar.later(0, lambda: self.registrar.step(event))
