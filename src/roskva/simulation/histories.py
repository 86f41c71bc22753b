"""What chance seldom brings about, done on purpose to a cluster that is well again.

Each is a short history of its own. It leaves everybody able to be told the latest, and the world
judges then that they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from roskva.host.shard import GAP_CLOSED_S
from roskva.simulation.clients import AnyClient, OwnChannelNode
from roskva.simulation.oracle import Violation
from roskva.store import rows as layout

if TYPE_CHECKING:
    from roskva.simulation.world import World

_HELD_AT_MOST: Final = 2.0 + 0.5 + 2.0
"""A shard is away, a registrar dials it again, and the publish and its answer take some time."""

History = Callable[["World"], None]


def of(seed: int) -> Iterator[History]:
    yield publishes_held
    yield _SOME[seed // 2 % len(_SOME)]
    yield app_reset if seed % 2 == 0 else shards_that_cannot_read


def publishes_held(world: World) -> None:
    """Shards go away under publishes, and come back before anybody has to know: some have been sent
    by then and some have not, and some are in a group that is not durable."""
    swarm, dice, clock = world.swarm, world.dice, world.clock
    for publisher in world.publishers.values():
        registrar, early = world.pick_registrar(), dice.random() * 3 * swarm.latency
        assert registrar is not None
        late = partial(publisher.change_once, registrar, _HELD_AT_MOST)
        clock.after(dice.choice((0.0, early, early + dice.random())), late)
    clock.run(clock.now + 2 * dice.random() * swarm.latency)
    for shard in world.shards:
        shard.crash()
        clock.after(1.0 + dice.random(), shard.start_again)


def shards_that_cannot_read(world: World) -> None:
    """Shards come back, and cannot read the rows of clients for as long as it takes to be told who
    is online: whoever is stays on record (`ShardNode._check_collected`)."""
    for shard in world.shards:
        shard.crash()
        shard.store.refused_prefixes = (layout.CLIENT,)
        shard.start_again()
    swarm, grace = world.swarm, world.shards[0].collecting.lost_grace
    world.clock.run(world.clock.now + 2.0 + grace)
    for shard in world.shards:
        shard.store.refused_prefixes = ()
    within = max(shard.collected_within() for shard in world.shards)
    kept = max(swarm.client_keep, min(swarm.mqtt_expiry, 60.0))
    world.clock.run(world.clock.now + (kept + grace + within) * (1 + 2 * swarm.drift))


def app_reset(world: World) -> None:
    """All is well, but for one client that is away: everybody is told unknown, in one epoch, and
    then the lower versions that follow."""
    away = world.dice.choice(world.clients)
    away.crash()
    identity = away.identity
    for client in world.clients:
        client.unknown_in = {}
    world.operator.reset_when_quiet(goes_back=True, patience=0.0)
    world.finish_resets()
    world.clock.run(world.clock.now + 5.0)
    away.start()
    world.clock.run(world.clock.now + world.bound())
    for client in world.clients:
        if client is away and identity is None:
            continue  # it is somebody else now, who has just registered
        for key in client.app.wanted:
            times = len(client.unknown_in.get(key, ()))
            if times != 1:
                raise Violation(f"{client.name} was told {times} times that {key} was reset")
    world.change_all()


def overtaken_acks(world: World) -> None:
    """Clients ack what is not the latest any more; what is, they are not reached by. Some lose
    their connection then, some only read slowly, and some hear nothing for a while."""
    clock, dice = world.clock, world.dice
    told, known = world.told_within(), world.known_within()
    for client in world.everybody():
        client.busy_until = clock.now + told + known
    world.change_all()
    clock.run(clock.now + told)
    cut: list[AnyClient] = []
    slow: list[AnyClient] = []
    for client in world.everybody():
        if client.conn is None:
            continue
        if not client.reliable and dice.random() < 0.3:
            client.conn.deaf_until = clock.now + known + 1.0
        else:
            client.reads_slowly = True
            dice.choice((cut, slow)).append(client)
    world.change_all()
    clock.run(clock.now + known + 0.2 + 5 * world.swarm.latency)
    for client in cut:
        if client.conn is not None:
            client.conn.reset()
    for client in [*cut, *slow]:
        client.read_again()


def reset_in_doubt(world: World) -> None:
    """An object is reset and everybody has acked that; but its answer is lost with the link it was
    asked for on, and something is published by another way before that link is back."""
    clock, dice = world.clock, world.dice
    for registrar in world.registrars:
        registrar.start_again()
    if len(world.registrars) == 1:
        return
    clock.run(clock.now + world.bound())
    asked, other, *more = world.registrars
    for registrar in more:
        registrar.crash()
    publisher = dice.choice(list(world.publishers.values()))
    shard = world.shard_of(publisher.key)
    world.net.cuts[asked.name, shard.name] = "one_way"
    publisher.reset_once(asked)
    clock.run(clock.now + 4.0)
    for client in world.everybody():
        client.crash()
    publisher.change_once(other, _HELD_AT_MOST)
    clock.run(clock.now + 2.0)
    world.net.mend((asked.name, shard.name))
    if shard.index in asked.links:
        asked.links[shard.index].drop("registrar")
    clock.run(clock.now + 5.0)
    for client in world.everybody():
        client.start()


def dropped_while_away(world: World) -> None:
    """Objects are dropped that nobody asks for: whoever had acked their versions is told."""
    swarm, clock = world.swarm, world.clock
    if not swarm.object_keep:
        return
    clock.run(clock.now + swarm.app_delay + 1.0)
    world.dropped.clear()
    for client in world.everybody():
        client.crash()
    within = max(shard.collected_within() for shard in world.shards) + swarm.collect_pause
    gone = 5 * swarm.heartbeat + swarm.scan_interval + swarm.linger
    clock.run(clock.now + (swarm.object_keep + gone + within) * (1 + 2 * swarm.drift))
    for client in world.clients:
        client.unknown_in = {}
        client.start()
    for device in world.devices:
        device.start()
    clock.run(clock.now + world.bound())
    for client in world.clients:
        for key in world.dropped & client.app.wanted.keys():
            if not client.unknown_in.get(key):
                raise Violation(f"{client.name} was not told that {key} is not known any more")


def late_copies(world: World) -> None:
    """Of what an own channel has told: they come after a reset, and after what followed it."""
    clock, dice, net = world.clock, world.dice, world.net
    if not any(isinstance(client, OwnChannelNode) for client in world.clients):
        return
    copies: list[Callable[[], None]] = []
    net.copies = copies
    for publisher in world.publishers.values():
        publisher.forge()
    clock.run(clock.now + world.told_within() + world.swarm.app_delay)
    for publisher in world.publishers.values():
        publisher.reset_when_idle()
    world.finish_resets()
    clock.run(clock.now + dice.choice((0.0, world.told_within())))
    world.change_all()
    clock.run(clock.now + world.told_within() + world.swarm.app_delay)
    net.copies = None
    for repeat in dice.sample(copies, len(copies)):
        for _ in range(dice.choice((1, 1, 2))):
            clock.after(dice.random() * 5.0, repeat)
    clock.run(clock.now + 5.0)


def links_broken_under_windows(world: World) -> None:
    """Links break while pushes wait in registrars for newer ones, and come back at once; what was
    held of one is nothing to the next (`RegistrarNode._check_current`)."""
    swarm, clock, dice = world.swarm, world.clock, world.dice
    if not swarm.registrar_batch_ms:
        return
    for _ in range(3):
        world.change_all()
        clock.run(clock.now + dice.random() * world.known_within())
        world.change_all()
        clock.run(clock.now + dice.random() * 10 * swarm.latency)
        for registrar in world.registrars:
            for link in list(registrar.links.values()):
                link.drop("registrar")
        clock.run(clock.now + 4.0 + swarm.load_delay)


def silent_shards(world: World) -> None:
    """Shards lose the newest of their feeds, and their disks are full: no epoch can begin. So
    nobody who comes meanwhile is confirmed, though registrars were told what was before
    (`World.confirmed`)."""
    clock, dice = world.clock, world.dice
    away = [client for client in world.everybody() if dice.random() < 0.5]
    for client in away:
        client.crash()
    for shard in world.shards:
        shard.rot = 1.0
    world.change_all()
    clock.run(clock.now + 1.0)
    for shard in world.shards:
        shard.rot = 0.0
        shard.disk.capacity = shard.disk.used()
    for client in away:
        clock.after(GAP_CLOSED_S + 5.0 * dice.random(), client.start)
    clock.run(clock.now + 4 * GAP_CLOSED_S)
    for shard in world.shards:
        if not shard.matcher.caught_up:
            world.seen("silent for long")
        shard.disk.heal()


_SOME: Final = (
    *(overtaken_acks, reset_in_doubt, dropped_while_away, late_copies),
    *(links_broken_under_windows, silent_shards),
)
