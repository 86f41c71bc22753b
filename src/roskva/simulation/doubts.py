"""What befalls a database, the log of its changes, and the process between: as faults of a tape,
and as short histories for a cluster that is well again (`histories.py`)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from roskva.model import app_of
from roskva.simulation.clients import APP
from roskva.simulation.disk import SimulatedDisk
from roskva.simulation.oracle import Violation
from roskva.simulation.source import LOG
from roskva.simulation.tape import SOURCE_KINDS, Fault
from roskva.sources.position import Slot

if TYPE_CHECKING:
    from roskva.simulation.histories import History
    from roskva.simulation.shard import ShardNode
    from roskva.simulation.sourced import SourcedWorld


# The database.


def database_away(world: SourcedWorld, fault: Fault) -> None:
    world.database.away_until = world.clock.now + min(fault.length, 20.0)


def database_breaks(world: SourcedWorld, fault: Fault) -> None:
    world.database.breaks += 1


def standby_away(world: SourcedWorld, fault: Fault) -> None:
    """What is committed meanwhile is in the log, and nobody sees it."""
    world.database.standby_away_until = world.clock.now + max(1.0, fault.length)
    world.change_rows()


def slot_dropped(world: SourcedWorld, fault: Fault) -> None:
    """And something changes before anybody connects."""
    world.database.history.slot = None
    _something_unread(world)


def slot_lost(world: SourcedWorld, fault: Fault) -> None:
    slot = world.database.history.slot
    if slot is not None:
        world.database.history.slot = Slot(slot.confirmed, "its WAL is gone")
        _something_unread(world)


def slot_recreated(world: SourcedWorld, fault: Fault) -> None:
    """It begins after what nobody has read."""
    _something_unread(world)
    world.database.idle()
    world.database.history.slot = Slot(world.database.history.end)


def _something_unread(world: SourcedWorld) -> None:
    world.database.breaks += 1
    world.change_rows()


def failover(world: SourcedWorld, fault: Fault) -> None:
    world.change_rows()
    delay = 3.0 * world.dice.random()
    keeps_slot, lost = fault.strength < 0.6, fault.which % 4
    world.clock.after(delay, lambda: world.database.promote(lost, keeps_slot))


def failover_and_back(world: SourcedWorld, fault: Fault) -> None:
    failover(world, fault)
    world.clock.after(5.0 + fault.length, world.database.go_back)


def truncate(world: SourcedWorld, fault: Fault) -> None:
    world.database.change(world.objects, empties=True)
    world.seen("doubt: truncated")


# The process, its disk and its links.


def _restart(world: SourcedWorld, pause: float, meanwhile: Callable[[], None] | None) -> None:
    node = world.source
    if node.alive:
        node.crash()
        if meanwhile is not None:
            meanwhile()
        world.clock.after(pause, node.start_again)


def source_dies(world: SourcedWorld, fault: Fault) -> None:
    """Between any two of its duties, while there is something to do."""
    world.change_rows()
    soon = 2.0 * world.dice.random() * fault.strength
    world.clock.after(soon, lambda: _restart(world, min(fault.length, 10.0), None))


def source_paused(world: SourcedWorld, fault: Fault) -> None:
    world.source.paused_until = world.clock.now + min(fault.length, 20.0)


def source_loses_power(world: SourcedWorld, fault: Fault) -> None:
    """In the middle of an append, mostly."""
    disk = world.source.disk
    disk.cut_before_step = disk.steps + fault.which % 7
    world.change_rows()


def source_disk_fails(world: SourcedWorld, fault: Fault) -> None:
    world.source.disk.fail("sync", errno.EIO, times=1 + fault.which % 2)


def source_disk_full(world: SourcedWorld, fault: Fault) -> None:
    disk = world.source.disk
    disk.capacity = disk.used() + 50
    world.clock.after(min(fault.length, 10.0), disk.heal)


def changes_lost(world: SourcedWorld, fault: Fault) -> None:
    def lose() -> None:
        world.source.disk, world.source.intact = SimulatedDisk(), False

    _restart(world, min(fault.length, 10.0), lose)


def changes_restored(world: SourcedWorld, fault: Fault) -> None:
    """But not to before the database has gone back as well: nobody could tell that."""

    def restore() -> None:
        switches = world.database.switches
        copies = [disk for at, disk in world.source.copies if at == switches]
        if copies:
            world.source.disk = copies[-1 - fault.which % min(len(copies), 4)].copy()
            world.source.intact = False

    _restart(world, min(fault.length, 10.0), restore)


def changes_rot(world: SourcedWorld, fault: Fault) -> None:
    """What was appended last, and perhaps not passed on."""
    node = world.source
    if not node.disk.exists(LOG):
        return
    names = sorted(name for name in node.disk.list(LOG) if name.endswith(".log"))
    path = f"{LOG}/{names[-1 - fault.which % min(len(names), 2)]}" if names else ""
    if path and (size := node.disk.size(path)):
        node.intact = False
        near_its_end = size - 1 - int(world.dice.random() * min(size, 300))
        node.disk.flip(path, 8 * near_its_end)
        world.clock.after(fault.strength, lambda: _restart(world, 0.5, None))


def source_links_cut(world: SourcedWorld, fault: Fault) -> None:
    links = list(world.source.links.values())
    for link in links[: 1 + fault.which % max(1, len(links))]:
        link.drop("registrar")


def flow_rests(world: SourcedWorld, fault: Fault) -> None:
    """What it publishes then is of before many a doubt."""
    world.late_flow.rests_until = world.clock.now + fault.length


def _one_of_them(world: SourcedWorld, fault: Fault) -> ShardNode:
    return world.shards[fault.which % len(world.shards)]


def killed_in_a_doubt(world: SourcedWorld, fault: Fault) -> None:
    """Somebody who has to do with it: the source, or a shard. Or a shard cannot write just then."""
    slot_dropped(world, fault)
    if fault.strength < 0.4:
        _one_of_them(world, fault).disk.fail("sync", errno.EIO, times=3)
    for i in range(1 + fault.which % 3):
        soon = 0.6 + 2.0 * (i + world.dice.random())
        if world.dice.random() < 0.5:
            world.clock.after(soon, lambda: _restart(world, 0.5, None))
        else:
            shard = _one_of_them(world, fault)
            world.clock.after(soon, shard.crash)
            world.clock.after(soon + min(fault.length, 10.0), shard.start_again)


SOURCE_FAULTS: Final[dict[str, Callable[[SourcedWorld, Fault], None]]] = {
    kind: globals()[kind] for kind in SOURCE_KINDS
}


# Histories.


def of(seed: int) -> Iterator[History]:
    yield _HISTORIES[seed % len(_HISTORIES)]  # type: ignore[misc]
    yield told_once  # type: ignore[misc]


def told_once(world: SourcedWorld) -> None:
    """A doubt while one is away: everybody is told unknown in one epoch, whoever has to do with
    another app hears nothing, and what changes then is told."""
    away = world.dice.choice(world.clients)
    away.crash()
    identity = away.identity
    for client in world.clients:
        client.unknown_in = {}
    told = world.bystander.deliveries
    doubts = world.source.doubts
    doubt = world.dice.choice((slot_dropped, slot_lost, slot_recreated))
    doubt(world, Fault(0.0, "", 1.0, 0, 0.5))
    world.clock.run(world.clock.now + world.bound())
    away.start()
    world.clock.run(world.clock.now + world.bound())
    for client in world.clients:
        if client is away and (identity is None or world.swarm.object_keep):
            continue  # it is somebody else now, or what it wants was dropped meanwhile
        for key in client.app.wanted:
            times, due = len(client.unknown_in.get(key, ())), world.source.doubts - doubts
            if app_of(key) == APP and times != due:
                raise Violation(f"{client.name} was told {times} times of {due} doubts about {key}")
    if world.bystander is not away and world.bystander.deliveries != told:
        raise Violation("a doubt was told in an app that it has nothing to do with")
    world.change_rows()


def seen_late(world: SourcedWorld) -> None:
    """Nobody is told what nobody can see, however long that is (`SourcedWorld.check_told`)."""
    standby_away(world, Fault(0.0, "", 12.0 + 10.0 * world.dice.random(), 0, 0.5))
    world.clock.run(world.clock.now + 25.0)


def died_often(world: SourcedWorld) -> None:
    for _ in range(5):
        source_dies(world, Fault(0.0, "", 0.5, 0, world.dice.random()))
        world.clock.run(world.clock.now + 3.0)


def log_lost(world: SourcedWorld) -> None:
    fault = Fault(0.0, "", 1.0, world.dice.randrange(4), 0.5)
    world.dice.choice((changes_lost, changes_restored))(world, fault)
    world.change_rows()
    world.clock.run(world.clock.now + 10.0)


def hindered(world: SourcedWorld) -> None:
    """A doubt, and the source or a shard dies then, or a shard cannot write."""
    which, strength = world.dice.randrange(9), world.dice.random()
    killed_in_a_doubt(world, Fault(0.0, "", 1.0, which, strength))
    world.clock.run(world.clock.now + 10.0)


_HISTORIES: Final = (seen_late, died_often, log_lost, hindered)
