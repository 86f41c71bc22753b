"""Clients that crash, forget, change their minds, or are not alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from roskva.model import Key
from roskva.simulation.clients import ClientNode
from roskva.simulation.faults.victims import client_of
from roskva.simulation.tape import Fault

if TYPE_CHECKING:
    from roskva.simulation.faults.victims import Faults
    from roskva.simulation.world import World


def _crash_client(world: World, fault: Fault) -> None:
    everybody = world.everybody()
    client = everybody[fault.which % len(everybody)]
    if client.alive:
        client.crash()
        world.clock.after(fault.length, client.start_again)


def _restart_after(world: World, fault: Fault, spoil: Callable[[ClientNode], None]) -> None:
    client = client_of(world, fault)
    if client.alive:
        client.crash()
        spoil(client)
        world.clock.after(fault.length, client.start_again)


def _replay_token(client: ClientNode) -> None:
    """An older token of the same client; what is cached is of today."""
    if client.identity is not None:
        client.identity = client.identities[-1]


def _denied(world: World, fault: Fault) -> None:
    """The application's backend takes an authorisation back for a while, often for less than it
    takes the refused client to ask again. Half of the clients have just rolled their cache back."""
    key = world.objects[fault.which % len(world.objects)]
    world.denied.add(key)
    away = min(fault.length, 0.5) if (fault.which >> 8) % 2 else fault.length
    world.clock.after(away, lambda: world.denied.discard(key))
    client = client_of(world, fault)
    if not client.alive or key not in client.app.wanted:
        return
    if fault.strength < 0.5 or not _roll_back(world, client, key, fault.which):
        client.unregister(key)
        client.want(key)


def _churn(world: World, fault: Fault) -> None:
    client = client_of(world, fault)
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
    client = client_of(world, fault)
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


def _slow_reader(world: World, fault: Fault) -> None:
    client = client_of(world, fault)
    client.reads_slowly = True
    world.clock.after(fault.length, client.read_again)


def _twin(world: World, fault: Fault) -> None:
    original = client_of(world, fault)
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
    client, now = client_of(world, fault), world.clock.now
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
    client, now = client_of(world, fault), world.clock.now
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
    client = client_of(world, fault)
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


FAULTS: Final[Faults] = {
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
}
