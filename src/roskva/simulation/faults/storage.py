"""Stores and feeds that fail, fill up, rot, or come back from a backup."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from roskva.simulation.disk import SimulatedDisk
from roskva.simulation.faults.processes import crash_shard
from roskva.simulation.faults.victims import change_something, client_of, shard_of
from roskva.simulation.shard import FEED, ShardNode
from roskva.simulation.tape import Fault
from roskva.store.memory import MemoryStore

if TYPE_CHECKING:
    from roskva.simulation.faults.victims import Faults
    from roskva.simulation.world import World


def _write_error(world: World, fault: Fault) -> None:
    """Of something, and now and then the shard has to start from what was written, and tell it to
    somebody who was away."""
    shard, away = shard_of(world, fault), client_of(world, fault)
    shard.store.failing_writes = 1 + fault.which % 3
    change_something(world, fault, shard)
    if fault.strength > 0.4 and away.alive:
        away.crash()
        world.clock.after(8.0, lambda: None if world.healed else crash_shard(world, fault))
        world.clock.after(8.0 + fault.length + 5.0 * world.dice.random(), away.start_again)


def _rows_unavailable(world: World, fault: Fault) -> None:
    store = shard_of(world, fault).store
    byte = bytes([fault.which % 256])
    near = bytes([(fault.which + 1) % 256])
    store.refused_prefixes = (b"c" + byte, b"o" + byte, b"c" + near, b"c", b"o")[
        : 2 + fault.which % 4
    ]

    def over() -> None:
        store.refused_prefixes = ()

    world.clock.after(fault.length, over)


def _slow_store(world: World, fault: Fault) -> None:
    shard = shard_of(world, fault)
    shard.slow_store = fault.strength

    def over() -> None:
        shard.slow_store = 0.0

    world.clock.after(fault.length, over)


def _old_snapshot(world: World, fault: Fault) -> None:
    shard = shard_of(world, fault)
    if shard.alive and shard.snapshots:
        shard.crash()
        shard.restore(shard.snapshots[-1 - fault.which % min(len(shard.snapshots), 4)])
        world.clock.after(fault.length, shard.start_again)


def _cold_restore(world: World, fault: Fault) -> None:
    """It takes a while to read a feed from a disk that is cold, and applications do not wait. A
    machine that was restored may have its clock wrong, too."""
    shard = shard_of(world, fault)
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
    shard = shard_of(world, fault)
    if shard.alive:
        shard.crash()
        shard.disk, shard.store = SimulatedDisk(), MemoryStore()
        shard.snapshots.clear()
        shard.durable_marker = None
        shard.intact = False
        world.clock.after(fault.length, shard.start_again)


def _feed_recreated(world: World, fault: Fault) -> None:
    shard = shard_of(world, fault)
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
    shard = shard_of(world, fault)
    shard.rot = max(0.2, fault.strength)
    change_something(world, fault, shard)

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
    shard = shard_of(world, fault)
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
    shard = shard_of(world, fault)
    shard.disk.capacity = shard.disk.used() + 50  # half of a frame fits
    world.clock.after(fault.length, shard.disk.heal)


def _feed_error(world: World, fault: Fault) -> None:
    shard_of(world, fault).disk.fail("sync", errno.EIO, times=1 + fault.which % 2)


def _feed_torn(world: World, fault: Fault) -> None:
    disk = shard_of(world, fault).disk
    disk.cut_before_step = disk.steps + fault.which % 7


FAULTS: Final[Faults] = {
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
}
