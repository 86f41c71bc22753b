"""How much may happen in an exploration, and the clusters that are explored.

Each cluster is small enough to come to an end and rich in one thing. What it is not about happens
at once (`eager`), so that what it is about may come in every order. Together they have two clients,
two objects, two registrars, and every fault in company with every stage of the protocol it can
meet.
"""

from itertools import starmap
from typing import Final

import msgspec

CHANGES: Final = ("publishes", "operations", "declarations", "deliveries", "app_resets")
"""What users and the pipeline do; the rest are faults."""

FAULTS: Final = (
    *("losses", "duplicates", "reorders", "hangups", "lags", "link_breaks", "silences"),
    *("registrar_crashes", "shard_crashes", "client_crashes", "client_losses", "state_losses"),
    *("row_losses", "feed_losses", "recreations", "missed_handovers", "failures", "early_timers"),
)

KINDS: Final = (*CHANGES, *FAULTS)


class Bounds(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    clients: int = 1
    objects: int = 1
    registrars: int = 1
    warm: bool = True
    """Begin when everybody is registered and fresh, and not with the first connection."""
    eager: tuple[str, ...] = ()
    """Steps of these kinds happen at once and are never overtaken: `disk` (the store's operations),
    `links` (between registrars and shard), `clients` (their connections)."""
    slow_apps: bool = False
    """Applications take their time between being told and acking."""

    faults: int = 0
    """Of all kinds together."""
    publishes: int = 0
    operations: int = 0
    """Registrations and unregistrations by the application."""
    declarations: int = 0
    """Registrations with a version, up to date or one behind."""
    deliveries: int = 0
    """Of all that the feed holds, once more, by the bridge."""
    app_resets: int = 0
    """After each the versions of the app begin again, below all before."""
    losses: int = 0
    duplicates: int = 0
    reorders: int = 0
    hangups: int = 0
    """Connections that break, and both sides learn of it."""
    lags: int = 0
    link_breaks: int = 0
    silences: int = 0
    """Links that lose everything from then on, and nobody is told."""
    registrar_crashes: int = 0
    shard_crashes: int = 0
    client_crashes: int = 0
    """The client comes back with its identity and its cache."""
    client_losses: int = 0
    """The client comes back without."""
    state_losses: int = 0
    """Object rows and the shard row are gone; client rows and feed are there."""
    row_losses: int = 0
    """Client rows are gone."""
    feed_losses: int = 0
    """What the feed holds can no longer be read; its end is known."""
    recreations: int = 0
    """The feed is gone and begins anew."""
    missed_handovers: int = 0
    """The feed has an update, the matcher was not handed it."""
    failures: int = 0
    """Storage operations that fail once."""
    early_timers: int = 0
    """Timers that run out although nothing is wrong: others are slow."""

    def budget(self) -> list[int]:
        """Of each kind, and of all faults."""
        changes = [getattr(self, kind) for kind in CHANGES]
        faults = [min(getattr(self, kind), self.faults) for kind in FAULTS]
        return [*changes, *faults, self.faults]

    def described(self) -> str:
        size = f"{self.clients} clients, {self.objects} objects, {self.registrars} registrars"
        start = "warm" if self.warm else "cold"
        eager = f", eager {'+'.join(self.eager)}" if self.eager else ""
        changes = [f"{getattr(self, k)} {k}" for k in CHANGES if getattr(self, k)]
        faults = [f"{getattr(self, k)} {k}" for k in FAULTS if getattr(self, k)]
        some = f"; at most {self.faults} faults of: {', '.join(faults)}" if faults else ""
        return f"{size}, {start}{eager}; {', '.join(changes)}{some}"


_EAGER: Final = ("disk", "links", "clients")


def _clusters(text: str) -> tuple[Bounds, ...]:
    """Two lines each: sizes and changes, and what happens at once; how many faults of which kinds.

    A kind may happen once, or as often as it says: `losses*2`.
    """
    lines = text.strip().splitlines()
    return tuple(starmap(_cluster, zip(lines[::2], lines[1::2], strict=True)))


def _cluster(sizes: str, faults: str) -> Bounds:
    name, _, sizes = sizes.partition(": ")
    sizes, _, eager = sizes.partition(", ")
    total, _, kinds = faults.partition(" of ")
    each = (kind.partition("*") for kind in kinds.split())
    fields = {
        "name": name,
        "eager": [what for what in _EAGER if what in eager or "everything" in eager],
        "faults": total.strip(),
        **dict(size.split("=") for size in sizes.split()),
        **{kind: times or 1 for kind, _, times in each},
    }
    return msgspec.convert(fields, Bounds, strict=False)


CONFIGURATIONS: Final = _clusters("""
two clients: clients=2 publishes=2, disk and links at once
    1 of losses duplicates reorders hangups lags
two registrars: clients=2 registrars=2 publishes=1, disk and links at once
    1 of registrar_crashes hangups client_crashes client_losses
servers fail: clients=2 publishes=2, clients at once
    1 of shard_crashes link_breaks registrar_crashes silences failures missed_handovers
registering over links: publishes=1 operations=2, clients at once
    1 of link_breaks registrar_crashes
registering over losses: publishes=1 operations=2, disk and links at once
    1 of losses reorders duplicates lags
declaring over links: publishes=2 declarations=1, clients at once
    1 of recreations link_breaks missed_handovers client_crashes
lost rows: publishes=1 operations=1, disk and links at once
    2 of row_losses client_crashes hangups registrar_crashes
first contact: warm=0 publishes=1, nothing at once
    1 of losses duplicates reorders hangups client_crashes
impatience: publishes=1, nothing at once
    1 of early_timers
two objects: objects=2 publishes=2 deliveries=1, clients at once
    1 of missed_handovers shard_crashes failures
slow applications: slow_apps=1 publishes=2 operations=1, disk and links at once
    1 of recreations losses reorders
history lost with messages under way: publishes=2, disk at once
    2 of state_losses feed_losses recreations missed_handovers
history lost with writes under way: publishes=2, clients at once
    2 of state_losses feed_losses recreations shard_crashes
two faults: publishes=1, disk and links at once
    2 of losses*2 duplicates*2 reorders*2 hangups*2 client_crashes client_losses early_timers
an app is reset: publishes=2 app_resets=1, links and clients at once
    1 of shard_crashes missed_handovers failures link_breaks client_crashes
""")
"""The largest come first: the last ones fill the cores that are left."""

HUNTING_GROUNDS: Final = _clusters("""
a history: publishes=2, everything at once
    2 of shard_crashes state_losses feed_losses recreations missed_handovers
a feed of two objects: objects=2 publishes=2 deliveries=1, everything at once
    1 of missed_handovers shard_crashes
writes under way: publishes=2, links and clients at once
    1 of recreations failures shard_crashes
messages under way: publishes=1, disk at once
    1 of feed_losses recreations state_losses
comings and goings: registrars=2 publishes=1 operations=1, disk and clients at once
    1 of registrar_crashes client_crashes hangups silences
a broken link: operations=2, clients at once
    1 of link_breaks
a lossy connection: publishes=1 operations=1, disk and links at once
    1 of losses duplicates reorders lags hangups
a declaration: publishes=2 operations=1 declarations=1, everything at once
    1 of client_crashes client_losses registrar_crashes row_losses recreations missed_handovers
a reset: publishes=2 app_resets=1, everything at once
    1 of missed_handovers shard_crashes client_crashes
""")
"""Smaller ones, for planted bugs: a few seconds each."""
