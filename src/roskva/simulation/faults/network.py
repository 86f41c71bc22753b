"""Messages that are lost, late, or held up; connections that end, or only seem to live."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roskva.simulation.faults.victims import client_of, registrar_of, shard_of
from roskva.simulation.tape import Fault

if TYPE_CHECKING:
    from roskva.simulation.faults.victims import Faults
    from roskva.simulation.world import World


def _lossy(world: World, fault: Fault) -> None:
    world.net.lossy = fault.strength

    def over() -> None:
        world.net.lossy = 0.0

    world.clock.after(fault.length, over)


def _slow_network(world: World, fault: Fault) -> None:
    world.net.slow = 3.0 * fault.strength

    def over() -> None:
        world.net.slow = 0.0

    world.clock.after(fault.length, over)


def _clog(world: World, fault: Fault) -> None:
    everybody = world.everybody()
    conn = everybody[fault.which % len(everybody)].conn
    if conn is not None:
        conn.clogged_until = world.clock.now + fault.length


def _swizzle(world: World, fault: Fault) -> None:
    conns = [client.conn for client in world.everybody() if client.conn is not None]
    world.dice.shuffle(conns)
    for i, conn in enumerate(conns):
        until = world.clock.now + 1.0 + fault.length * world.dice.random()

        def clog(conn: object = conn, until: float = until) -> None:
            conn.clogged_until = until  # type: ignore[attr-defined]

        world.clock.after(i * 0.3, clog)


def _cut(world: World, fault: Fault, how: str) -> None:
    ends = (registrar_of(world, fault).name, shard_of(world, fault).name)
    world.net.cuts[ends] = how

    def over() -> None:
        world.net.cuts.pop(ends, None)

    world.clock.after(fault.length, over)


def _half_open(world: World, fault: Fault) -> None:
    everybody = world.everybody()
    conn = everybody[fault.which % len(everybody)].conn
    if conn is not None:
        conn.dead = True


def _deaf(world: World, fault: Fault) -> None:
    """And something changes that it wants, perhaps for the last time."""
    client = client_of(world, fault)
    if client.conn is None or not client.app.wanted:
        return
    client.conn.deaf_until = world.clock.now + min(fault.length, 4.0)
    wanted = list(client.app.wanted)
    publisher = world.publishers[wanted[fault.which % len(wanted)]]
    if publisher.is_idle():
        publisher.change()
        if fault.strength > 0.5:
            publisher.rest()


def _cut_clients(world: World, fault: Fault) -> None:
    for conn in list(registrar_of(world, fault).conns.values()):
        conn.reset()


FAULTS: Final[Faults] = {
    "lossy": _lossy,
    "slow_network": _slow_network,
    "clog": _clog,
    "swizzle": _swizzle,
    "partition": lambda world, fault: _cut(world, fault, "both"),
    "one_way": lambda world, fault: _cut(world, fault, "one_way"),
    "half_open": _half_open,
    "deaf": _deaf,
    "cut_clients": _cut_clients,
}
