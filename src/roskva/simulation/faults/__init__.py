"""How each fault of a tape is done to a world, and how it ends.

A fault takes its victim from `which`, its severity from `strength`, its duration from `length`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roskva.simulation.faults import clients, network, pipeline, processes, storage
from roskva.simulation.tape import Fault

if TYPE_CHECKING:
    from roskva.simulation.faults.victims import Faults
    from roskva.simulation.world import World

_FAULTS: Final[Faults] = {
    **network.FAULTS,
    **processes.FAULTS,
    **storage.FAULTS,
    **clients.FAULTS,
    **pipeline.FAULTS,
}


def inject(world: World, fault: Fault) -> None:
    world.seen(fault.kind)
    world.oracle.note(world.clock.now, f"fault {fault.kind}")
    _FAULTS[fault.kind](world, fault)
