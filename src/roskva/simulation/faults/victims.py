"""Whom a fault hits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from roskva.simulation.clients import ClientNode
from roskva.simulation.shard import ShardNode
from roskva.simulation.tape import Fault

if TYPE_CHECKING:
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.world import World

    Faults = dict[str, Callable[[World, Fault], None]]


def registrar_of(world: World, fault: Fault) -> RegistrarNode:
    return world.registrars[fault.which % len(world.registrars)]


def shard_of(world: World, fault: Fault) -> ShardNode:
    return world.shards[fault.which % len(world.shards)]


def client_of(world: World, fault: Fault) -> ClientNode:
    return world.clients[fault.which % len(world.clients)]


def change_something(world: World, fault: Fault, shard: ShardNode) -> None:
    """An object of this shard, and perhaps for the last time: what is lost of it stays lost."""
    keys = [key for key in world.objects if world.shard_of(key) is shard]
    if keys:
        publisher = world.publishers[keys[fault.which % len(keys)]]
        if publisher.is_idle():
            publisher.change()
            if fault.strength > 0.5:
                publisher.rest()
