"""Which rows nobody needs any more: the one place that decides it.

A client is away since its session was closed. Of a session whose end nobody wrote down (a crash, a
link that broke) it is certain only that it was there when it was opened; so it counts as away since
the shard last lost such sessions (`lost_at`). It is kept for as long as the apps it is registered
with say, the longest of them; or shorter, if its session asked for that (MQTT 5).

A row that was never created, or that somebody forgot by half, belongs to nobody. So does an object
that was not updated for as long as its app says; whether anybody cares about it, its shard knows.

The scan of a shard (`collector.py`) decides by this, and so does `roskva job gc`.
"""

from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from roskva.model import Key

DAY_S: Final = 86_400


class Keep(msgspec.Struct, frozen=True):
    """How long an app keeps, in seconds, what nobody asks for. None: for good."""

    clients_s: float | None = 30.0 * DAY_S
    objects_s: float | None = None


KeepOf = Callable[[str], Keep]
"""By app. An empty name is of a client that is registered for nothing."""


def keep_by_default(app: str) -> Keep:
    return Keep()


class ScannedClient(msgspec.Struct, frozen=True):
    """A client row as a scan sees it. Times are wall-clock microseconds."""

    client: bytes
    session: int
    created: bool
    seen_at: int = 0
    open: bool = False
    """Its session was opened, and nobody has written down that it was closed."""
    expiry_s: int | None = None
    """What the session itself asked for."""
    registrations: int = 0
    apps: tuple[str, ...] = ()
    """Of its registrations."""
    account: bytes = b""
    """Of the principal that made it: `Principal.account`."""


ALWAYS: Final = 0
"""When a row expires that belongs to nobody."""


def client_expires_at(row: ScannedClient, keep_of: KeepOf, lost_at: int = 0) -> int | None:
    """None: never."""
    if not row.created:
        return ALWAYS
    kept_s = kept_for(row.expiry_s, row.apps, keep_of)
    if kept_s is None:
        return None
    return (max(row.seen_at, lost_at) if row.open else row.seen_at) + int(kept_s * 1e6)


def kept_for(expiry_s: int | None, apps: Iterable[str], keep_of: KeepOf) -> float | None:
    """Seconds from the end of a session; None: for good."""
    kept = [keep_of(app).clients_s for app in apps] or [keep_of("").clients_s]
    longest = None if None in kept else max(s for s in kept if s is not None)
    if expiry_s is None or longest is None:
        return longest if expiry_s is None else float(expiry_s)
    return min(longest, float(expiry_s))


def object_expires_at(key: Key, published_at: int, keep_of: KeepOf) -> int | None:
    """None: never. Of what carries no time nobody can tell how old it is."""
    kept_s = keep_of(key.partition("/")[0]).objects_s
    if kept_s is None or not published_at:
        return None
    return published_at + int(kept_s * 1e6)
