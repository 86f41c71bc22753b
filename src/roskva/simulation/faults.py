"""How each fault of a tape is done to a world, and how it ends.

A fault takes its victim from `which`, its severity from `strength`, its duration from `length`.
Every kind that a tape may name (`tape.FAULTS`) is a function of that name here.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from roskva.model import Key
from roskva.simulation.clients import ClientNode
from roskva.simulation.disk import SimulatedDisk
from roskva.simulation.network import Connection
from roskva.simulation.pipeline import STRAGGLERS
from roskva.simulation.process import SimulatedProcess
from roskva.simulation.shard import FEED, ShardNode
from roskva.simulation.tape import KINDS, Fault
from roskva.simulation.zombie import Zombie
from roskva.store.base import DeleteCell
from roskva.store.memory import MemoryStore

if TYPE_CHECKING:
    from roskva.simulation.world import World

N = TypeVar("N", bound=SimulatedProcess)
T = TypeVar("T")


def inject(world: World, fault: Fault) -> None:
    world.seen(fault.kind)
    world.oracle.note(world.clock.now, f"fault {fault.kind}")
    world.faults[fault.kind](world, fault)


# Whom a fault hits, and what many have in common.


def _one(of: Sequence[T], fault: Fault) -> T:
    return of[fault.which % len(of)]


def _connection(world: World, fault: Fault) -> Connection | None:
    """Anybody's."""
    return _one(world.everybody(), fault).conn


def _online(world: World, fault: Fault) -> tuple[ClientNode, Connection, Key] | None:
    """A client that is connected, and an object that it wants."""
    client = _one(world.clients, fault)
    keys = list(client.app.wanted)
    if not keys or client.conn is None:
        return None
    return client, client.conn, keys[fault.which % len(keys)]


def _for_a_while(
    world: World, fault: Fault, what: object, name: str, value: object, then: object = 0.0
) -> None:
    setattr(what, name, value)
    world.clock.after(fault.length, partial(setattr, what, name, then))


def _restart(node: N, fault: Fault, meanwhile: Callable[[N, Fault], None] | None = None) -> None:
    """It crashes, something happens to what is left of it, and it starts again."""
    if node.alive:
        node.crash()
        if meanwhile is not None:
            meanwhile(node, fault)
        node.world.clock.after(fault.length, node.start_again)


def _restart_one(
    world: World, fault: Fault, of: str, meanwhile: Callable[[Any, Fault], None] | None = None
) -> None:
    _restart(_one(getattr(world, of), fault), fault, meanwhile)


def _change_something(world: World, fault: Fault, shard: ShardNode) -> None:
    """An object of this shard, and perhaps for the last time: what is lost of it stays lost."""
    keys = [key for key in world.objects if world.shard_of(key) is shard]
    if keys:
        publisher = world.publishers[keys[fault.which % len(keys)]]
        publisher.change_if_idle(for_the_last_time=fault.strength > 0.5)


# Messages that are lost, late, or held up; connections that end, or only seem to live.


def lossy(world: World, fault: Fault) -> None:
    _for_a_while(world, fault, world.net, "lossy", fault.strength)


def slow_network(world: World, fault: Fault) -> None:
    _for_a_while(world, fault, world.net, "slow", 3.0 * fault.strength)


def clog(world: World, fault: Fault) -> None:
    conn = _connection(world, fault)
    if conn is not None:
        conn.clogged_until = world.clock.now + fault.length


def swizzle(world: World, fault: Fault) -> None:
    conns = [client.conn for client in world.everybody() if client.conn is not None]
    world.dice.shuffle(conns)
    for i, conn in enumerate(conns):
        until = world.clock.now + 1.0 + fault.length * world.dice.random()
        world.clock.after(i * 0.3, partial(setattr, conn, "clogged_until", until))


def _cut(world: World, fault: Fault, how: str) -> None:
    ends = (_one(world.registrars, fault).name, _one(world.shards, fault).name)
    world.net.cuts[ends] = how
    world.clock.after(fault.length, lambda: world.net.mend(ends))


partition = partial(_cut, how="both")
one_way = partial(_cut, how="one_way")


def half_open(world: World, fault: Fault) -> None:
    conn = _connection(world, fault)
    if conn is not None:
        conn.dead = True


def deaf(world: World, fault: Fault) -> None:
    """And something changes that it wants, perhaps for the last time."""
    if (found := _online(world, fault)) is not None:
        _, conn, key = found
        conn.deaf_until = world.clock.now + min(fault.length, 4.0)
        world.publishers[key].change_if_idle(for_the_last_time=fault.strength > 0.5)


def cut_clients(world: World, fault: Fault) -> None:
    _one(world.registrars, fault).cut_clients()


# Servers that crash, stop for a while, are slow, or have their clock wrong.


def _pause(world: World, fault: Fault, of: str) -> None:
    node, until = _one(getattr(world, of), fault), world.clock.now + max(1.0, fault.length)
    node.paused_until = max(node.paused_until, until)


def _slow(world: World, fault: Fault, of: str) -> None:
    _for_a_while(world, fault, _one(getattr(world, of), fault), "slowness", fault.strength)


crash_registrar = partial(_restart_one, of="registrars")
crash_shard = partial(_restart_one, of="shards")
pause_registrar = partial(_pause, of="registrars")
pause_shard = partial(_pause, of="shards")
slow_registrar = partial(_slow, of="registrars")
slow_shard = partial(_slow, of="shards")


def zombie(world: World, fault: Fault) -> None:
    """Something changes while it sleeps, and when it wakes its registrars look for their shard."""
    shard = _one(world.shards, fault)
    if not shard.alive:
        return
    owner = Zombie(shard)
    shard.crash("kept")
    world.clock.after(1.0, shard.start_again)
    world.clock.after(3.0, partial(_change_something, world, fault, shard))

    def wake() -> None:
        if world.healed or shard.index in world.zombies:
            return
        owner.wake()
        for registrar in world.registrars:
            if shard.index in registrar.links:
                registrar.links[shard.index].drop("registrar")

    world.clock.after(4.0 + fault.length, wake)


def wall_jump(world: World, fault: Fault) -> None:
    for node in (_one(world.shards, fault), _one(world.registrars, fault)):
        world.skews[node.name] = (fault.strength - 0.5) * 7200


# Stores and feeds that fail, fill up, rot, or come back from a backup.


def write_error(world: World, fault: Fault) -> None:
    """Of something, and now and then the shard has to start from what was written, and tell it to
    somebody who was away."""
    shard, away = _one(world.shards, fault), _one(world.clients, fault)
    shard.store.failing_writes = 1 + fault.which % 3
    _change_something(world, fault, shard)
    if fault.strength > 0.4 and away.alive:
        away.crash()
        world.clock.after(8.0, lambda: None if world.healed else crash_shard(world, fault))
        world.clock.after(8.0 + fault.length + 5.0 * world.dice.random(), away.start_again)


def rows_unavailable(world: World, fault: Fault) -> None:
    byte, near = bytes([fault.which % 256]), bytes([(fault.which + 1) % 256])
    prefixes = (b"c" + byte, b"o" + byte, b"c" + near, b"c", b"o")[: 2 + fault.which % 4]
    store = _one(world.shards, fault).store
    _for_a_while(world, fault, store, "refused_prefixes", prefixes, ())


def _halve_a_row(shard: ShardNode, fault: Fault) -> None:
    able = not shard.store.refused_prefixes and not shard.store.failing_writes
    rows = [key for key, _ in shard.store.scan(b"c", b"d")] if able else []
    if rows:
        row = rows[fault.which % len(rows)]
        shard.store.write([DeleteCell(row, b"c")], sync=True)


def half_row(world: World, fault: Fault) -> None:
    """It is found by the next round, or by the first after a start."""
    shard = _one(world.shards, fault)
    if fault.strength < 0.5 or world.swarm.collect_pause > 10.0:
        _restart(shard, fault, _halve_a_row)
    elif shard.alive:
        _halve_a_row(shard, fault)


def slow_store(world: World, fault: Fault) -> None:
    _for_a_while(world, fault, _one(world.shards, fault), "slow_store", fault.strength)


def _restore(shard: ShardNode, fault: Fault) -> None:
    shard.restore(shard.snapshots[-1 - fault.which % min(len(shard.snapshots), 4)])


def old_snapshot(world: World, fault: Fault) -> None:
    shard = _one(world.shards, fault)
    if shard.snapshots:
        _restart(shard, fault, _restore)


def cold_restore(world: World, fault: Fault) -> None:
    """It takes a while to read a feed from a disk that is cold, and applications do not wait. A
    machine that was restored may have its clock wrong, too."""
    shard = _one(world.shards, fault)
    if not shard.alive or not shard.snapshots:
        return
    shard.crash()
    shard.restore(shard.snapshots[0])  # the oldest there is: most to catch up with
    shard.slow_store = 1.0
    if fault.which % 2:
        world.skews[shard.name] = world.skew_of(shard.name) - 3600
    world.clock.after(0.5, shard.start_again)
    world.clock.after(30.0, partial(setattr, shard, "slow_store", 0.0))
    for client in world.clients[:: 1 + fault.which % 2]:
        if client.alive:
            client.crash_forgetting()
            world.clock.after(0.6 + 20.0 * world.dice.random(), client.start_again)


def _empty_feed(shard: ShardNode, fault: Fault) -> None:
    shard.disk = SimulatedDisk()
    shard.intact = False


def _empty(shard: ShardNode, fault: Fault) -> None:
    _empty_feed(shard, fault)
    shard.store = MemoryStore()
    shard.snapshots.clear()
    shard.durable_marker = None


lose_disk = partial(_restart_one, of="shards", meanwhile=_empty)
feed_recreated = partial(_restart_one, of="shards", meanwhile=_empty_feed)


def feed_rots(world: World, fault: Fault) -> None:
    shard = _one(world.shards, fault)
    shard.rot = max(0.2, fault.strength)
    _change_something(world, fault, shard)
    world.clock.after(fault.length, partial(setattr, shard, "rot", 0.0))


def _lose_history(world: World, fault: Fault, damage: Callable[[ShardNode, Fault], None]) -> None:
    """While some clients are away, so that they miss what is lost: an old store, a damaged feed."""
    shard = _one(world.shards, fault)
    away = [client for client in world.everybody() if world.dice.random() < 0.5 and client.alive]
    for client in away:
        client.crash()

    def lose() -> None:
        if shard.alive and not world.healed:
            # Not by a power cut: one that takes the newest end of the feed, and a bit flipped in
            # the last frame before it, together look like a write that was never acknowledged.
            shard.crash("kept")
            if shard.snapshots:
                _restore(shard, fault)
            damage(shard, fault)
            world.clock.after(fault.length, shard.start_again)
        for client in away:
            world.clock.after(fault.length + 5.0 * world.dice.random(), client.start_again)

    world.clock.after(20.0, lose)


def _flip_a_bit(shard: ShardNode, fault: Fault) -> None:
    segments = shard.segments()
    path = segments[-1 - fault.which % min(len(segments), 3)] if segments else ""
    if path and shard.disk.size(path):
        shard.disk.flip(path, int(shard.disk.size(path) * 8 * shard.world.dice.random()))
        shard.intact = False


def _drop_old_segments(shard: ShardNode, fault: Fault) -> None:
    for path in shard.segments()[: -1 - fault.which % 2]:
        shard.disk.remove(path)
        shard.intact = False
    shard.disk.sync_directory(FEED)


feed_bit_flip = partial(_lose_history, damage=_flip_a_bit)
"""In what the matcher has to read, because it comes back behind."""
feed_replaced = partial(_lose_history, damage=_empty_feed)
"""A backup of the store comes back, and there is none of the feed."""
retention = partial(_lose_history, damage=_drop_old_segments)
"""A backup comes back that is older than what the feed still has."""


def feed_full(world: World, fault: Fault) -> None:
    disk = _one(world.shards, fault).disk
    disk.capacity = disk.used() + 50  # half of a frame fits
    world.clock.after(fault.length, disk.heal)


def feed_error(world: World, fault: Fault) -> None:
    _one(world.shards, fault).disk.fail("sync", errno.EIO, times=1 + fault.which % 2)


def feed_torn(world: World, fault: Fault) -> None:
    disk = _one(world.shards, fault).disk
    disk.cut_before_step = disk.steps + fault.which % 7


# Clients that crash, forget, change their minds, or are not alone.


def crash_client(world: World, fault: Fault) -> None:
    _restart(_one(world.everybody(), fault), fault)


_restart_client = partial(_restart_one, of="clients")
crash_client_forgetting = partial(
    _restart_client, meanwhile=lambda client, _: client.crash_forgetting()
)
lose_token = partial(_restart_client, meanwhile=lambda client, _: client.spoil_token())
replay_token = partial(_restart_client, meanwhile=lambda client, _: client.take_older_token())


def denied(world: World, fault: Fault) -> None:
    """The application's backend takes an authorisation back for a while, often for less than it
    takes the refused client to ask again. Half of the clients have just rolled their cache back."""
    key = _one(world.objects, fault)
    world.denied.add(key)
    away = min(fault.length, 0.5) if (fault.which >> 8) % 2 else fault.length
    world.clock.after(away, lambda: world.denied.discard(key))
    client = _one(world.clients, fault)
    if not client.alive or key not in client.app.wanted:
        return
    if fault.strength < 0.5 or not _roll_back(world, client, key, fault.which):
        client.unregister(key)
        client.want(key)


def churn(world: World, fault: Fault) -> None:
    client = _one(world.clients, fault)
    keys = list(client.app.wanted)
    if not keys or not client.alive:
        return
    key = keys[fault.which % len(keys)]
    client.unregister(key)
    if fault.strength < 0.7:
        again = fault.length * (0.01 if fault.which % 2 else 1.0)
        world.clock.after(again, lambda: client.want(key))
    else:
        client.want(_one(world.objects, fault))


def slow_reader(world: World, fault: Fault) -> None:
    client = _one(world.clients, fault)
    client.reads_slowly = True
    world.clock.after(fault.length, client.read_again)


def redeclare(world: World, fault: Fault) -> None:
    client = _one(world.clients, fault)
    for key in list(client.app.wanted):
        _roll_back(world, client, key, fault.which)


def _roll_back(world: World, client: ClientNode, key: Key, which: int) -> bool:
    """The application goes back to an older version in its cache, if there was one, and says so."""
    versions = [version for named, version in world.oracle.stamp_of if named == key]
    older = [v for v in versions if v < client.app.version.get(key, -1)]
    if not older or not client.alive or client.app.wrote(key):
        return False
    version = older[which % len(older)]
    client.app.forget(key)
    client.acked.pop(key, None)
    client.app.knows[key] = world.oracle.stamp_of[key, version]
    client.app.dropped.add(key)
    client.register(key, version)
    return True


def twin(world: World, fault: Fault) -> None:
    original = _one(world.clients, fault)
    if original.identity is None:
        return
    other = ClientNode(world, 100 + world.next_id(), list(original.app.wanted))
    other.identity, other.app = original.identity, original.app  # two tabs over one cache
    other.start()
    world.twins.append(other)
    world.clock.after(fault.length, other.crash)


def long_away(world: World, fault: Fault) -> None:
    """And some are back just before what they have there has expired, some just after."""
    key = _one(world.objects, fault)
    away = [c for c in world.everybody() if key in c.app.wanted and c.alive]
    for client in away:
        client.crash()
    publisher, back = world.publishers[key], 15.0 + 2.0 * fault.length
    world.clock.after(1.0, lambda: publisher.change_if_idle(for_the_last_time=fault.strength > 0.3))
    for client in away:
        world.clock.after(back + 30.0 * world.dice.random(), client.start_again)


def herd(world: World, fault: Fault) -> None:
    for registrar in world.registrars:
        registrar.cut_clients()


def writes_blind(world: World, fault: Fault) -> None:
    """Somebody changes an object. It misses that, or its shard does, and makes the next change."""
    if (found := _online(world, fault)) is None:
        return
    client, conn, key = found
    publisher, shard = world.publishers[key], world.shard_of(key)
    if not publisher.is_idle():
        return
    if fault.strength < 0.5:
        conn.deaf_until = world.clock.now + 0.3
    else:
        shard.fast_path_loss = 1.0
        bridge = world.bridge  # it would have brought it before the next change
        bridge.stopped_until = max(bridge.stopped_until, world.clock.now + 1.0)
    publisher.change()

    def write() -> None:
        shard.hand_over_as_usual()
        if client.alive and key in client.app.wanted:
            publisher.change_if_idle(client, for_the_last_time=fault.which % 2 > 0)

    world.clock.after(0.4, write)


def acks_late(world: World, fault: Fault) -> None:
    """Told a version, it takes its time. Meanwhile the next one is lost, and so is the word that
    something was lost."""
    if (found := _online(world, fault)) is None:
        return
    client, _, key = found
    publisher, shard = world.publishers[key], world.shard_of(key)
    if not publisher.is_idle():
        return
    noticed = world.clock.now + 2.0 + world.swarm.feed_tick
    client.busy_until = noticed + 0.3
    publisher.change()

    def lose() -> None:
        if client.conn is not None and publisher.is_idle():
            client.conn.deaf_until = noticed
            shard.rot = 1.0
            publisher.change_if_idle(for_the_last_time=fault.which % 2 > 0)

    world.clock.after(0.6, lose)
    world.clock.after(1.2, partial(setattr, shard, "rot", 0.0))


def registers_cut_off(world: World, fault: Fault) -> None:
    if (found := _online(world, fault)) is None:
        return
    client, conn, key = found
    ends = (conn.server.name, world.shard_of(key).name)
    world.net.cuts[ends] = "both"
    world.publishers[key].change_if_idle()
    world.clock.after(16.0, lambda: client.unregister(key))
    world.clock.after(16.7, lambda: None if world.healed else client.want(key))
    world.clock.after(40.0, lambda: world.net.mend(ends))


# A fast path that loses, a bridge that fails, and publishers that have to take back.


def lose_fast_path(world: World, fault: Fault) -> None:
    shard = _one(world.shards, fault)
    shard.fast_path_loss = max(0.1, fault.strength)
    world.clock.after(fault.length, shard.hand_over_as_usual)


def stop_bridge(world: World, fault: Fault) -> None:
    world.bridge.stopped_until = world.clock.now + fault.length


def bridge_hangs(world: World, fault: Fault) -> None:
    for_good = fault.strength > 0.7
    world.bridge.hangs_until = inf if for_good else world.clock.now + fault.length


def bridge_repeats(world: World, fault: Fault) -> None:
    world.bridge.repeats += 1


def bridge_skips(world: World, fault: Fault) -> None:
    world.bridge.skips += 1


def forge_and_reset(world: World, fault: Fault) -> None:
    """Somebody publishes a version from the far future; an operator resets the object."""
    publisher = world.publishers[_one(world.objects, fault)]
    if publisher.forge():
        publisher.reset_later()
    if fault.strength > 0.5:  # somebody keeps the forged version, and is away for the reset
        away = _one(world.clients, fault)
        world.clock.after(55.0, lambda: None if world.healed else away.crash())
        world.clock.after(70.0 + 25.0 * world.dice.random(), away.start_again)


def reset_overtakes(world: World, fault: Fault) -> None:
    """The shard misses a forged version. It hears of the reset while the bridge brings that."""
    key = _one(world.objects, fault)
    publisher, shard = world.publishers[key], world.shard_of(key)
    shard.fast_path_loss = 1.0
    forged = publisher.forge()

    def reset() -> None:
        shard.hand_over_as_usual()
        if not forged:
            return
        if publisher.in_flight or not shard.alive:
            publisher.reset_later()
        else:
            world.bridge.deliver_late(shard, 0.3)
            publisher.reset()

    world.clock.after(0.2, reset)


def reset_app(world: World, fault: Fault) -> None:
    """An operator resets an app, whose backend goes back in time as a rule. Somebody is away, or a
    shard crashes meanwhile."""
    if fault.strength < 0.25:
        world.operator.reset_other()
        return
    world.operator.reset_when_quiet(goes_back=fault.strength > 0.4, overtaking=fault.strength > 0.7)
    soon = STRAGGLERS + 3.0 * world.dice.random()
    if fault.which % 2:
        away = _one(world.clients, fault)
        world.clock.after(soon - 10.0, lambda: None if world.healed else away.crash())
        world.clock.after(soon + fault.length, away.start_again)
    elif fault.which % 4:
        shard = _one(world.shards, fault)
        world.clock.after(soon, lambda: None if world.healed else _restart(shard, fault))


NODE_FAULTS: Final[dict[str, Callable[[Any, Fault], None]]] = {
    kind: globals()[kind] for kind in KINDS
}
