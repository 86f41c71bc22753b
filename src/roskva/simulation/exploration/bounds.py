"""How much may happen in an exploration: sizes, and how often which fault."""

from typing import Final

import msgspec

CHANGES: Final = ("publishes", "operations", "declarations", "deliveries")
"""What users and the pipeline do; the rest are faults."""

FAULTS: Final = (
    *("losses", "duplicates", "reorders", "hangups", "lags", "link_breaks", "silences"),
    *("registrar_crashes", "shard_crashes", "client_crashes", "client_losses", "state_losses"),
    *("row_losses", "feed_losses", "recreations", "missed_handovers", "failures", "early_timers"),
)

KINDS: Final = (*CHANGES, *FAULTS)


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
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
        return [*(min(getattr(self, kind), self.cap(kind)) for kind in KINDS), self.faults]

    def cap(self, kind: str) -> int:
        return self.faults if kind in FAULTS else 1 << 30

    def described(self) -> str:
        size = f"{self.clients} clients, {self.objects} objects, {self.registrars} registrars"
        start = "warm" if self.warm else "cold"
        eager = f", eager {'+'.join(self.eager)}" if self.eager else ""
        changes = [f"{getattr(self, k)} {k}" for k in CHANGES if getattr(self, k)]
        faults = [f"{getattr(self, k)} {k}" for k in FAULTS if getattr(self, k)]
        some = f"; at most {self.faults} faults of: {', '.join(faults)}" if faults else ""
        return f"{size}, {start}{eager}; {', '.join(changes)}{some}"
