"""How each fault of a tape is done to a world."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from roskva.simulated_disk import SimulatedDisk
from roskva.simulation.clients import ClientNode
from roskva.simulation.node import Node
from roskva.simulation.shard import FEED, ShardNode
from roskva.simulation.tape import Fault
from roskva.store.memory import MemoryStore

if TYPE_CHECKING:
    from roskva.simulation.registrar import RegistrarNode
    from roskva.simulation.world import World


def inject(world: World, fault: Fault) -> None:
    world.seen(fault.kind)
    world.oracle.note(world.clock.now, f"fault {fault.kind}")
    _FAULTS[fault.kind](world, fault)


def _registrar(world: World, fault: Fault) -> RegistrarNode:
    return world.registrars[fault.which % len(world.registrars)]


def _shard(world: World, fault: Fault) -> ShardNode:
    return world.shards[fault.which % len(world.shards)]


def _client(world: World, fault: Fault) -> ClientNode:
    return world.clients[fault.which % len(world.clients)]


def _change_something(world: World, fault: Fault, shard: ShardNode) -> None:
    """An object of this shard, and perhaps for the last time: what is lost of it stays lost."""
    keys = [key for key in world.objects if world.shard_of(key) is shard]
    if keys:
        publisher = world.publishers[keys[fault.which % len(keys)]]
        if publisher.is_idle():
            publisher.change()
            if fault.strength > 0.5:
                publisher.rest()


# The network.


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
    ends = (_registrar(world, fault).name, _shard(world, fault).name)
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
    client = _client(world, fault)
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
    for conn in list(_registrar(world, fault).conns.values()):
        conn.reset()


# Processes.


def _crash_registrar(world: World, fault: Fault) -> None:
    registrar = _registrar(world, fault)
    if registrar.alive:
        registrar.crash()
        world.clock.after(fault.length, registrar.start_again)


def _crash_shard(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
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


# Storage.


def _write_error(world: World, fault: Fault) -> None:
    """Of something, and now and then the shard has to start from what was written, and tell it to
    somebody who was away."""
    shard, away = _shard(world, fault), _client(world, fault)
    shard.store.failing_writes = 1 + fault.which % 3
    _change_something(world, fault, shard)
    if fault.strength > 0.4 and away.alive:
        away.crash()
        world.clock.after(8.0, lambda: None if world.healed else _crash_shard(world, fault))
        world.clock.after(8.0 + fault.length + 5.0 * world.dice.random(), away.start_again)


def _rows_unavailable(world: World, fault: Fault) -> None:
    store = _shard(world, fault).store
    byte = bytes([fault.which % 256])
    near = bytes([(fault.which + 1) % 256])
    store.refused_prefixes = (b"c" + byte, b"o" + byte, b"c" + near, b"c", b"o")[
        : 2 + fault.which % 4
    ]

    def over() -> None:
        store.refused_prefixes = ()

    world.clock.after(fault.length, over)


def _slow_store(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
    shard.slow_store = fault.strength

    def over() -> None:
        shard.slow_store = 0.0

    world.clock.after(fault.length, over)


def _old_snapshot(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
    if shard.alive and shard.snapshots:
        shard.crash()
        shard.restore(shard.snapshots[-1 - fault.which % min(len(shard.snapshots), 4)])
        world.clock.after(fault.length, shard.start_again)


def _cold_restore(world: World, fault: Fault) -> None:
    """It takes a while to read a feed from a disk that is cold, and applications do not wait. A
    machine that was restored may have its clock wrong, too."""
    shard = _shard(world, fault)
    if not shard.alive or not shard.snapshots:
        return
    shard.crash()
    shard.restore(shard.snapshots[0])  # the oldest there is: most to catch up with
    shard.slow_store = 1.0
    if fault.which % 2:
        world.skews[shard.name] = world.skew_of(shard.name) - 3600

    def over() -> None:
        shard.slow_store = 0.0

    world.clock.after(0.5, shard.start_again)
    world.clock.after(30.0, over)
    for client in world.clients[:: 1 + fault.which % 2]:
        if client.alive:
            client.crash_forgetting()
            world.clock.after(0.6 + 20.0 * world.dice.random(), client.start_again)


def _lose_disk(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
    if shard.alive:
        shard.crash()
        shard.disk, shard.store = SimulatedDisk(), MemoryStore()
        shard.snapshots.clear()
        shard.durable_marker = None
        shard.intact = False
        world.clock.after(fault.length, shard.start_again)


def _feed_recreated(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
    if shard.alive:
        shard.crash()
        shard.disk = SimulatedDisk()
        shard.intact = False
        world.clock.after(fault.length, shard.start_again)


def _feed_replaced(world: World, fault: Fault) -> None:
    """A backup of the store comes back, and there is none of the feed."""
    _lose_history(world, fault, _empty_disk)


def _empty_disk(shard: ShardNode, fault: Fault) -> None:
    shard.disk = SimulatedDisk()
    shard.intact = False


def _feed_rots(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
    shard.rot = max(0.2, fault.strength)
    _change_something(world, fault, shard)

    def over() -> None:
        shard.rot = 0.0

    world.clock.after(fault.length, over)


def _feed_bit_flip(world: World, fault: Fault) -> None:
    """In what the matcher has to read, because it comes back behind."""
    _lose_history(world, fault, _flip_a_bit)


def _flip_a_bit(shard: ShardNode, fault: Fault) -> None:
    segments = shard.segments()
    path = segments[-1 - fault.which % min(len(segments), 3)] if segments else ""
    if path and shard.disk.size(path):
        shard.disk.flip(path, int(shard.disk.size(path) * 8 * shard.world.dice.random()))
        shard.intact = False


def _retention(world: World, fault: Fault) -> None:
    """A backup comes back that is older than what the feed still has."""
    _lose_history(world, fault, _drop_old_segments)


def _drop_old_segments(shard: ShardNode, fault: Fault) -> None:
    for path in shard.segments()[: -1 - fault.which % 2]:
        shard.disk.remove(path)
        shard.intact = False
    shard.disk.sync_directory(FEED)


def _lose_history(world: World, fault: Fault, damage: Callable[[ShardNode, Fault], None]) -> None:
    """While some clients are away, so that they miss what is lost: an old store, a damaged feed."""
    shard = _shard(world, fault)
    away = [client for client in world.everybody() if world.dice.random() < 0.5 and client.alive]
    for client in away:
        client.crash()

    def lose() -> None:
        if shard.alive and not world.healed:
            # Not by a power cut: one that takes the newest end of the feed, and a bit flipped in
            # the last frame before it, together look like a write that was never acknowledged.
            shard.crash("kept")
            if shard.snapshots:
                shard.restore(shard.snapshots[-1 - fault.which % min(len(shard.snapshots), 4)])
            damage(shard, fault)
            world.clock.after(fault.length, shard.start_again)
        for client in away:
            world.clock.after(fault.length + 5.0 * world.dice.random(), client.start_again)

    world.clock.after(20.0, lose)


def _feed_full(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
    shard.disk.capacity = shard.disk.used() + 100
    world.clock.after(fault.length, shard.disk.heal)


def _feed_error(world: World, fault: Fault) -> None:
    _shard(world, fault).disk.fail("sync", errno.EIO, times=1 + fault.which % 2)


def _feed_torn(world: World, fault: Fault) -> None:
    disk = _shard(world, fault).disk
    disk.cut_before_step = disk.steps + fault.which % 7


# Time.


def _wall_jump(world: World, fault: Fault) -> None:
    for node in (_shard(world, fault), _registrar(world, fault)):
        world.skews[node.name] = (fault.strength - 0.5) * 7200


# Clients.


def _crash_client(world: World, fault: Fault) -> None:
    everybody = world.everybody()
    client = everybody[fault.which % len(everybody)]
    if client.alive:
        client.crash()
        world.clock.after(fault.length, client.start_again)


def _restart_after(world: World, fault: Fault, spoil: Callable[[ClientNode], None]) -> None:
    client = _client(world, fault)
    if client.alive:
        client.crash()
        spoil(client)
        world.clock.after(fault.length, client.start_again)


def _replay_token(client: ClientNode) -> None:
    """An older token of the same client; what is cached is of today."""
    if client.identity is not None:
        client.identity = client.identities[-1]


def _denied(world: World, fault: Fault) -> None:
    """The application's backend takes an authorisation back for a while."""
    key = world.objects[fault.which % len(world.objects)]
    world.denied.add(key)
    world.clock.after(fault.length, lambda: world.denied.discard(key))
    client = _client(world, fault)
    if client.alive and key in client.app.wanted:
        client.unregister(key)
        client.want(key)


def _churn(world: World, fault: Fault) -> None:
    client = _client(world, fault)
    keys = list(client.app.wanted)
    if not keys or not client.alive:
        return
    key = keys[fault.which % len(keys)]
    client.unregister(key)
    if fault.strength < 0.7:
        again = fault.length * (0.01 if fault.which % 2 else 1.0)
        world.clock.after(again, lambda: client.want(key))
    else:
        client.want(world.objects[fault.which % len(world.objects)])


def _redeclare(world: World, fault: Fault) -> None:
    """The application rolls its cache back and says so."""
    client = _client(world, fault)
    for key in list(client.app.wanted):
        versions = [version for named, version in world.oracle.stamp_of if named == key]
        older = [v for v in versions if v < client.app.version.get(key, -1)]
        if older and client.alive and not client.app.wrote(key):
            version = older[fault.which % len(older)]
            client.app.forget(key)
            client.acked.pop(key, None)
            client.app.knows[key] = world.oracle.stamp_of[key, version]
            client.app.dropped.add(key)
            client.register(key, version)


def _slow_reader(world: World, fault: Fault) -> None:
    client = _client(world, fault)
    client.reads_slowly = True
    world.clock.after(fault.length, client.read_again)


def _twin(world: World, fault: Fault) -> None:
    original = _client(world, fault)
    if original.identity is None:
        return
    twin = ClientNode(world, 100 + world.next_id(), list(original.app.wanted))
    twin.identity, twin.app = original.identity, original.app  # two tabs over one cache
    twin.start()
    world.twins.append(twin)
    world.clock.after(fault.length, twin.crash)


def _herd(world: World, fault: Fault) -> None:
    for registrar in world.registrars:
        for conn in list(registrar.conns.values()):
            conn.reset()


def _writes_blind(world: World, fault: Fault) -> None:
    """Somebody changes an object. It misses that, or its shard does, and makes the next change."""
    client, now = _client(world, fault), world.clock.now
    keys = list(client.app.wanted)
    if not keys or client.conn is None:
        return
    key = keys[fault.which % len(keys)]
    publisher, shard = world.publishers[key], world.shard_of(key)
    if not publisher.is_idle():
        return
    if fault.strength < 0.5:
        client.conn.deaf_until = now + 0.3
    else:
        shard.fast_path_loss = 1.0
    publisher.change()

    def write() -> None:
        shard.fast_path_loss = world.swarm.fast_path_loss
        if client.alive and key in client.app.wanted and publisher.is_idle():
            publisher.change(client)
            if fault.which % 2:
                publisher.rest()

    world.clock.after(0.4, write)


def _acks_late(world: World, fault: Fault) -> None:
    """Told a version, it takes its time. Meanwhile the next one is lost, and so is the word that
    something was lost."""
    client, now = _client(world, fault), world.clock.now
    keys = list(client.app.wanted)
    if not keys or client.conn is None:
        return
    key = keys[fault.which % len(keys)]
    publisher, shard = world.publishers[key], world.shard_of(key)
    if not publisher.is_idle():
        return
    noticed = now + 2.0 + world.swarm.feed_tick
    client.busy_until = noticed + 0.3
    publisher.change()

    def lose() -> None:
        if client.conn is not None and publisher.is_idle():
            client.conn.deaf_until = noticed
            shard.rot = 1.0
            publisher.change()
            if fault.which % 2:
                publisher.rest()

    def over() -> None:
        shard.rot = 0.0

    world.clock.after(0.6, lose)
    world.clock.after(1.2, over)


def _registers_cut_off(world: World, fault: Fault) -> None:
    client = _client(world, fault)
    keys = list(client.app.wanted)
    if not keys or client.conn is None:
        return
    key = keys[fault.which % len(keys)]
    publisher = world.publishers[key]
    ends = (client.conn.server.name, world.shard_of(key).name)
    world.net.cuts[ends] = "both"
    if publisher.is_idle():
        publisher.change()

    def over() -> None:
        world.net.cuts.pop(ends, None)

    world.clock.after(16.0, lambda: client.unregister(key))
    world.clock.after(16.7, lambda: None if world.healed else client.want(key))
    world.clock.after(40.0, over)


# The pipeline.


def _lose_fast_path(world: World, fault: Fault) -> None:
    shard = _shard(world, fault)
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
        away = _client(world, fault)
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


_FAULTS: Final[dict[str, Callable[[World, Fault], None]]] = {
    "lossy": _lossy,
    "slow_network": _slow_network,
    "clog": _clog,
    "swizzle": _swizzle,
    "partition": lambda world, fault: _cut(world, fault, "both"),
    "one_way": lambda world, fault: _cut(world, fault, "one_way"),
    "half_open": _half_open,
    "deaf": _deaf,
    "cut_clients": _cut_clients,
    "crash_registrar": _crash_registrar,
    "crash_shard": _crash_shard,
    "pause_registrar": lambda world, fault: _pause(_registrar(world, fault), fault),
    "pause_shard": lambda world, fault: _pause(_shard(world, fault), fault),
    "slow_shard": lambda world, fault: _slow(_shard(world, fault), fault),
    "slow_registrar": lambda world, fault: _slow(_registrar(world, fault), fault),
    "write_error": _write_error,
    "rows_unavailable": _rows_unavailable,
    "slow_store": _slow_store,
    "old_snapshot": _old_snapshot,
    "cold_restore": _cold_restore,
    "lose_disk": _lose_disk,
    "feed_bit_flip": _feed_bit_flip,
    "feed_full": _feed_full,
    "feed_error": _feed_error,
    "feed_torn": _feed_torn,
    "feed_recreated": _feed_recreated,
    "feed_replaced": _feed_replaced,
    "feed_rots": _feed_rots,
    "retention": _retention,
    "wall_jump": _wall_jump,
    "crash_client": _crash_client,
    "crash_client_forgetting": lambda world, fault: _restart_after(
        world, fault, ClientNode.crash_forgetting
    ),
    "lose_token": lambda world, fault: _restart_after(world, fault, ClientNode.spoil_token),
    "replay_token": lambda world, fault: _restart_after(world, fault, _replay_token),
    "denied": _denied,
    "churn": _churn,
    "slow_reader": _slow_reader,
    "redeclare": _redeclare,
    "twin": _twin,
    "herd": _herd,
    "writes_blind": _writes_blind,
    "acks_late": _acks_late,
    "registers_cut_off": _registers_cut_off,
    "lose_fast_path": _lose_fast_path,
    "stop_bridge": _stop_bridge,
    "bridge_repeats": _bridge_repeats,
    "bridge_skips": _bridge_skips,
    "forge_and_reset": _forge_and_reset,
    "reset_overtakes": _reset_overtakes,
}
