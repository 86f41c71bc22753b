"""A shard's owner that does not know that another has taken over.

Its machine was suspended, with its clock, while the shard went on elsewhere. It wakes, and for it
no time has passed: it welcomes registrars, says what it knows and answers their pings, until it
hears of its successor. What it would write is written no more.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import TYPE_CHECKING, Final

from roskva.core import effects
from roskva.host.shard import HostEffect
from roskva.simulation.network import Link
from roskva.simulation.process import SimulatedProcess
from roskva.store import rows as layout
from roskva.wire.links import ToShard

if TYPE_CHECKING:
    from roskva.simulation.shard import ShardNode

_UNAWARE: Final = 3.0
"""Pings that it answers before it hears that it was superseded."""


class Zombie(SimulatedProcess):
    def __init__(self, owner: ShardNode) -> None:
        """As it is now."""
        world = owner.world
        super().__init__(world, f"{owner.name} suspended")
        self.index, self.rate = owner.index, owner.rate
        shared = {id(each): each for each in (world, owner.ways)}
        self.machine = self.host = copy.deepcopy(owner.host, shared)
        self.store = copy.deepcopy(owner.store)
        self.store.refused_prefixes = ()
        self.stopped_at = owner.now()
        self.links: dict[int, Link] = {}

    @property
    def owner(self) -> int:
        return self.host.matcher.owner

    def wake(self) -> None:
        self.begin()
        self.born = self.world.clock.now - (self.stopped_at - 1000.0) / self.rate
        self.world.zombies[self.index] = self
        for link in list(self.host.matcher.links):
            self.step(effects.LinkDown(link))
        self.later(_UNAWARE * self.world.swarm.ping_interval, self.crash)

    def crash(self) -> None:
        self.end()
        del self.world.zombies[self.index]
        for link in list(self.links.values()):
            link.drop("shard")

    def carry_out(self, effect: HostEffect) -> None:
        match effect:
            case effects.SendLink(link=int() as id, message=message) if id in self.links:
                self.links[id].send("registrar", message)
            case effects.DropLink(link=int() as id) if id in self.links:
                self.links[id].drop("shard")
            case effects.LoadObjects(id=id, keys=keys):
                rows = layout.object_rows(keys, self.store.read_cells(layout.object_cells(keys)))
                self.later(0.001, partial(self.step, effects.Loaded(id, rows)))

    def from_link(self, link: Link, message: ToShard) -> None:
        self.links[link.id] = link
        self.step(effects.FromLink(link.id, message))

    def link_down(self, link: Link) -> None:
        if self.links.pop(link.id, None) is not None:
            self.later(0, lambda: self.step(effects.LinkDown(link.id)))
