"""Servers that crash, stop for a while, are slow, or have their clock wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roskva.simulation.faults.victims import registrar_of, shard_of
from roskva.simulation.node import Node
from roskva.simulation.tape import Fault

if TYPE_CHECKING:
    from roskva.simulation.faults.victims import Faults
    from roskva.simulation.world import World


def _crash_registrar(world: World, fault: Fault) -> None:
    registrar = registrar_of(world, fault)
    if registrar.alive:
        registrar.crash()
        world.clock.after(fault.length, registrar.start_again)


def crash_shard(world: World, fault: Fault) -> None:
    shard = shard_of(world, fault)
    if shard.alive:
        shard.crash()
        world.clock.after(fault.length, shard.start_again)


def _pause(node: Node, fault: Fault) -> None:
    until = node.world.clock.now + max(1.0, fault.length)
    node.paused_until = max(node.paused_until, until)


def _slow(node: Node, fault: Fault) -> None:
    node.slowness = fault.strength

    def over() -> None:
        node.slowness = 0.0

    node.world.clock.after(fault.length, over)


def _wall_jump(world: World, fault: Fault) -> None:
    for node in (shard_of(world, fault), registrar_of(world, fault)):
        world.skews[node.name] = (fault.strength - 0.5) * 7200


FAULTS: Final[Faults] = {
    "crash_registrar": _crash_registrar,
    "crash_shard": crash_shard,
    "pause_registrar": lambda world, fault: _pause(registrar_of(world, fault), fault),
    "pause_shard": lambda world, fault: _pause(shard_of(world, fault), fault),
    "slow_shard": lambda world, fault: _slow(shard_of(world, fault), fault),
    "slow_registrar": lambda world, fault: _slow(registrar_of(world, fault), fault),
    "wall_jump": _wall_jump,
}
