"""What befalls a database, the log of its changes, and the process between: as faults of a tape,
and as short histories for a cluster that is well again (`histories.py`)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from roskva.model import NO_VERSION, Key, Update, app_of
from roskva.simulation.clients import APP
from roskva.simulation.disk import SimulatedDisk
from roskva.simulation.oracle import Violation
from roskva.simulation.source import LOG
from roskva.simulation.tape import SOURCE_KINDS, Fault
from roskva.sources.position import Slot
from roskva.store.memory import MemoryStore
from roskva.wire.links import FromShard, PublishUpdates, UpdatesPublished

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
    _unless_healed(world, delay, lambda: world.database.promote(lost, keeps_slot))


def failover_and_back(world: SourcedWorld, fault: Fault) -> None:
    failover(world, fault)
    _unless_healed(world, 5.0 + fault.length, world.database.go_back)


def _unless_healed(world: SourcedWorld, delay: float, do: Callable[[], None]) -> None:
    def when_due() -> None:
        if not world.healed:
            do()

    world.clock.after(delay, when_due)


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
    """Nobody is told what nobody can see, however long that is (`SourcedWorld.check_told`), and no
    doubt that stands for it."""
    standby_away(world, Fault(0.0, "", 12.0 + 10.0 * world.dice.random(), 0, 0.5))
    if world.dice.random() < 0.5:
        slot_dropped(world, Fault(0.0, "", 1.0, 0, 0.5))
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


def reset_refused(world: SourcedWorld) -> None:
    """A shard cannot write what is changed, and perhaps not the reset of the doubt that follows.
    Its link stays up."""
    row = _wanted_row(world)
    shard = world.shard_of(row)
    shard.disk.fail("sync", errno.EIO, times=None)
    _surely_change(world, row)
    world.clock.run(world.clock.now + 1.0)
    _doubt(world)
    world.clock.run(world.clock.now + world.dice.choice((0.0, 3.0)))
    shard.disk.heal()


def answered_twice(world: SourcedWorld) -> None:
    """A doubt, and another one. The first reset is asked for more than once, for answers are late,
    and a shard cannot write when the second comes."""
    shard = world.shard_of(_wanted_row(world))
    for link in world.source.links.values():
        link.answers_late = 8.0
    _doubt(world)
    world.clock.run(world.clock.now + 5.0)  # clients have looked
    shard.disk.fail("sync", errno.EIO, times=None)
    _doubt(world)
    world.clock.run(world.clock.now + 6.0)
    shard.disk.heal()
    for link in world.source.links.values():
        link.answers_late = 0.0


def shards_away(world: SourcedWorld) -> None:
    """For longer than a publish is held, and nothing changes after that. The source may be killed
    meanwhile."""
    _rest(world)
    for shard in world.shards:
        shard.crash()
    world.change_rows()
    world.clock.run(world.clock.now + 7.0)
    if world.dice.random() < 0.5:
        _restart(world, 1.0, None)
    for shard in world.shards:
        shard.start_again()


def hole_in_the_log(world: SourcedWorld) -> None:
    """What a row was changed to last is damaged before it is published, and other rows follow."""
    source, clock = world.source, world.clock
    row = _wanted_row(world)
    others = [key for key in world.objects if key != row]
    if not others:
        return
    _rest(world)
    for shard in world.shards:
        shard.crash()
    _surely_change(world, row)
    clock.run(clock.now + 2.0)
    segment = max(name for name in source.disk.list(LOG) if name.endswith(".log"))
    end = source.disk.size(f"{LOG}/{segment}")
    _surely_change(world, others[0])
    clock.run(clock.now + 2.0)

    def rot() -> None:
        source.intact = False
        source.disk.flip(f"{LOG}/{segment}", 8 * (end - 10))

    _restart(world, 1.0, rot)
    for shard in world.shards:
        shard.start_again()


def died_idle(world: SourcedWorld) -> None:
    """The database is told that it may forget what has nothing of ours, and the source is killed:
    nothing was missed, and nobody is to look."""
    source, doubts = world.source, world.source.doubts
    for wait in (1.5, 0.2, 0.4, 0.6):
        world.database.idle()
        world.clock.run(world.clock.now + wait)
    _restart(world, 0.5, None)
    world.clock.run(world.clock.now + 10.0)
    if source.doubts != doubts:
        raise Violation("a doubt was told, and nothing had been missed")


def published_late(world: SourcedWorld) -> None:
    """A shard dies that has just begun an ordinal. Until it has read that in its feed it cannot
    know what is late, and takes nothing."""
    row = _wanted_row(world)
    version, shard = world.newest.get(row, NO_VERSION), world.shard_of(row)
    before = shard.host.generation_of(APP)
    slot_dropped(world, Fault(0.0, "", 1.0, 0, 0.5))
    _await(world, lambda: shard.host.generation_of(APP) > before)
    shard.crash()
    shard.start_again()
    _publish_late(shard, row, version)


def feed_lost(world: SourcedWorld) -> None:
    """With it a shard has forgotten the generation. Whoever has passed the doubt asks for it again
    when the shard is back, and until it is there."""
    row = _wanted_row(world)
    version, shard = world.newest.get(row, NO_VERSION), world.shard_of(row)
    _doubt(world)
    world.clock.run(world.clock.now + 10.0)
    shard.crash()
    shard.disk, shard.store, shard.intact = SimulatedDisk(), MemoryStore(), False
    shard.snapshots.clear()
    shard.start_again()
    world.clock.run(world.clock.now + 10.0)
    _publish_late(shard, row, version)


def _publish_late(shard: ShardNode, row: Key, version: int) -> None:
    """If there is anything that could be."""

    def answered(told: FromShard) -> None:
        if isinstance(told, UpdatesPublished) and told.versions != [NO_VERSION]:
            raise Violation(f"{row} {version} was taken, and is of before the last doubt")

    if version != NO_VERSION:
        shard.ask(PublishUpdates(1, [Update(row, version)]), answered)


def _doubt(world: SourcedWorld) -> None:
    """Until it is in the log of changes."""
    doubts = world.source.doubts
    slot_dropped(world, Fault(0.0, "", 1.0, 0, 0.5))
    _await(world, lambda: world.source.doubts > doubts)


def _await(world: SourcedWorld, come: Callable[[], bool]) -> None:
    until = world.clock.now + 30.0
    while not come() and world.clock.now < until:
        world.clock.run(world.clock.now + 0.0005)


def _rest(world: SourcedWorld) -> None:
    """The late flow makes good nothing until it was judged."""
    world.late_flow.rests_until = world.clock.now + 30.0 + world.bound()


def _wanted_row(world: SourcedWorld) -> Key:
    wanted = [key for each in world.everybody() for key in each.app.wanted if app_of(key) == APP]
    return world.dice.choice(wanted or world.objects)


def _surely_change(world: SourcedWorld, key: Key) -> None:
    before = world.look(key)
    while world.look(key) == before:
        world.database.change([key])
        world.clock.run(world.clock.now + 0.1)


_HISTORIES: Final = (
    *(seen_late, died_often, log_lost, hindered, reset_refused, answered_twice, shards_away),
    *(hole_in_the_log, died_idle, published_late, feed_lost),
)
