"""A run on paper: the swarm it draws its cluster from, and every fault that befalls it.

Both follow from a seed. A tape that fails is written to a file, replayed, shrunk by leaving faults
out, and kept.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, Final, Literal, get_type_hints

import msgspec

from roskva.host.batching import AUTO, SLOWEST_MS

FAULTS: Final[dict[str, tuple[str, ...]]] = {
    "network": (
        "lossy",  # drops, duplicates and reorders what clients and registrars say
        "slow_network",
        "clog",  # one connection's messages wait
        "swizzle",  # several clogged one by one and released in another order
        "partition",  # a registrar from a shard, both ways
        "one_way",  # only what the shard says is lost
        "half_open",  # a client's connection dies and nobody is told
        "deaf",  # a client is not reached, and is heard all the same
        "cut_clients",  # a registrar loses all its connections at once
    ),
    "process": (
        "crash_registrar",
        "crash_shard",
        "pause_registrar",
        "pause_shard",
        "slow_shard",
        "slow_registrar",
        "zombie",  # a shard's owner sleeps while another takes over, and wakes
    ),
    "storage": (
        "write_error",
        "rows_unavailable",
        "slow_store",
        "old_snapshot",  # the store comes back as it was a while ago
        "lose_disk",
        "cold_restore",  # the same on a slow disk, while applications register
        "feed_bit_flip",
        "feed_rots",  # what was just acknowledged cannot be read, and nobody crashed
        "feed_full",
        "feed_error",
        "feed_torn",  # the power goes in the middle of a commit
        "feed_recreated",
        "feed_replaced",  # an old store beside a new feed
        "half_row",  # of a client: who it is has gone, and what it is registered for has not
        "retention",
    ),
    "time": ("wall_jump",),
    "clients": (
        "crash_client",
        "crash_client_forgetting",
        "lose_token",
        "replay_token",
        "denied",
        "churn",
        "slow_reader",
        "redeclare",
        "twin",  # the same identity connects twice
        "herd",
        "long_away",  # all that want an object, for long, and meanwhile it changes
        "writes_blind",  # changes an object after missing a change of it
        "acks_late",  # what it was told before a part of the history was lost
        "registers_cut_off",  # at a registrar that no longer hears of the object
    ),
    "pipeline": (
        "lose_fast_path",
        "stop_bridge",
        "bridge_hangs",  # it asks where shards stand, and brings nothing; perhaps for good
        "bridge_repeats",
        "bridge_skips",
        "forge_and_reset",
        "reset_overtakes",  # the change before it, which was lost and is on its way again
        "reset_app",  # in every shard; or another app, which nobody may notice
    ),
}
SOURCE_FAULTS: Final[dict[str, tuple[str, ...]]] = {
    "database": (
        "database_away",
        "database_breaks",  # connections to it
        "standby_away",  # what is committed is in its log, and nobody sees it
        "slot_dropped",
        "slot_lost",
        "slot_recreated",
        "failover",  # to a standby that has not all, with the slot or without
        "failover_and_back",
        "truncate",
    ),
    "source": (
        "source_dies",
        "source_paused",
        "source_loses_power",
        "source_disk_fails",
        "source_disk_full",
        "changes_lost",
        "changes_restored",  # the disk of the log as it was a while ago
        "changes_rot",
        "source_links_cut",
        "flow_rests",  # another one, which then publishes what is late
        "killed_in_a_doubt",  # the source or a shard, and perhaps again and again
    ),
}
TAPES: Final = sorted(Path(__file__).with_name("tapes").glob("*.json"))
"""What once broke a cluster, of each kind the shortest."""
KINDS: Final = tuple(kind for kinds in FAULTS.values() for kind in kinds)
SOURCE_KINDS: Final = tuple(kind for kinds in SOURCE_FAULTS.values() for kind in kinds)
_OF_PUBLISHERS: Final = frozenset(("forge_and_reset", "reset_overtakes", "reset_app"))
"""Whose versions are their own."""

Profile = Literal["node", "sources"]
FAULTS_OF: Final[dict[Profile, dict[str, tuple[str, ...]]]] = {
    "node": FAULTS,
    "sources": {
        **SOURCE_FAULTS,
        **{
            group: tuple(kind for kind in kinds if kind not in _OF_PUBLISHERS)
            for group, kinds in FAULTS.items()
        },
    },
}
"""By class, what befalls a world of each profile."""
_DRAWN_APART: Final = ("zombie",)
"""With dice of its own, each: what is new changes nothing else of a seed."""
_ENDING_EPOCHS: Final = (
    *("lose_disk", "feed_bit_flip", "feed_rots", "feed_recreated", "feed_replaced", "retention"),
)
_LOSING: Final = frozenset(("lossy", "deaf", *FAULTS["storage"], *FAULTS["pipeline"]))


class Fault(msgspec.Struct, frozen=True):
    at: float
    kind: str
    length: float
    """Seconds, where it has a duration."""
    which: int
    """Chooses the victim, modulo how many there are."""
    strength: float
    """0 … 1"""


class Swarm(msgspec.Struct, frozen=True):
    """How a cluster is built and how nervous its timers are. Beside each is what it is drawn from:
    one of these, or how often it is true. Times are in seconds."""

    clients: Annotated[int, range(1, 5)]
    mqtt_clients: Annotated[int, (0, 0, 1, 2)]
    registrars: Annotated[int, range(1, 4)]
    shards: Annotated[int, range(1, 3)]
    objects: Annotated[int, range(1, 6)]
    registrations: Annotated[int, range(1, 5)]
    publish_interval: Annotated[float, (2.0, 5.0, 12.0, 30.0)]
    latency: Annotated[float, (0.001, 0.005, 0.05)]
    heartbeat: Annotated[float, (5.0, 10.0, 25.0)]
    scan_interval: Annotated[float, (4.0, 8.0, 20.0)]
    answer_timeout: Annotated[float, (2.0, 4.0, 8.0)]
    ack_flush: Annotated[float, (0.5, 1.0, 5.0)]
    linger: Annotated[float, (1.0, 10.0, 60.0)]
    ping_interval: Annotated[float, (1.0, 2.0)]
    sync_timeout: Annotated[float, (1.0, 5.0)]
    feed_tick: Annotated[float, (1.0, 3.0)]
    bridge_interval: Annotated[float, (0.0, 1.0, 4.0)]
    """0: no bridge."""
    fast_path: Annotated[bool, 0.8]
    app_delay: Annotated[float, (0.01, 0.5, 4.0)]
    """At most so long does an application take to ack."""
    sources: Annotated[bool, 0.6]
    handshakes_per_10s: Annotated[int, (5, 50, 1000)]
    drift: Annotated[float, (0.0, 0.0, 0.02)]
    fault_time: float
    load_delay: Annotated[float, (0.01, 0.3, 2.0)] = 0.01
    """At most so long does a read of the store take to come back."""
    ordered: Annotated[bool, 0.7] = True
    """Publishers wait for one version to be acknowledged before they publish the next."""
    bursts: Annotated[float, (0.0, 0.3, 0.6)] = 0.0
    """How often a change is followed by another one at once."""
    fast_path_loss: Annotated[float, (0.0, 0.0, 0.1, 0.5)] = 0.0
    """At all times; a fault may make it worse."""
    segment_bytes: Annotated[int, (500, 1500)] = 500
    packet_ids: Annotated[int, (4, 20)] = 20
    """Few, so that they meet again while in flight."""
    flush_delay: Annotated[float, (0.0, 0.05, 2.0)] = 0.0
    """Before a matcher persists what nobody waits for."""
    fanout_slice: Annotated[int, (1, 1, 2, 1000)] = 2
    """Sessions told at a time: few, so that something newer comes between."""
    slice_delay: Annotated[float, (0.0, 0.2, 1.0)] = 0.2
    """At most so long does a registrar have other things to do between two slices."""
    batch_ms: Annotated[int | Literal["auto"], (0, 0, 50, 2000, "auto")] = 0
    """So long do pushes wait in a shard for newer ones."""
    registrar_batch_ms: Annotated[int | Literal["auto"], (0, 0, 50, 2000, "auto")] = 0
    """The same in a registrar."""
    client_keep: Annotated[float, (0.0, 10.0, 40.0)] = 0.0
    """For so long is a client remembered that is away; 0: for good."""
    object_keep: Annotated[float, (0.0, 20.0, 60.0)] = 0.0
    """The same of an object that nobody asks for."""
    mqtt_expiry: Annotated[int, (3600, 15)] = 3600
    """What devices that speak MQTT 5 ask for."""
    collect_pause: Annotated[float, (2.0, 600.0)] = 600.0
    """Between two rounds of the collector."""
    max_clients: Annotated[int, (0, 0, 2, 5)] = 0
    """That a shard keeps of one principal, which tries to have many more; 0: nobody does."""
    own_clients: Annotated[int, (0, 0, 1, 2)] = 0
    """Of an application's own channel, which loses, repeats and reorders at all times."""

    @property
    def batch_s(self) -> float:
        """So long may one wait in both."""
        windows = (self.batch_ms, self.registrar_batch_ms)
        return sum(SLOWEST_MS if window == AUTO else window for window in windows) / 1000


class Tape(msgspec.Struct, frozen=True):
    seed: int
    swarm: Swarm
    faults: list[Fault]
    profile: Profile = "node"
    last_changes: list[float] = []
    """When the first, second, … object changes for the last time before the faults stop. What is
    missed of an object that goes on changing is soon forgotten; these are not."""

    def without(self, gone: set[int]) -> "Tape":
        faults = [fault for i, fault in enumerate(self.faults) if i not in gone]
        return msgspec.structs.replace(self, faults=faults)

    def save(self, path: Path) -> None:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)))

    @staticmethod
    def load(path: Path) -> "Tape":
        return msgspec.json.decode(path.read_bytes(), type=Tape)


DEFAULT_MINUTES: Final = 6.0
_FEW: Final = 12
"""Of the faults of a node, that may befall a world of another profile."""


def tape_of(seed: int, minutes: float = DEFAULT_MINUTES, profile: Profile = "node") -> Tape:
    """`minutes` of faults; healing and judging take a few more."""
    swarm = _swarm(seed, minutes * 60)
    dice = Random(seed)
    if profile == "node":
        faults = _faults(dice, swarm, [kind for kind in KINDS if kind not in _DRAWN_APART])
    else:
        theirs = [kind for kind in kinds_of(profile) if kind not in _DRAWN_APART]
        own = [kind for kind in theirs if kind not in KINDS]
        others = dice.sample([kind for kind in theirs if kind in KINDS], _FEW)
        faults = _faults(dice, swarm, [*own, *others])
    last_changes = _last_changes(dice, swarm, faults)
    for kind in _DRAWN_APART:
        faults += _of_kind(kind, Random(f"{seed} {kind}"), swarm)
    faults.sort(key=lambda fault: fault.at)
    return Tape(seed, swarm, faults, profile, last_changes)


def kinds_of(profile: Profile) -> list[str]:
    return [kind for kinds in FAULTS_OF[profile].values() for kind in kinds]


def _swarm(seed: int, fault_time: float) -> Swarm:
    """Each with dice of its own: what is new takes nothing from what a seed was."""
    drawn: dict[str, Any] = {}
    for name, kind in get_type_hints(Swarm, include_extras=True).items():
        dice = Random(f"{name} {seed}")
        for options in getattr(kind, "__metadata__", ()):
            chance = isinstance(options, float)
            drawn[name] = dice.random() < options if chance else dice.choice(options)
    return Swarm(**drawn, fault_time=fault_time)


def _faults(dice: Random, swarm: Swarm, kinds: Sequence[str]) -> list[Fault]:
    """Each kind is on or off for a seed, with an intensity of its own.

    In half of the seeds no history is lost: a new epoch makes everybody look, and so heals whatever
    else went wrong.
    """
    faults: list[Fault] = []
    spared = _ENDING_EPOCHS if dice.random() < 0.5 else ()
    for kind in kinds:
        if kind not in spared:
            faults += _of_kind(kind, dice, swarm)
    faults.sort(key=lambda fault: fault.at)
    return faults


def _of_kind(kind: str, dice: Random, swarm: Swarm) -> Iterator[Fault]:
    for _ in range(dice.choice((0, 0, 0, 1, 2, 4))):
        at = round(dice.uniform(5.0, swarm.fault_time), 3)
        longest = dice.choice((1.0, 6.0, 20.0, 60.0))
        length = round(dice.uniform(0.1, longest), 3)
        yield Fault(at, kind, length, dice.randrange(1 << 16), round(dice.random(), 3))


def _last_changes(dice: Random, swarm: Swarm, faults: list[Fault]) -> list[float]:
    """Most objects fall silent in the middle of trouble, and of such as loses something rather."""
    losing = [fault for fault in faults if fault.kind in _LOSING]
    moments = []
    for _ in range(swarm.objects):
        fault = dice.choice(losing if losing and dice.random() < 0.5 else faults)
        if dice.random() < 0.75:
            moments.append(round(fault.at + dice.uniform(0.0, fault.length + 3.0), 3))
        else:
            moments.append(swarm.fault_time)
    return moments
