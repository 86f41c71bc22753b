"""How much of the bodies of requests may be on its way, and who loses when it is too much.

What has arrived of a body is held until the rest is there, so bodies that never end would fill the
memory. All of them together have a limit, and so have those of one address and of one principal.
Beyond it, the body that began first is given up: those of well-behaved clients are there within
milliseconds, and what is held back grows old. A body that is alone in its share is not given up,
for it has a limit of its own.
"""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

C = TypeVar("C", bound=Hashable)

MAX_BYTES: Final = 128 * 1024 * 1024
"""Of all bodies of a process that are on their way."""
MAX_SHARE_BYTES: Final = MAX_BYTES // 4
"""Of those of one address, and of those of one principal."""
MIN_BYTES_PER_S: Final = 1024
"""A body that comes slower is not waited for."""

_ALL: Final = "all"


class _Share(Generic[C]):
    __slots__ = ("bodies", "bytes", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.bytes = 0
        self.bodies: dict[C, None] = {}
        """Oldest first."""


class Bodies(Generic[C]):
    """A body is named by its connection, which has one at a time."""

    def __init__(self, give_up: Callable[[C], None]) -> None:
        self._give_up = give_up
        self._shares: dict[Hashable, _Share[C]] = {}
        self._under_way: dict[C, tuple[int, set[Hashable]]] = {}
        """How much of it has arrived, and in whose shares it counts."""

    def begin(self, conn: C) -> None:
        self._under_way[conn] = 0, set()
        self.count_for(conn, _ALL)

    def count_for(self, conn: C, owner: Hashable) -> None:
        """All of it, if it is under way still."""
        size, owners = self._under_way.get(conn, (0, {owner}))
        if owner in owners:
            return
        if owner not in self._shares:
            self._shares[owner] = _Share(MAX_BYTES if owner == _ALL else MAX_SHARE_BYTES)
        owners.add(owner)
        self._shares[owner].bodies[conn] = None
        self._shares[owner].bytes += size
        self._trim(owner)

    def arrived(self, conn: C, more: int) -> None:
        if conn not in self._under_way:
            return
        size, owners = self._under_way[conn]
        self._under_way[conn] = size + more, owners
        for owner in owners:
            self._shares[owner].bytes += more
        for owner in list(owners):
            self._trim(owner)

    def done(self, conn: C) -> None:
        size, owners = self._under_way.pop(conn, (0, ()))
        for owner in owners:
            share = self._shares[owner]
            share.bytes -= size
            del share.bodies[conn]
            if not share.bodies:
                del self._shares[owner]

    def _trim(self, owner: Hashable) -> None:
        share = self._shares.get(owner)
        while share is not None and share.bytes > share.limit and len(share.bodies) > 1:
            oldest = next(iter(share.bodies))
            self.done(oldest)
            self._give_up(oldest)
