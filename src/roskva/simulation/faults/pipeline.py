"""A fast path that loses, a bridge that fails, and publishers that have to take back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roskva.simulation.faults.victims import client_of, shard_of
from roskva.simulation.tape import Fault

if TYPE_CHECKING:
    from roskva.simulation.faults.victims import Faults
    from roskva.simulation.world import World


def _lose_fast_path(world: World, fault: Fault) -> None:
    shard = shard_of(world, fault)
    shard.fast_path_loss = max(0.1, fault.strength)

    def over() -> None:
        shard.fast_path_loss = world.swarm.fast_path_loss

    world.clock.after(fault.length, over)


def _stop_bridge(world: World, fault: Fault) -> None:
    world.bridge.stopped_until = world.clock.now + fault.length


def _bridge_repeats(world: World, fault: Fault) -> None:
    world.bridge.repeats += 1


def _bridge_skips(world: World, fault: Fault) -> None:
    world.bridge.skips += 1


def _forge_and_reset(world: World, fault: Fault) -> None:
    key = world.objects[fault.which % len(world.objects)]
    world.publishers[key].forge_and_reset()
    if fault.strength > 0.5:  # somebody keeps the forged version, and is away for the reset
        away = client_of(world, fault)
        world.clock.after(55.0, lambda: None if world.healed else away.crash())
        world.clock.after(70.0 + 25.0 * world.dice.random(), away.start_again)


def _reset_overtakes(world: World, fault: Fault) -> None:
    """The shard misses a forged version. It hears of the reset while the bridge brings that."""
    key = world.objects[fault.which % len(world.objects)]
    publisher, shard = world.publishers[key], world.shard_of(key)
    shard.fast_path_loss = 1.0
    forged = publisher.forge()

    def reset() -> None:
        shard.fast_path_loss = world.swarm.fast_path_loss
        if not forged:
            return
        if publisher.in_flight or not shard.alive:
            publisher.reset_later()
        else:
            world.bridge.deliver_late(shard, 0.3)
            publisher.reset()

    world.clock.after(0.2, reset)


FAULTS: Final[Faults] = {
    "lose_fast_path": _lose_fast_path,
    "stop_bridge": _stop_bridge,
    "bridge_repeats": _bridge_repeats,
    "bridge_skips": _bridge_skips,
    "forge_and_reset": _forge_and_reset,
    "reset_overtakes": _reset_overtakes,
}
